"""What every objective offers to data, training and decoding."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Self

import numpy as np

from unitk import registry
from unitk.data.cuts import Cutter, Text, When
from unitk.errors import UsageError, require
from unitk.options.fields import Checked, Schedule
from unitk.slots import Bools, Example, Floats, Ids, Protocol, Slots, stay, unroll
from unitk.vocab.base import BLANKS, Vocab


@dataclass(frozen=True)
class Encoded:
    """Texts laid out to be understood: heads read the states of some of the slots.

    `example` has no asks but those its objective trains beside.
    """

    example: Example
    tower: str
    """The one that is read."""
    whole: int
    """The slot that stands for all parts together."""
    parts: list[Ids]
    """The slot of each token of each part."""


@dataclass(frozen=True)
class Trained:
    """What a task knows of its data and model, as `open_data`, a checkpoint or a format says."""

    labels: tuple[str, ...] = ()  # names of the classes, tags or entities in the data
    pairs: bool = True  # whether its model was trained on pairs; others go on with a prompt
    parts: int = 0  # most parts of a source in the training of its model; 0: unknown
    max_source: int | None = None  # most tokens of a source in the training of its model
    window: tuple[int | None, str] | None = None
    """Where its model learnt passages around answers: the most tokens of a source, and its form."""
    room: int | None = None  # positions of the architecture, where it has a table of them
    corpora: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Of a task that `joins` corpora: their names, with the form and the names of their labels."""


Pool = Literal["mean", "first", "last"]
Side = Literal["source", "target"]
LEARNS = {
    "pretrain": "texts",
    "finetune": "pairs",
    "classify": "labelled texts",
    "answer": "answers in passages",
    "link": "texts with entities",
}
"""Methods that lay out examples -> what they are of."""


