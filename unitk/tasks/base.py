"""The interface that every objective has for data, training and decoding."""

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
from unitk.options.fields import COMMA, Checked, Schedule
from unitk.slots import Bools, Example, Floats, Ids, Protocol, Slots, stay, unroll
from unitk.vocab.base import BLANKS, Vocab


@dataclass(frozen=True)
class Encoded:
    """Texts laid out to be understood: heads read the states of some of the slots.

    `example` has no asks but those its objective trains beside.
    """

    example: Example
    tower: str
    """The tower whose states are read."""
    whole: int
    """The slot whose state represents all parts together, such as [CLS]."""
    parts: list[Ids]
    """The slot of each token of each part."""


@dataclass(frozen=True)
class Trained:
    """What a task knows of its data and model, from `open_data`, a checkpoint or a format."""

    labels: tuple[str, ...] = ()  # names of the classes, tags or entities in the data
    pairs: bool = True  # whether its model was trained on pairs; other models continue a prompt
    parts: int = 0  # most parts of a source in the training of its model; 0: unknown
    max_source: int | None = None  # most tokens of a source in the training of its model
    window: tuple[int | None, str] | None = None
    """If its model was trained on windows around answers: their most tokens, and their form."""
    position_limit: int | None = None  # positions of the architecture, where it has a table of them
    corpora: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """For a task that `joins` corpora: name -> the form of its labels, and then their names."""


Pool = Literal["mean", "first", "last"]
Side = Literal["source", "target"]
LEARNS = {
    "pretrain": "texts",
    "finetune": "pairs",
    "classify": "labelled texts",
    "answer": "answers in passages",
    "link": "texts with entities",
}
"""Method of `Task` that lays out examples -> the data that it lays out, for messages."""


