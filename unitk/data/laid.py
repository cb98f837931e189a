"""Examples of a task: texts and records of corpora, laid out as slots one by one."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unitk.data.batching import Examples, spread
from unitk.data.corpus.folders import CORPORA, describe
from unitk.data.cuts import Text, When, cut_unbroken
from unitk.data.limits import LEAST_PARTS, UNLIMITED, Extent, explain_misfit, tables_of
from unitk.data.texts import Records, Texts, Windows
from unitk.errors import UsageError, amount, require, show_value
from unitk.slots import Doubles, Example, Ids

Task = Any  # an objective, `unitk.tasks.base.Task`: tasks import data, not the other way round
LOOKED = 10_000
"""The most texts that are encoded in an encoder's own vocabulary before a run; it takes seconds."""


@dataclass(frozen=True)
class Shape:
    """The sizes to which a run cuts texts, and the architecture whose tables they must fit."""

    arch: Any
    options: Any  # of the run, a `unitk.training.config.TrainConfig`

    def repeats(self, weights: Sequence[float], counts: Ids, epoch: int) -> Sequence[float]:
        """How often an epoch has each corpus, given the weights of --data and the numbers of texts.

        The share of a corpus is proportional to its size to the power of the exponent. A schedule
        of the exponent ends with the last epoch (Stickland and Murray 2019, arXiv 1902.02671,
        section 3.2).
        """
        exponent, epochs = self.options.data_exponent, self.options.max_epochs
        if callable(exponent):
            last = epochs and max(epochs - 1, 1)
            require(last is not None, "--data-exponent: a schedule of epochs needs --max-epochs")
            exponent = exponent(epoch, last)
        if exponent == 1:
            return weights
        size = np.asarray(weights) * counts
        # relative to the largest one: no power is too large
        share = np.where(size > 0, (np.maximum(size, 1e-9) / size.max()) ** exponent, 0)
        repeats: Sequence[float] = share * size.sum() / share.sum() / np.maximum(counts, 1)
        return repeats

    def text_size(self, frame: int, epoch: int) -> int:
        """The most tokens of a text in an epoch, without its `frame` special symbols."""
        given, epochs = self.options.block_size, self.options.max_epochs
        table = self.arch.position_limit or UNLIMITED
        try:
            block = given if isinstance(given, int) else round(given(epoch + 1, epochs))
        except UsageError as error:
            raise UsageError(
                f"--block-size: schedule {type(given).__name__} needs the number of epochs: give "
                "--max-epochs"
            ) from error
        require(block > frame, f"--block-size must be above {frame}, the special symbols of a text")
        require(
            block <= table,
            f"--block-size {block} is more than the {table} positions of --arch; "
            f"--arch.max-positions {block} makes room",
        )
        return block - frame


@dataclass(frozen=True)
class Corpora:
    """Corpora of one kind, from which the examples of an epoch are drawn."""

    corpora: Sequence[Any]
    weights: Sequence[float] = (1.0,)
    """How often an epoch has each corpus."""
    seed: int = 0
    """The seed of the cut of texts."""
    carried: bool = False
    """Whether a model reads each text with states that it carries from the one before."""
    few: Few | None = None
    """The only records that are drawn, if not all are."""


class Laid(Examples):
    """The examples of one task over corpora of one kind."""

    method: str  # of the task that lays out an example
    _bounds: Ids
    cut: Any = None
    """How its texts are cut: tasks with equal cuts have the same examples."""
    chosen: Doubles | float = 1.0
    """Factors of the weights of the examples."""

    def __init__(self, task: Task, shape: Shape, drawn: Corpora) -> None:
        self.task = task
        self.shape = shape
        self.corpora = drawn.corpora
        self.weight = drawn.weights
        self.tasks = [task.for_corpus(describe(corpus)) for corpus in self.corpora]
        self.sides = [side for corpus in self.corpora for side in corpus.sides]
        self.tables = tables_of(shape.arch)
        self.copies = task.copies

    @abstractmethod
    def read(self, index: int, when: When) -> tuple[tuple[Any, ...], Sequence[Ids]]:
        """The arguments of the task's layout for an example, and all ids in them."""

    def begin(self, epoch: int) -> None:
        """Begin an epoch: `items` are then its texts or records."""

    def bounds(self, epoch: int) -> Ids:
        self.begin(epoch)
        return self._bounds

    def weights(self, epoch: int) -> Doubles:
        self.begin(epoch)
        repeats = self.shape.repeats(self.weight, self.counts(epoch), epoch)
        return self.items.weights(repeats) * self.chosen

    def draw(self, epoch: int, index: int, rng: np.random.Generator, when: When) -> Example:
        """Lay out an example; raises ValueError for an id or a position that is out of range."""
        self.begin(epoch)
        arguments, ids = self.read(index, when)
        # before it is laid out: layouts look ids up in tables of the vocabulary
        size = len(self.task.vocab)
        if max(int(part.max(initial=0)) for part in ids) >= size:
            where = next(filter(None, (side.first_beyond(size) for side in self.sides)))
            raise ValueError(f"{where} is beyond the vocabulary of {size}")
        task = self.tasks[self.items.locate(index)[0]]
        example = _lay_out(task, self.method, arguments, rng)
        self.check(example, self._bounds[index])
        return example

    def check(self, example: Example, bound: int) -> None:
        """Refuse ids and positions that there are none of, and slots over the bound of an example.

        A plug-in may lay out any.
        """
        task = self.task
        where = f"--task {task.name}: {self.method}"
        longest = max(map(len, example.towers.values()))
        require(
            longest <= bound,
            f"{where} lays out {longest} slots, more than the {bound} of its slots or pair_slots",
        )
        for name, slots in example.towers.items():
            size = len(task.source_vocab if name == "enc" else task.vocab) + len(task.virtual)
            fits = 0 <= slots.token.min(initial=0) and slots.token.max(initial=0) < size
            require(fits, f"{where} lays out ids that are not below {size}, the vocabulary")
        for ask in example.asks:
            if ask.head == "lm" and ask.among is None and len(ask.label):
                least, largest = ask.label.min(), ask.label.max()
                require(
                    0 <= least <= largest < len(task.vocab),
                    f"{where} asks for ids that are not below {len(task.vocab)}, the vocabulary",
                )
        if fault := explain_misfit(example, self.tables):
            raise ValueError(fault)

    def counts(self, epoch: int) -> Ids:
        """How many examples each corpus has."""
        self.begin(epoch)
        return np.diff(self.items.first)


