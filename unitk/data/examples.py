"""From corpora to examples: the kind of the corpora decides what a task lays out."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from unitk.data.batching import Examples, Feed, Update, spread
from unitk.data.corpus.corpus import Corpus
from unitk.data.corpus.folders import check_alike, corpus_vocab, open_corpus, part, train_parts
from unitk.data.corpus.labelled import Spans
from unitk.data.cuts import When, cut_unbroken
from unitk.data.kinds import KINDS, Source, Task, towers_fault
from unitk.data.limits import (
    PARTS,
    UNLIMITED,
    Extent,
    lay_out,
    measure,
    misfit,
    source_and_target,
    tables_of,
)
from unitk.data.mixture import mixed
from unitk.data.texts import Records, Texts, Windows
from unitk.errors import DataError, UsageError, require
from unitk.options.config import Parsed, flag
from unitk.options.settings import Origin
from unitk.slots import Example, Ids, one_by_one
from unitk.vocab.base import Vocab

LOOKED = 10_000
"""Texts that an encoder's own vocabulary is tried on before a run, which takes seconds."""


@dataclass(frozen=True)
class Data:
    """The data of a run."""

    kind: str  # one of `KINDS`
    vocab: Vocab
    task: Any  # a `unitk.tasks.base.Task`, the first one of a mixture
    heads: tuple[str, ...]  # what the tasks ask beside words
    writes: bool  # whether a task has its model write while it trains
    train: Source
    valid: dict[str, Source]
    fingerprint: str  # of the corpora's contents and weights
    valid_fingerprints: dict[str, str]
    parts: int  # of pairs and labelled texts: the most parts of a source; else 0

    @property
    def about(self) -> str:
        """The kind of training, in words."""
        return KINDS[self.kind].about

    def updates(
        self, feed: Feed, epoch: int, cursor: int, step: int = 0, total: int | None = None
    ) -> Iterator[tuple[Update, int, int]]:
        """The feed's updates, each with the number of its tokens (special symbols not counted), and
        of its words, 0 where the corpora do not say."""
        for update in feed.updates(epoch, cursor, step, total):
            words = self.train.words()[update.ids].sum() if self.train.words else 0
            yield update, int(self.train.lengths()[update.ids].sum()), int(words)

    def updates_until(self, feed: Feed, words: int) -> int:
        """How many updates read this many words."""
        step = seen = epoch = 0
        while self.train.words:
            stops = np.array((plan := feed.plan(epoch)).stops(feed.size))
            ends = seen + self.train.words()[plan.order].cumsum()[stops - 1]
            if ends[-1] >= words:
                return step + int(ends.searchsorted(words)) + 1
            require(ends[-1] > seen, "--max-words: the training data has no words")
            step, seen, epoch = step + len(ends), int(ends[-1]), epoch + 1
        raise AssertionError("open_data refuses data without words")