class Task:
    """An objective: how texts and pairs are laid out as slots, and how its models decode.

    Subclasses are registered and have a `Config`; layouts are pure functions of their arguments.
    A task does not change: `knowing` makes a copy.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(Checked):
        """No options."""

        KIND = "task"

    symbols: ClassVar[tuple[str, ...]] = ("pad", "cls", "sep")
    """Special symbols the vocabulary must have."""
    arch: ClassVar[str]
    criterion: ClassVar[str] = "cross_entropy"  # default components, by registered name
    infills: ClassVar[bool] = False  # a prompt with [MASK]s has them filled
    bounds: ClassVar[bool] = False  # whether its loss is a bound of the likelihood
    estimator: ClassVar[str] = ""  # of a text's likelihood, by registered name; "": by its protocol
    needs: tuple[str, ...] = ()
    """Tables of an architecture that layouts need, by the option of their size."""
    segments: ClassVar[tuple[int, ...]] = ()
    """For each segment of the layouts the one of BERT that it begins as, if there are more."""
    from_nothing: ClassVar[bool] = False
    """Whether `prompt([])`, or `canvas` of no source, begins a text where nothing is given."""
    continues: ClassVar[bool] = False
    """Where a model has no end that was trained, its outputs go on to `--max-len`."""
    backward: bool = False
    """Whether the task reads texts from their end to their beginning."""
    trained: Trained = Trained()
    first_rows: dict[str, tuple[str, tuple[int, ...]]]
    """What a table begins as where a checkpoint has fewer rows: those rows of a table there."""
    hides: ClassVar[dict[str, str]] = {}
    """Options that hide words of the input in training, and what a model is judged with."""
    earlier: ClassVar[dict[str, str]] = {}
    """Options that checkpoints of earlier versions lack, with what these versions did."""
    heads: tuple[str, ...] = ()
    """Heads that are asked beside that over the vocabulary, as in `--arch.heads`."""
    frame: int = 2  # symbols a layout adds to a text, counted in `--block-size`
    virtual: tuple[str, ...] = ()
    """Spellings of input ids beyond the vocabulary, which no output can be: V, V + 1, ..."""
    both_ways: bool = False
    """Whether each text is read from its beginning and, as another example, from its end."""
    separates: bool = True
    """Whether a separator stands between the documents of a stream."""
    cut: Cutter | None = None
    """How texts are cut from the corpus, where the task does not leave it to `--blocks`."""
    source_vocab: Vocab
    """What an encoder reads; a vocabulary of its own comes from the option of the same name."""
    pool: Pool = "mean"
    """How its states become the vector of a text, as of `unitk embed --pool`."""
    sides: tuple[Side, ...] = ("source",)
    """What its models make vectors of: all texts alike, or sources and targets each in a tower."""
    predicts: ClassVar[bool] = False  # labels, numbers or answers; see `Understanding`
    head: ClassVar[str] = ""  # kind of a head of its own, and name of what it asks
    form: str = ""  # of the labels it learns, where there is one form only
    fields: tuple[str, ...] = ()
    """Parts that a labelled text must have, in this order, where there are certain ones."""
    untrained: ClassVar[bool] = False
    """Whether the task can ask models that were trained as its `layout` alone."""
    joins: ClassVar[bool] = False  # whether each corpus may have labels of its own
    shortens: ClassVar[bool] = False  # whether it cuts sources itself to the positions there are
    needs_criterion: str = ""  # the only one that can learn what its examples ask
    writes: ClassVar[bool] = False  # whether its model writes while it is trained
    files: Mapping[str, str] = MappingProxyType({})
    """Texts that checkpoints keep as files of these names; `Copied` marks the options for them."""
    tables: Mapping[str, Floats] = MappingProxyType({})
    """What tensors of a model begin as, by name, whatever a checkpoint has."""
    table_heads: tuple[str, ...] = ()
    """The `heads` whose tables inputs are read from, in fine-tuning, too."""
    copies: int = 0  # epochs after which the same draws come again; 0: never

    def __init__(self, config: Any, vocab: Vocab) -> None:
        self.config, self.vocab, self.source_vocab = config, vocab, vocab
        self.first_rows = {"embed.segments.weight": ("embed.segments.weight", self.segments)}
        vocab.require(self.symbols, f"task {registry.name_of('task', type(self))}")

    @classmethod
    def component(cls, kind: str, config: Any) -> str:
        """The default "arch" or "criterion" beside these options, by registered name."""
        return cls.arch if kind == "arch" else cls.criterion

    def knowing(self, **known: Any) -> Self:
        """A copy with these fields of `trained`; itself where it knows them already."""
        trained = replace(self.trained, **known)
        return self if trained == self.trained else self.changed(trained=trained)

    def changed(self, **attributes: Any) -> Self:
        """A copy with other attributes; what was computed from these is computed again."""
        own, kind = copy.copy(self), type(self)
        # a cached property is an attribute of the class, whose value hides it in the task
        cached = [n for n in vars(self) if isinstance(getattr(kind, n, None), cached_property)]
        for name in cached:
            del vars(own)[name]
        vars(own).update(attributes)
        return own

    @property
    def name(self) -> str:
        """The registered name, as `--task` takes it."""
        return registry.name_of("task", type(self))

    @property
    def protocol(self) -> Protocol | None:
        """How models of this task decode; None if they cannot."""
        return None

    @property
    def driver(self) -> str:
        """What writes the outputs of its models, by registered name; "": nothing does."""
        return "steps" if self.protocol else "once" if self.infills else ""

    @property
    def generates(self) -> bool:
        """Whether its models write outputs of their own, and not only into blanks."""
        return self.driver not in ("", "once")

    @cached_property
    def asks(self) -> Mapping[str, float | Schedule]:
        """What the mean of each ask counts in the loss, where that is not 1."""
        return {}

    @property
    def record_asks(self) -> Mapping[str, float | Schedule]:
        """What the mean of each ask counts in the loss of pairs and labelled texts."""
        return self.asks

    @property
    def blank(self) -> int:
        """The id that stands for a blank in prompts, where it fills these."""
        return self.vocab.mask

    @cached_property
    def words(self) -> Ids:
        """Ids that are no special symbols."""
        vocab = self.vocab
        symbols = [*vocab.symbols.values(), *vocab.sentinels]
        return np.setdiff1d(np.arange(vocab.model.size), symbols)

    def for_corpus(self, manifest: Mapping[str, Any]) -> Task:
        """The task for what is in a corpus with this manifest, to which its `name` is added."""
        return self

    def slots(self, n: Ids) -> Ids:
        """The most slots that `pretrain` makes of texts of `n` tokens."""
        return n + self.frame

    def pair_slots(self, source: Ids, target: Ids, parts: Ids) -> Ids | None:
        """The most slots made of a source of so many tokens and parts, and of a target.

        None: a few that are laid out tell, as all of the same lengths have as many slots.
        """
        return None

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        """Lay out a text with its own labels."""
        raise self._lacks("pretrain", "pre-train on texts")

    def finetune(self, source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        """Lay out a source (its parts) with the target as labels."""
        raise self._lacks("finetune", "fine-tune on pairs")

    def classify(self, parts: list[Ids], labels: Any, rng: np.random.Generator) -> Example:
        """Lay out one text or several with a class [1], a number [1], or a tag for each part.

        The parts of a text with tags are its words; `trained.labels` are the names of the labels.
        """
        raise self._lacks("classify", "be trained on labelled texts")

    def answer(self, parts: list[Ids], span: Ids, rng: np.random.Generator) -> Example:
        """Lay out a question and a passage with the answer's tokens [start, stop); -1 -1: none."""
        raise self._lacks("answer", "be trained on answers in passages")

    def link(self, parts: list[Ids], links: Ids, rng: np.random.Generator) -> Example:
        """Lay out a text with links to entities: rows of start, stop and the entity's number."""
        raise self._lacks("link", "be trained on texts with entities")

    def measured(self, model: Any, batch: Any) -> tuple[Mapping[str, Any], Mapping[str, float]]:
        """Further figures of a validation batch: sums by NAME/PART, and counts by NAME."""
        return {}, {}

    def reading(self, source: list[Ids]) -> Slots:
        """A source that is only read, by the encoder where there is one."""
        tokens, part = framed(source, self.vocab.cls, self.vocab.sep)
        return stay(tokens, pos=np.arange(len(tokens)), seg=np.minimum(part, 1))

    def reading_as(self, side: str) -> Self:
        """The task that lays out texts as one of its `sides`, in `to_embed`."""
        idle = f"--side {side}: this model reads all texts alike (two towers: task contrastive)"
        require(side in self.sides, idle)
        return self

    def to_embed(self, source: list[Ids]) -> Example:
        """A source whose states are wanted, for `Model.embed`; its tower is called "enc"."""
        return Example({"enc": self.reading(source)})

    def encoded(self, parts: list[Ids]) -> Encoded:
        """One text or several as fine-tuning for understanding reads them: C a S b S, asked at C.

        Devlin et al. 2019, section 4 and figure 4.
        """
        slots = self.reading(parts)
        return Encoded(Example({"x": slots}), "x", 0, places_of(parts, 1))

    def truncates(self, source: list[Ids]) -> bool:
        """Whether an encoder with its own vocabulary reads a beginning of a source only."""
        return False

    def prompt(self, source: list[Ids]) -> Example:
        """Everything up to and including the slot that decoding reads first; no asks."""
        raise self._lacks("prompt", "generate")

    def canvas(self, source: list[Ids], output: Ids) -> Example:
        """A source and an output with [MASK]s, all of which is asked for, of tasks that diffuse.

        The labels are no answers.
        """
        raise self._lacks("canvas", "generate by diffusion")

    def likelihood(self, before: Ids, text: Ids) -> Example:
        """Lay out a text that comes after `before`: its tokens are the labels of the only ask.

        Their log-probabilities sum to that of the text; no end symbol is asked for. A task without
        a protocol hides each token instead (`decoding/likelihood.py`).
        """
        kind = Task if self.trained.pairs else type(self)
        return kind.continued(self, before, text)

    def continued(self, before: Ids, text: Ids) -> Example:
        """`likelihood` to a model of texts. One of pairs writes the text as output for `before`."""
        assert self.protocol is not None
        return unroll(self.prompt([before]), self.protocol, text)

    def length(self, source: list[Ids]) -> int | None:
        """The words that must be written for a source, if their number is fixed."""
        return None

    def text(self, source: list[Ids], written: Ids) -> str:
        """What was written, as text, or the source with its blanks filled."""
        blanks, fills = self.fills(source, written)
        if len(blanks):
            return self.filled(self.joined(source), blanks, fills)
        end = self.protocol.end if self.protocol else -1
        return self.vocab.decode(written[written != end])

    def fills(self, source: list[Ids], written: Ids) -> tuple[Ids, list[Ids]]:
        """The places of the blanks in a joined source, and what was written into each of them.

        There are none where a source has no blank, or where its text is written anew.
        """
        return np.zeros(0, np.int64), []

    def joined(self, source: list[Ids]) -> Ids:
        """The parts of a source with a separator between them; nothing of no parts."""
        if not source:
            return np.zeros(0, np.int64)
        if len(source) == 1:
            return source[0].copy()
        return np.concatenate([np.append(part, self.vocab.sep) for part in source])[:-1]

    def maskable(self, tokens: Ids) -> Bools:
        """Which of framed tokens may be hidden: all but C and every S."""
        return (tokens != self.vocab.cls) & (tokens != self.vocab.sep)

    def blanks(self, ids: Ids) -> Bools:
        """Which ids are blanks, of any kind."""
        return np.isin(ids, [self.vocab.symbols[name] for name in BLANKS])

    def masks(self, tokens: Ids) -> Ids:
        """The places of the [MASK]s that a prompt must have; `UsageError` if it has none."""
        places = np.flatnonzero(tokens == self.vocab.mask)
        if not len(places):
            raise UsageError(f"task {self.name} fills [MASK]s, but a source has none")
        return places

    def filled(self, ids: Ids, blanks: Ids, fills: list[Ids]) -> str:
        """`ids` as text, fill i in the place of `blanks[i]`; a blank without a fill stays."""
        pieces = np.split(ids, np.stack([blanks, blanks + 1], axis=1).ravel())
        for i, fill in enumerate(fills[: len(blanks)]):
            pieces[2 * i + 1] = fill  # the cuts make every second piece a blank
        return self.vocab.decode(np.concatenate(pieces))

    def _lacks(self, method: str, what: str) -> UsageError:
        every = {n: getattr(registry.get("task", n), method) for n in registry.names("task")}
        # who overrides the method can do it
        able = [name for name, own in every.items() if own is not getattr(Task, method)]
        name, can = self.name, f"{', '.join(able) or 'no task'} can"
        learns = [LEARNS[one] for one in LEARNS if getattr(type(self), one) != getattr(Task, one)]
        own = f"it learns from {' and '.join(learns)}; " if learns else ""
        return UsageError(f"--task {name} cannot {what}; {own}{can}")


def framed(parts: list[Ids], cls: int, sep: int) -> tuple[Ids, Ids]:
    """C, each part with an S, and the number of the part each token belongs to."""
    number, stop = np.zeros(1 + len(parts) + sum(map(len, parts)), np.int64), 1
    tokens = number + sep
    tokens[0] = cls
    for i, part in enumerate(parts):
        start, stop = stop, stop + len(part)
        tokens[start:stop] = part
        stop += 1
        number[start:stop] = i
    return tokens, number


def places_of(parts: list[Ids], first: int) -> list[Ids]:
    """The slots of the parts' tokens, the first one at `first`, a separator after each part."""
    sizes = np.array([len(part) for part in parts])
    # each part before takes its tokens and a separator
    starts = first + np.cumsum(sizes + 1) - sizes - 1
    return [start + np.arange(size) for start, size in zip(starts, sizes, strict=True)]


def largest(share: float | Schedule) -> float:
    """The most that a share is at any time: of a schedule its `value`."""
    return share.value if callable(share) else share


def share_at(share: float | Schedule, when: When) -> float:
    """A share at an update. Where it is a schedule, validation and evaluation have that at the end.

    A layout hides one token at least, also where a schedule comes down to 0.
    """
    return share(*when) if callable(share) else share