class LaidTexts(Laid):
    """Texts with `frame` special symbols, cut anew in each epoch and laid out for pre-training."""

    method = "pretrain"
    items: Texts

    def __init__(self, task: Task, shape: Shape, frame: int, drawn: Corpora) -> None:
        super().__init__(task, shape, drawn)
        corpora = drawn.corpora
        self.frame = frame
        self.asks = task.asks
        # the sizes of all epochs are checked now, not when the epoch begins
        options = shape.options
        epochs = 1 if isinstance(options.block_size, int) else options.max_epochs or 1
        sizes = [shape.text_size(frame, epoch) for epoch in range(epochs)]
        last = task.last_pos2(max(sizes))
        require(
            last < (shape.arch.max_positions2 or UNLIMITED),
            f"--arch.max-positions2 must be above {last} for spans of --task {task.name} in texts "
            f"of --block-size {max(sizes) + frame}, got {shape.arch.max_positions2}",
        )
        size = sizes[0]
        unbroken = options.blocks == "stream" and not task.separates
        how = task.cut or (cut_unbroken if unbroken else options.blocks)
        self.cut = how, task.copies, task.both_ways
        self.items = Texts(
            corpora,
            blocks=how,
            size=size,
            separator=task.vocab.sep,
            seed=drawn.seed,
            both_ways=task.both_ways,
            carried=drawn.carried,
        )
        documents = sum(corpus.counts.documents for corpus in corpora)
        tokens = sum(corpus.counts.tokens for corpus in corpora)
        self.about = f"{amount(documents, 'documents')} of {tokens:,} tokens{corpora[0].note}"
        notes = list[str]()  # these need a cut, which takes time: only if there may be any
        if how == "line":
            long = sum(int((np.diff(corpus.sentences) > size).sum()) for corpus in corpora)
            if long:
                notes.append(f"{amount(long, 'lines')} cut off at {size} tokens (--block-size)")
        if task.source_vocab is not task.vocab:
            self.begin(0)
            count = len(self.items.lengths)
            notes += _truncation_note(task, count, lambda i: self.items.text(i).parts)
        self.shortened = "; ".join(notes)

    def begin(self, epoch: int) -> None:
        if self.copies:  # which are cut alike
            epoch %= self.copies
        if self.items.epoch != epoch:  # asked for every example
            self.items.begin(epoch, self.shape.text_size(self.frame, epoch))
            self._bounds = self.task.slots(self.items.lengths)

    def read(self, index: int, when: When) -> tuple[tuple[Any, ...], Sequence[Ids]]:
        text = self.items.text(index, when)
        return (text,), text.parts