def open_data(parsed: Parsed) -> Data:
    """Open and check the corpora of a run; this takes milliseconds, whatever their size."""
    options = parsed.main
    places = options.weighted_data
    trained = [(one, weight) for place, weight in places for one in train_parts(place)]
    weights = [weight for _, weight in trained]
    judged = {name: part(place, "valid") or place for name, place in options.named_valid}
    if not options.valid and (found := part(places[0][0], "valid")):  # none given: the data's own
        judged = {"valid": found}
    folders = [folder for folder, _ in trained] + [*judged.values()]
    named_by = ["--data"] * len(trained) + ["--valid"] * len(judged)
    opened = [_opened(*one, options.resume) for one in zip(named_by, folders, strict=True)]
    check_alike(folders, opened)
    for folder, one in zip(folders, opened, strict=True):
        if not one.holds:
            raise DataError(f"{folder} holds nothing")
        if one.manifest.get("labels") != opened[0].manifest.get("labels"):
            raise DataError(f"{folder} has other labels than {folders[0]}: preprocess them at once")
    if options.counts_words:
        _check_words(trained, opened)
    corpora, rest = opened[: len(trained)], opened[len(trained) :]
    vocab, kind = corpus_vocab(folders[0]), opened[0].kind
    named = parsed.mixture or {parsed.components["task"].name: parsed.components["task"]}
    # a task may have ids beyond those of the corpus; all of a mixture have them then
    vocab = max((one.made_from(one.config, vocab).vocab for one in named.values()), key=len)
    tasks: dict[str, Task] = {n: one.made_from(one.config, vocab) for n, one in named.items()}
    for name, task in tasks.items():
        task.labels = tuple(opened[0].manifest.get("labels", ()))
        task.window = opened[0].manifest.get("window")
        task.room = parsed.components["arch"].config.room
        for corpus in opened:
            _check_task(name, task, parsed, corpus)
    if kind == "text" and parsed.settings.given("blocks", Origin.FLAG):
        uncut = any(task.cut is None for task in tasks.values())
        require(uncut, f"--blocks has no effect: task {name} cuts sentence pairs itself")
    make = _makers(tasks, parsed, kind, corpora)

    def source(some: Sequence[Any], weights: Sequence[float], seed: int, carried: bool) -> Source:
        made = [one(some, weights, seed, carried) for one in make]
        if not parsed.mixture:
            return made[0]
        return mixed(dict(zip(tasks, made, strict=True)), parsed.mixture)

    train = source(corpora, weights, options.seed, options.stateful_rows > 0)
    if options.per_label:
        train = _few(train, corpora, options.per_label, options.seed)
    content = [f"{one.fingerprint}={weight}" for one, weight in zip(corpora, weights, strict=True)]
    return Data(
        kind,
        vocab,
        next(iter(tasks.values())),
        tuple(dict.fromkeys(head for task in tasks.values() for head in task.heads)),
        any(task.writes for task in tasks.values()),
        train,
        # validation is drawn and cut from (0, 0, example), so that curves of all runs compare
        {name: source([one], [1.0], 0, False) for name, one in zip(judged, rest, strict=True)},
        hashlib.sha256("\n".join(content).encode()).hexdigest(),
        {name: corpus.fingerprint for name, corpus in zip(judged, rest, strict=True)},
        0 if kind == "text" else max(int(one.source_parts.max(initial=1)) for one in corpora),
    )


def _opened(option: str, folder: Path, resumes: bool) -> Any:
    try:
        return open_corpus(folder)
    except DataError as error:
        if folder.exists():
            raise
        cure = f"; if it was moved, give its new path as {option}" if resumes else ""
        raise DataError(f"{option} {error}{cure}") from error


def _check_task(name: str, task: Task, parsed: Parsed, corpus: Any) -> None:
    arch, criterion = parsed.components["arch"].config, parsed.components["criterion"].name
    asked = f"--criterion {criterion} cannot learn what --task {name} asks"
    only = task.needs_criterion
    require(only in ("", criterion), f"{asked}; --criterion {only} can")
    # what it lays out of a few words shows its towers
    words, rng = np.full(4, task.vocab.unk), np.random.default_rng(0)
    made_up = corpus.made_up([words], words)
    read = task.for_corpus(corpus.manifest)
    short = lay_out(KINDS[corpus.kind], read, [words], made_up, rng)
    if set(short.towers) != set(arch.towers):
        # --init-from brings the architecture of its checkpoint
        started = "--init-from" if vars(parsed.main).get("init_from") else ""
        own = parsed.components["arch"].name
        fault = towers_fault(name, task, set(short.towers), own, set(arch.towers), started)
        raise UsageError(fault)
    orderly = all(one_by_one(slots.table) for slots in short.towers.values())
    reads = f"--arch {parsed.components['arch'].name} reads words one after the other"
    require(orderly or not arch.sequential, f"{reads}, but task {name} lays them out otherwise")
    beyond = f"task {name} needs --arch.num-virtual {len(task.virtual)}"
    require(len(task.virtual) <= arch.num_virtual, f"{beyond} for {', '.join(task.virtual)}")
    for need in task.needs:
        enough = getattr(arch, need) > 0 or need in arch.spared
        require(enough, f"task {name} needs {flag(f'arch.{need}')} above 0")
    if parsed.settings.given("arch.heads", Origin.FLAG):  # others are added
        for head in task.heads:
            found = f"--arch.heads are {','.join(arch.heads) or 'none'}"
            require(head in arch.heads, f"task {name} asks {head}, but {found}: add it")
    form = corpus.manifest.get("form", "none")
    wanted = f"task {name} learns from labels of the form {task.form}, but those of --data are"
    require(task.form in ("", form), f"{wanted} {form} (unitk preprocess --labels)")
    if task.fields:
        fits = min(corpus.source_parts) >= len(task.fields) and (
            form == "choice" or max(corpus.source_parts) == len(task.fields)
        )
        names = ",".join(task.fields)
        parts = f"those of --data have other parts (unitk preprocess --source-field {names})"
        require(fits, f"task {name} reads texts of {len(task.fields)} parts, but {parts}")
    enough = arch.num_segments == 0 or arch.num_segments >= len(task.segments)
    require(enough, f"task {name} needs --arch.num-segments {len(task.segments)}")
    if fault := misfit(replace(short, inputs={}), tables_of(arch)):
        raise UsageError(f"{corpus.path}: {fault}")