class Task:
    """An objective: how texts and pairs are laid out as slots, and how its models decode.

    Subclasses are registered and have a `Config`; layouts are pure functions of their arguments.
    A task does not change: `with_trained` makes a copy.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(Checked):
        """No options."""

        KIND = "task"

    # what its vocabulary, architecture and criterion are and have
    symbols: ClassVar[tuple[str, ...]] = ("pad", "cls", "sep")
    """Special symbols the vocabulary must have."""
    arch: ClassVar[str] = ""  # "": --arch must be given
    criterion: ClassVar[str] = "cross_entropy"  # default components, by registered name
    needs_criterion: str = ""  # the only criterion that can learn its asks; "": any
    needs: tuple[str, ...] = ()
    """Tables of an architecture that layouts need, by the names of the options for their sizes."""
    heads: tuple[str, ...] = ()
    """Heads that the task asks, besides that over the vocabulary, as in `--arch.heads`."""
    virtual: tuple[str, ...] = ()
    """Spellings of input ids beyond the vocabulary, which no output can be: V, V + 1, ..."""
    segments: ClassVar[tuple[int, ...]] = ()
    """For each segment of the layouts, the one of BERT that initialises it, if there are more."""
    source_vocab: Vocab
    """The vocabulary of an encoder; it differs from `vocab` if the option of this name is given."""

    # which texts and records it reads in training, and how they are cut
    frame: int = 2  # special symbols that a layout adds to a text; they count in `--block-size`
    cut: Cutter | None = None
    """How texts are cut from the corpus; None: as `--blocks` says."""
    separates: bool = True
    """Whether a separator is between the documents of a stream."""
    backward: bool = False
    """Whether the task reads texts from their end to their beginning."""
    both_ways: bool = False
    """Whether each text is read from its beginning and, as another example, from its end."""
    copies: int = 0  # epochs after which draws repeat (static masks); 0: they never do
    form: str = ""  # of the labels that it learns from (`FORMS`); "": of any
    fields: tuple[str, ...] = ()
    """The parts that a labelled text must have, in this order; empty: any."""
    counts_parts: ClassVar[bool] = False
    """Whether a labelled text should have as many parts as those of the training."""
    shortens: ClassVar[bool] = False  # whether its layouts truncate sources to the positions
    joins: ClassVar[bool] = False  # whether each corpus of a run may have other labels
    writes: ClassVar[bool] = False  # whether training needs outputs of its model

    # what a checkpoint gives to it, and keeps for it
    trained: Trained = Trained()
    first_rows: dict[str, tuple[str, tuple[int, ...]]]
    """Table -> the table of a checkpoint and its rows that initialise it if it lacks rows."""
    tables: Mapping[str, Floats] = MappingProxyType({})
    """Tensor -> its initial values, which replace those of a checkpoint."""
    table_heads: tuple[str, ...] = ()
    """The `heads` that fine-tuning keeps because inputs are looked up in their tables."""
    files: Mapping[str, str] = MappingProxyType({})
    """File name -> text that checkpoints keep; `Copied` marks the options that name such files."""
    earlier: ClassVar[dict[str, str]] = {}
    """Options that checkpoints of earlier versions lack -> the values that those versions used."""

    # what its models do
    infills: ClassVar[bool] = False  # whether the [MASK]s of a prompt are filled
    from_nothing: ClassVar[bool] = False
    """Whether texts can be generated without a source, from `prompt([])` or an empty canvas."""
    continues: ClassVar[bool] = False
    """Whether outputs go on to `--max-len` if the model was trained without end symbols."""
    pool: Pool = "mean"
    """How the vector of a text is pooled from its states by default (`unitk embed --pool`)."""
    sides: tuple[Side, ...] = ("source",)
    """The kinds of texts that its models embed: two if sources and targets have a tower each."""
    bounds: ClassVar[bool] = False  # whether its loss is only a bound of the likelihood
    estimator: ClassVar[str] = ""  # registered name; "": the protocol gives a text's likelihood
    hides: ClassVar[dict[str, str]] = {}
    """Options that hide words of the input in training -> their values in evaluation."""

    # of tasks that predict labels, numbers or answers: see `Understanding`
    predicts: ClassVar[bool] = False
    head: ClassVar[str] = ""  # the kind of its own head, and the name of its ask
    untrained: ClassVar[bool] = False
    """Whether it can use a model that was only trained with the objective in its `layout`."""

    def __init__(self, config: Any, vocab: Vocab) -> None:
        self.config = config
        self.vocab = vocab
        self.source_vocab = vocab
        self.first_rows = {"embed.segments.weight": ("embed.segments.weight", self.segments)}
        vocab.require(self.symbols, f"task {registry.name_of('task', type(self))}")

    @classmethod
    def component(cls, kind: str, config: Any) -> str:
        """The default "arch" or "criterion" beside these options, by registered name."""
        return cls.arch if kind == "arch" else cls.criterion

    def with_trained(self, **known: Any) -> Self:
        """A copy of the task with these fields of `trained`, or the task itself if none changes."""
        trained = replace(self.trained, **known)
        return self if trained == self.trained else self.with_attributes(trained=trained)

    def with_attributes(self, **attributes: Any) -> Self:
        """A copy of the task with other attributes; its cached properties are computed again."""
        task = copy.copy(self)
        kind = type(self)
        # the value of a cached property is stored in the instance under the same name
        cached = [n for n in vars(self) if isinstance(getattr(kind, n, None), cached_property)]
        for name in cached:
            del vars(task)[name]
        vars(task).update(attributes)
        return task

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
        """The registered name of the driver that writes outputs; "" if the task has none."""
        return "steps" if self.protocol else "once" if self.infills else ""

    @property
    def generates(self) -> bool:
        """Whether its models write whole outputs, and do not only fill blanks in one pass."""
        return self.driver not in ("", "once")

    @cached_property
    def asks(self) -> Mapping[str, float | Schedule]:
        """The weight of the mean of each ask in the loss; 1 for those that are not listed."""
        return {}

    @property
    def record_asks(self) -> Mapping[str, float | Schedule]:
        """The weight of the mean of each ask in the loss of pairs and labelled texts."""
        return self.asks

    @property
    def blank(self) -> int:
        """The id that marks a blank in prompts."""
        return self.vocab.mask

    @cached_property
    def words(self) -> Ids:
        """Ids that are no special symbols."""
        vocab = self.vocab
        symbols = [*vocab.symbols.values(), *vocab.sentinels]
        return np.setdiff1d(np.arange(vocab.model.size), symbols)

    def for_corpus(self, manifest: Mapping[str, Any]) -> Task:
        """The task for a corpus with this manifest, which also has the corpus' `name`."""
        return self

    def slots(self, n: Ids) -> Ids:
        """The most slots that `pretrain` makes of texts of `n` tokens."""
        return n + self.frame

    def last_pos2(self, n: int) -> int:
        """The largest second position that `pretrain` gives to texts of `n` tokens."""
        return 0

    def pair_slots(self, source: Ids, target: Ids, parts: Ids) -> Ids | None:
        """The most slots of pairs with these tokens of source and target, and parts of a source.

        None if the number depends on these lengths alone: it is then measured on a few pairs.
        """
        return None

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        """Lay out a text with its own labels."""
        raise self._unsupported("pretrain", "pre-train on texts")

    def finetune(self, source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        """Lay out a source (its parts) with the target as labels."""
        raise self._unsupported("finetune", "fine-tune on pairs")

    def classify(self, parts: list[Ids], labels: Any, rng: np.random.Generator) -> Example:
        """Lay out one text or several with a class [1], a number [1], or a tag for each part.

        The parts of a text with tags are its words; `trained.labels` are the names of the labels.
        """
        raise self._unsupported("classify", "be trained on labelled texts")

    def answer(self, parts: list[Ids], span: Ids, rng: np.random.Generator) -> Example:
        """Lay out a question and a passage; `span` [2] are the answer's tokens, -1 -1 for none."""
        raise self._unsupported("answer", "be trained on answers in passages")

    def link(self, parts: list[Ids], links: Ids, rng: np.random.Generator) -> Example:
        """Lay out a text with links to entities: rows of start, stop and the entity's number."""
        raise self._unsupported("link", "be trained on texts with entities")

    def measure(self, model: Any, batch: Any) -> tuple[Mapping[str, Any], Mapping[str, float]]:
        """Further figures of a validation batch: sums by NAME/PART, and their divisors by NAME."""
        return {}, {}

    def frame_parts(self, parts: list[Ids]) -> tuple[Ids, Ids]:
        """Parts between the task's symbols, and the number of the part each token belongs to."""
        return frame_parts(parts, self.vocab.cls, self.vocab.sep)

    def reading(self, source: list[Ids]) -> Slots:
        """Lay out a source that is read and not continued, for the encoder if there is one."""
        tokens, part = self.frame_parts(source)
        return stay(tokens, pos=np.arange(len(tokens)), seg=np.minimum(part, 1))

    def reading_as(self, side: str) -> Self:
        """The task whose `to_embed` lays out texts as one of its `sides`."""
        require(
            side in self.sides,
            f"--side {side}: this model reads all texts alike (two towers: task contrastive)",
        )
        return self

    def to_embed(self, source: list[Ids]) -> Example:
        """Lay out a source for `Model.embed`, in a tower that is always called "enc"."""
        return Example({"enc": self.reading(source)})

    def lay_out_parts(self, parts: list[Ids]) -> Encoded:
        """Lay out texts for fine-tuning for understanding: C a S b S, with the head at C.

        Devlin et al. 2019, section 4 and figure 4.
        """
        return Encoded(Example({"x": self.reading(parts)}), "x", 0, places_of(parts, 1))

    def truncates(self, source: list[Ids]) -> bool:
        """Whether an encoder with its own vocabulary reads only the beginning of a source."""
        return False

    def prompt(self, source: list[Ids]) -> Example:
        """Lay out a source up to the slot that predicts the first word of the output; no asks."""
        raise self._unsupported("prompt", "generate")

    def likelihood(self, before: Ids, text: Ids) -> Example:
        """Lay out a text after its context `before`; its tokens are the labels of the only ask.

        Their log-probabilities sum to that of the text; no end symbol is asked for. A task without
        a protocol hides each token instead (`decoding/likelihood.py`).
        """
        kind = Task if self.trained.pairs else type(self)
        return kind.lay_out_continuation(self, before, text)

    def lay_out_continuation(self, before: Ids, text: Ids) -> Example:
        """`likelihood` of a model of texts; one of pairs takes `before` as a source instead."""
        assert self.protocol is not None
        return unroll(self.prompt([before]), self.protocol, text)

    def length(self, source: list[Ids]) -> int | None:
        """The number of words that an output must have, if the source determines it."""
        return None

    def text(self, source: list[Ids], written: Ids) -> str:
        """The written ids as text; for a source with blanks, the source with its blanks filled."""
        blanks, fills = self.fills(source, written)
        if len(blanks):
            return self.fill_in(self.join(source), blanks, fills)
        end = self.protocol.end if self.protocol else -1
        return self.vocab.decode(written[written != end])

    def fills(self, source: list[Ids], written: Ids) -> tuple[Ids, list[Ids]]:
        """The places of the blanks in a joined source, and the ids written into each of them.

        Both are empty if the source has no blank, or if the task writes the whole text anew.
        """
        return np.zeros(0, np.int64), []

    def join(self, source: list[Ids]) -> Ids:
        """The parts of a source with a separator between them; empty if there is none."""
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
        require(places.size > 0, f"task {self.name} fills [MASK]s, but a source has none")
        return places

    def fill_in(self, ids: Ids, blanks: Ids, fills: list[Ids]) -> str:
        """`ids` as text, fill i in the place of `blanks[i]`; a blank without a fill stays."""
        pieces = np.split(ids, np.stack([blanks, blanks + 1], axis=1).ravel())
        for i, fill in enumerate(fills[: len(blanks)]):
            pieces[2 * i + 1] = fill  # the cuts make every second piece a blank
        return self.vocab.decode(np.concatenate(pieces))

    def _unsupported(self, method: str, what: str) -> UsageError:
        # who overrides the method can do it
        able = [
            name
            for name in registry.names("task")
            if getattr(registry.get("task", name), method) is not getattr(Task, method)
        ]
        kind = type(self)
        learns = [
            data for name, data in LEARNS.items() if getattr(kind, name) != getattr(Task, name)
        ]
        from_data = f"it learns from {' and '.join(learns)}; " if learns else ""
        can = ", ".join(able) or "no task"
        return UsageError(f"--task {self.name} cannot {what}; {from_data}{can} can")


def frame_parts(parts: list[Ids], cls: int, sep: int) -> tuple[Ids, Ids]:
    """C, each part with an S, and the number of the part each token belongs to."""
    number = np.zeros(1 + len(parts) + sum(map(len, parts)), np.int64)
    stop = 1
    tokens = number + sep
    tokens[0] = cls
    for i, part in enumerate(parts):
        start = stop
        stop = stop + len(part)
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


def max_share(share: float | Schedule) -> float:
    """The most that a share is at any time: of a schedule its `value`."""
    return share.value if callable(share) else share


def share_at(share: float | Schedule, when: When) -> float:
    """A share at an update. Where it is a schedule, validation and evaluation have that at the end.

    A layout hides one token at least, also where a schedule comes down to 0.
    """
    return share(*when) if callable(share) else share


def split_layout(text: str) -> tuple[str, list[tuple[str, str, str]]]:
    """The objective of `--task.layout NAME:option=value,...`, and each option, its = and value."""
    name, _, assignments = text.partition(":")
    pairs = (pair.partition("=") for pair in COMMA.split(assignments) if pair)
    return name, [
        (key.strip().replace("-", "_"), equals, value.replace("\\,", ","))
        for key, equals, value in pairs
    ]