class LaidRecords(Laid):
    """Pairs or labelled texts, shortened to `max_lengths`."""

    items: Records

    def __init__(
        self, task: Task, shape: Shape, extent: Extent, max_lengths: tuple[int, int], drawn: Corpora
    ) -> None:
        super().__init__(task, shape, drawn)
        kind = CORPORA[drawn.corpora[0].kind]
        self.max_lengths = max_lengths
        self.asks = task.record_asks
        self.method = kind.method
        read = [Windows(c, max_lengths[0]) if c.kind == "spans" else c for c in drawn.corpora]
        self.items = items = Records(read, *max_lengths)
        parts = np.maximum(items.parts, LEAST_PARTS)  # as `limits` has measured
        self._bounds = extent.bound(items.source_lengths, items.target_lengths, parts)
        self.about = self._describe(kind.noun, max_lengths[0], drawn.few)
        if drawn.few:
            self.chosen = drawn.few.chosen
        self.shortened = "; ".join(self._truncation_notes(kind.noun, *max_lengths))

    def _describe(self, noun: str, max_source: int, few: Few | None) -> str:
        """How many records there are, of how many tokens."""
        questions = sum(map(len, self.corpora))
        count = len(self.items.lengths)
        records = amount(count, noun)
        if questions < count:
            windows = f"{count:,} windows of up to {max_source} source tokens (--max-source-len)"
            records = f"{amount(questions, 'questions')} in {windows},"
        about = f"{records} of {self.items.lengths.sum():,} tokens{self.corpora[0].note}"
        return f"{amount(few.count, 'texts')} of each class among {about}" if few else about

    def _truncation_notes(self, noun: str, source: int, target: int) -> Iterator[str]:
        """Messages about records that are shortened to the most tokens of source and target."""
        items = self.items
        task = self.task
        count = len(self.items.lengths)
        limits = f"{source} source tokens (--max-source-len)"
        if self.method == "finetune":  # what is learnt from the others has no tokens
            limits = f"{source} source and {target} target tokens"
            limits += " (--max-source-len, --max-target-len)"
        if short := items.shortened:
            yield f"{short:,} of {count:,} {noun} are shortened to {limits}"
        if task.shortens and (position_limit := task.trained.position_limit):
            longest = np.maximum(items.source_lengths, items.target_lengths)
            if long := int((longest + task.frame > position_limit).sum()):
                yield (
                    f"parts of up to {long:,} of {count:,} {noun} are shortened "
                    f"to the {position_limit} positions of --arch"
                )
        if task.source_vocab is not task.vocab:
            yield from _truncation_note(task, count, lambda i: items.record(i)[0])

    def read(self, index: int, when: When) -> tuple[tuple[Any, ...], Sequence[Ids]]:
        source, target = self.items.record(index)
        labels = len(self.sides) == len(self.corpora)  # which are no ids
        return (source, target), source if labels else [*source, target]


@dataclass(frozen=True)
class Few:
    """A few texts of each class to learn from: the first ones in a permutation of all."""

    count: int
    """Texts of each class."""
    chosen: Doubles
    """1 for the texts that are chosen, and 0 for the others."""

    @classmethod
    def choose(cls, corpora: Sequence[Any], count: int, seed: int) -> Few:
        """Choose among the texts of corpora; raises `UsageError` where there are not enough."""
        form = corpora[0].manifest.get("form", "none")
        require(
            form == "class",
            f"--per-label needs labels of the form class, but those of --data are {form}",
        )
        label = np.concatenate([corpus.values[:, 0] for corpus in corpora])
        order = np.random.default_rng(seed).permutation(len(label))
        chosen = np.zeros(len(label))
        for number, name in enumerate(corpora[0].labels):
            of_class = order[label[order] == number][:count]
            require(
                len(of_class) == count,
                f"--per-label {count}: --data has only {amount(len(of_class), 'texts')} "
                f"of {name!r}",
            )
            chosen[of_class] = 1
        return cls(count, chosen)


def lay_out_made_up(
    task: Task, corpus: Any, parts: list[Ids], words: Ids, rng: np.random.Generator
) -> Example:
    """Lay out a text that is not in the corpus, or a record with `words` as its target.

    It shows the towers and sizes of a task's layouts.
    """
    arguments: tuple[Any, ...] = parts, corpus.placeholder(parts, words)
    if corpus.kind == "text":  # one sentence, nothing of note in it
        notes = np.zeros(sum(map(len, parts)), np.int64)
        arguments = (Text(parts, np.zeros(1, np.int64), notes),)
    return _lay_out(task, CORPORA[corpus.kind].method, arguments, rng)


def _lay_out(task: Task, method: str, arguments: Any, rng: np.random.Generator) -> Example:
    """What a task's method of this name lays out; `UsageError` if a plug-in's gives no example."""
    example: Any = getattr(task, method)(*arguments, rng)
    if not isinstance(example, Example):
        raise UsageError(
            f"--task {task.name}: {method} must return an Example, got {show_value(example)}"
        )
    return example


def _truncation_note(task: Task, count: int, source: Callable[[int], list[Ids]]) -> list[str]:
    """A message about sources that an encoder with its own vocabulary truncates, if any."""
    looked = spread(count, LOOKED)
    few = sum(task.truncates(source(i)) for i in looked.tolist())
    if not few:
        return []
    sample = f" (of {count:,}, a sample)" if count > len(looked) else ""
    position_limit = task.trained.position_limit
    beyond = f", or than {position_limit - task.frame}" if position_limit else ""
    return [
        f"the encoder reads only the beginnings of {few:,} of {len(looked):,} texts{sample}: "
        "in its own vocabulary (--task.source-vocab) "
        f"they have more than twice their tokens{beyond}"
    ]