def _makers(
    tasks: dict[str, Task], parsed: Parsed, kind: str, corpora: Sequence[Any]
) -> list[Callable[[Sequence[Any], Sequence[float], int, bool], Source]]:
    """For each task, the function that makes its examples from corpora, weights and a seed, and
    whether a model carries anything from text to text."""
    options, arch = parsed.main, parsed.components["arch"].config
    if kind == "text":
        frame = max(task.frame for task in tasks.values())  # mixed tasks see the same texts
        return [partial(_texts, task, frame, arch, options) for task in tasks.values()]
    given = options.max_source_len, options.max_target_len
    counts = "source_lengths", "target_lengths", "source_parts"
    longest = [max(int(getattr(one, n).max(initial=1)) for one in corpora) for n in counts]

    def made_up(task: Task, parts: list[Ids], words: Ids, rng: np.random.Generator) -> Example:
        return lay_out(KINDS[kind], task, parts, corpora[0].made_up(parts, words), rng)

    layouts = {name: partial(made_up, task) for name, task in tasks.items()}
    extents = {
        name: measure(name, layouts[name], task.vocab.unk, task.pair_slots)
        for name, task in tasks.items()
    }
    limits = [
        (given[0] or UNLIMITED, longest[1])  # not what train has: it may be shorter than valid
        if tasks[name].shortens
        else source_and_target(extent, arch, longest, given)
        for name, extent in extents.items()
    ]
    # records are shortened once, to what suits every task
    most = min(source for source, _ in limits), min(target for _, target in limits)
    # the longest record, laid out: other tables (GLM: places within a blank) are checked as well
    for name, task in tasks.items():
        if task.shortens:
            continue
        words = [np.full(n, task.vocab.unk) for n in (min(most[0], longest[0]), most[1])]
        example = layouts[name](words[:1], words[1], np.random.default_rng(0))
        require(
            not (fault := misfit(example, tables_of(arch))),
            f"a source of {len(words[0])} and a target of {len(words[1])} tokens do not fit:"
            f" {fault}; lower --max-source-len or --max-target-len",
        )
    return [partial(_records, task, extents[n], arch, most) for n, task in tasks.items()]


def _few(source: Source, corpora: Sequence[Any], per_label: int, seed: int) -> Source:
    """This many texts of each class: the first ones in a permutation of all."""
    form = corpora[0].manifest.get("form", "none")
    wanted = f"--per-label needs labels of the form class, but those of --data are {form}"
    require(form == "class", wanted)
    label = np.concatenate([one.values[:, 0] for one in corpora])
    order, kept = np.random.default_rng(seed).permutation(len(label)), np.zeros(len(label))
    for number, name in enumerate(corpora[0].labels):
        own = order[label[order] == number][:per_label]
        enough = f"--per-label {per_label}: --data has only {len(own)} texts of {name!r}"
        require(len(own) == per_label, enough)
        kept[own] = 1
    every = source.examples.weights
    examples = replace(source.examples, weights=lambda epoch: every(epoch) * kept)
    about = f"{per_label} texts of each class among {source.about}"
    return replace(source, examples=examples, about=about)


def _check_words(trained: list[tuple[Path, float]], opened: Sequence[Any]) -> None:
    what = "--max-words and --save-at-words count the words of texts"
    for (folder, _), corpus in zip(trained, opened, strict=False):
        require(corpus.kind == "text", f"{what}, but {folder} holds {corpus.kind}")
        if not corpus.has_words:
            lacks = f"{folder} does not say how many its sentences have"
            raise DataError(f"{what}, but {lacks}: run unitk preprocess again")


def _text_size(options: Any, arch: Any, frame: int, epoch: int) -> int:
    """The most tokens of a text in an epoch, without special symbols."""
    table, name, given = arch.room or UNLIMITED, flag("block_size"), options.block_size
    try:
        block = given if isinstance(given, int) else round(given(epoch + 1, options.max_epochs))
    except UsageError as error:
        what = f"schedule {type(given).__name__} needs the number of epochs"
        raise UsageError(f"{name}: {what}: give --max-epochs") from error
    require(block > frame, f"{name} must be above {frame}, the special symbols of a text")
    require(
        block <= table,
        f"{name} {block} is more than the {table} positions of --arch;"
        f" --arch.max-positions {block} makes room",
    )
    return block - frame


def _texts(
    task: Task,
    frame: int,
    arch: Any,
    options: Any,
    corpora: Sequence[Corpus],
    weights: Sequence[float],
    seed: int,
    carried: bool,
) -> Source:
    given, size = options.block_size, partial(_text_size, options, arch, frame)
    # what an epoch cannot have is refused now, not when it comes
    for epoch in range(1 if isinstance(given, int) else options.max_epochs or 1):
        size(epoch)
    unbroken = options.blocks == "stream" and not task.separates
    how = task.cut or (cut_unbroken if unbroken else options.blocks)
    texts = Texts(
        corpora,
        blocks=how,
        size=size(0),
        separator=task.vocab.sep,
        seed=seed,
        both_ways=task.both_ways,
        carried=carried,
    )
    own, tables = [task.for_corpus(one.manifest) for one in corpora], tables_of(arch)

    def of(epoch: int) -> Texts:
        epoch = epoch % task.copies if task.copies else epoch  # copies are cut alike
        if texts.epoch != epoch:  # asked for every example
            texts.begin(epoch, size(epoch))
        return texts

    def draw(epoch: int, i: int, rng: np.random.Generator, when: When) -> Example:
        text = of(epoch).text(i, when)
        task = own[texts.place(i)[0]]
        return _checked(text.parts, task, corpora, tables, lambda: task.pretrain(text, rng))

    examples = Examples(
        bounds=lambda epoch: task.slots(of(epoch).lengths),
        weights=lambda epoch: of(epoch).weights(weights),
        draw=draw,
        copies=task.copies,
        asks=task.asks,
    )
    notes = _cut_lines(corpora, size(0)) if how == "line" else []
    if task.source_vocab is not task.vocab:
        notes += _truncated(task, len(of(0).lengths), lambda i: of(0).text(i).parts)
    return Source(
        examples,
        lambda: texts.lengths,
        f"{sum(c.num_documents for c in corpora):,} documents of"
        f" {sum(c.num_tokens for c in corpora):,} tokens{corpora[0].note}",
        (lambda: texts.words) if all(c.has_words for c in corpora) else None,
        "; ".join(notes),
        cut=(how, task.copies, task.both_ways),
        counts=lambda epoch: np.diff(of(epoch).first),
        num_tokens=lambda: sum(one.num_tokens for one in texts.cuts),
    )


def _records(
    task: Task,
    extent: Extent,
    arch: Any,
    most: tuple[int, int],
    corpora: Sequence[Any],
    weights: Sequence[float],
    seed: int,
    carried: bool,
) -> Source:
    kind = KINDS[corpora[0].kind]
    read = [Windows(one, most[0]) if isinstance(one, Spans) else one for one in corpora]
    records = Records(read, *most)
    lengths = records.source_lengths + records.target_lengths
    parts = np.maximum(records.parts, PARTS)  # as `limits` has measured
    bounds = extent.bound(records.source_lengths, records.target_lengths, parts)
    sides = [side for corpus in corpora for side in corpus.token_files]
    tables, own = tables_of(arch), [task.for_corpus(one.manifest) for one in corpora]

    def draw(epoch: int, i: int, rng: np.random.Generator, when: When) -> Example:
        source, target = records.record(i)
        task = own[records.place(i)[0]]
        return _checked(
            [*source, *([target] if len(sides) > len(corpora) else [])],
            task,
            sides,
            tables,
            lambda: lay_out(kind, task, source, target, rng),
        )

    examples = Examples(
        bounds=lambda epoch: bounds,
        weights=lambda epoch: records.weights(weights),
        draw=draw,
        copies=task.copies,
        asks=task.record_asks,
    )
    questions = sum(map(len, corpora))
    cut = f"{questions:,} questions in " * (questions < len(lengths))
    limits = f"{most[0]} source"
    if kind.method == "finetune":  # what is learnt from the others has no tokens
        limits += f" and {most[1]} target tokens (--max-source-len, --max-target-len)"
    else:
        limits += " tokens (--max-source-len)"
    notes = list[str]()
    if few := records.shortened:
        notes += [f"{few:,} of {len(lengths):,} {kind.noun} are shortened to {limits}"]
    if task.source_vocab is not task.vocab:
        notes += _truncated(task, len(lengths), lambda i: records.record(i)[0])
    noun = f"windows of up to {most[0]} source tokens (--max-source-len)," if cut else kind.noun
    return Source(
        examples,
        lambda: lengths,
        f"{cut}{len(lengths):,} {noun} of {lengths.sum():,} tokens{corpora[0].note}",
        None,
        "; ".join(notes),
        most,
    )


def _cut_lines(corpora: Sequence[Corpus], size: int) -> list[str]:
    """How many lines are longer than a block, as a message."""
    long = sum(int((np.diff(corpus.sentences) > size).sum()) for corpus in corpora)
    return [f"{long:,} lines are cut off at {size} tokens (--block-size)"] * (long > 0)


def _truncated(task: Task, count: int, source: Callable[[int], list[Ids]]) -> list[str]:
    """How many sources an encoder with its own vocabulary does not read whole, as a message."""
    looked = spread(count, LOOKED)
    few = sum(task.truncates(source(i)) for i in looked.tolist())
    sample = f" (of {count:,}, a sample)" * (count > len(looked))
    most = f", or than {task.room - task.frame}" * bool(task.room)
    why = (
        f"in its own vocabulary (--task.source-vocab) they have more than twice their tokens{most}"
    )
    what = f"the encoder reads only the beginnings of {few:,} of {len(looked):,} texts{sample}"
    return [f"{what}: {why}"] * (few > 0)


def _checked(
    parts: list[Ids],
    task: Task,
    corpora: Sequence[Corpus],
    tables: dict[str, list[int]],
    lay_out: Callable[[], Example],
) -> Example:
    """The example, or ValueError (which names it further up) for a wild id or position."""
    # before it is laid out: layouts look ids up in tables of the vocabulary
    if max(int(part.max(initial=0)) for part in parts) >= len(task.vocab):
        found = (corpus.first_beyond(len(task.vocab)) for corpus in corpora)
        where = next(filter(None, found))
        raise ValueError(f"{where} is beyond the vocabulary of {len(task.vocab)}")
    example = lay_out()
    if fault := misfit(example, tables):
        raise ValueError(fault)
    return example
