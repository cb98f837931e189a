"""From corpora to examples: the kind of the corpora decides what a task lays out."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from unitk import registry
from unitk.data import limits
from unitk.data.batching import Examples, Feed, Update
from unitk.data.corpus import folders
from unitk.data.corpus.columns import WORDS
from unitk.data.laid import Corpora, Few, Laid, LaidRecords, LaidTexts, Shape, Task, lay_out_made_up
from unitk.data.mixture import Mixed
from unitk.errors import DataError, UsageError, require
from unitk.options.config import Component, Parsed, flag
from unitk.options.settings import Origin
from unitk.slots import reads_one_by_one
from unitk.vocab.base import Vocab


@dataclass(frozen=True)
class Data:
    """The data of a run."""

    kind: str  # one of `CORPORA`
    vocab: Vocab
    task: Any  # a `unitk.tasks.base.Task`, the first one of a mixture
    heads: tuple[str, ...]  # what the tasks ask beside words
    writes: bool  # whether a task has its model write while it trains
    train: Examples
    valid: dict[str, Examples]
    fingerprint: str  # of the corpora's contents and weights
    valid_fingerprints: dict[str, str]
    parts: int  # of pairs and labelled texts: the most parts of a source; else 0

    @property
    def about(self) -> str:
        """The kind of training, in words."""
        return folders.CORPORA[self.kind].about

    def updates(
        self, feed: Feed, epoch: int, cursor: int, step: int = 0, total: int | None = None
    ) -> Iterator[tuple[Update, int, int]]:
        """Yield the feed's updates, each with its number of tokens and of words.

        Special symbols do not count as tokens; words are 0 if the corpora do not count them.
        """
        for update in feed.updates(epoch, cursor, step, total):
            items = self.train.items
            ids = update.ids
            words = 0 if items.words is None else int(items.words[ids].sum())
            yield update, int(items.tokens[ids].sum()), words

    def updates_until(self, feed: Feed, words: int) -> int:
        """The number of updates after which this many words have been read."""
        step = read = epoch = 0
        while True:
            plan = feed.plan(epoch)
            stops = np.array(plan.stops(feed.size))
            counts = self.train.items.words
            assert counts is not None, "open_data refuses data without words"
            ends = read + counts[plan.order].cumsum()[stops - 1]
            if ends[-1] >= words:
                return step + int(ends.searchsorted(words)) + 1
            require(ends[-1] > read, "--max-words: the training data has no words")
            step = step + len(ends)
            read = int(ends[-1])
            epoch += 1


def corpora_of(
    options: Any, joins: bool = False
) -> tuple[list[tuple[Path, float]], dict[str, Path]]:
    """The corpora of training with their weights, and those of validation by name.

    Where the task `joins` corpora, each is validated on its own.
    """
    places = options.weighted_data
    trained = [(path, weight) for place, weight in places for path in train_parts(place)]
    if options.valid:
        return trained, {
            name: folders.part(place, "valid") or place for name, place in options.named_valid
        }
    # the data's own
    named = {"valid": places[0][0]}
    if joins:
        named = {place.absolute().name: place for place, _ in places}
    judged = {name: folders.part(place, "valid") for name, place in named.items()}
    return trained, {name: path for name, path in judged.items() if path}


def train_parts(folder: Path) -> list[Path]:
    """A corpus itself, or the corpora in a folder that are for training (shards)."""
    for foreign in folders.formats():
        if foreign.find(folder / "train"):  # of ours there is one: `unitk merge` joins shards
            return foreign.shards(folder)
    return [folders.part(folder, "train") or folder]


def open_data(parsed: Parsed) -> Data:
    """Open and check the corpora of a run; this takes milliseconds, whatever their size."""
    options = parsed.main
    arch = parsed.components["arch"].config
    named = parsed.mixture or {parsed.components["task"].name: parsed.components["task"]}
    joins = any(component.made_from.joins for component in named.values())
    require(not (joins and parsed.mixture), "--task: a task that joins corpora mixes with no other")
    trained, judged = corpora_of(options, joins)
    corpora = [_open_named("--data", folder, options.resume) for folder, _ in trained]
    valid = {name: _open_named("--valid", at, options.resume) for name, at in judged.items()}
    opened = [*corpora, *valid.values()]
    kind = corpora[0].kind
    folders.check_alike(opened, forms=not joins)
    for corpus in opened:
        if not corpus.has_texts:
            raise DataError(f"{corpus.path} holds nothing")
    if options.counts_words:
        _check_words(corpora)
    known = _labels_of_each(corpora, valid.values()) if joins else _labels_of_all(opened)
    tasks, vocab = _make_tasks(named, parsed, folders.corpus_vocab(trained[0][0]), opened, known)
    _check_idle(parsed, tasks, corpora)
    layouts = Layouts.of(tasks, parsed.mixture, Shape(arch, options), corpora)
    few = Few.choose(corpora, options.per_label, options.seed) if options.per_label else None
    weights = [weight for _, weight in trained]
    carried = options.stateful_rows > 0
    content = [f"{c.fingerprint}={weight}" for c, weight in zip(corpora, weights, strict=True)]
    return Data(
        kind=kind,
        vocab=vocab,
        task=next(iter(tasks.values())),
        heads=tuple(dict.fromkeys(head for task in tasks.values() for head in task.heads)),
        writes=any(task.writes for task in tasks.values()),
        train=layouts.examples(Corpora(corpora, weights, options.seed, carried, few)),
        # validation is drawn and cut from (0, 0, example), so that curves of all runs compare
        valid={name: layouts.examples(Corpora([corpus])) for name, corpus in valid.items()},
        fingerprint=hashlib.sha256("\n".join(content).encode()).hexdigest(),
        valid_fingerprints={name: corpus.fingerprint for name, corpus in valid.items()},
        parts=0 if kind == "text" else max(int(c.source_parts.max(initial=1)) for c in corpora),
    )


def _make_tasks(
    named: Mapping[str, Component],
    parsed: Parsed,
    vocab: Vocab,
    opened: Sequence[Any],
    known: Mapping[str, Any],
) -> tuple[dict[str, Task], Vocab]:
    """Make the tasks of a run, check them against its corpora, and return their vocabulary too.

    `known` are the labels of the data, as fields of `Trained`.
    """
    # a task may have ids beyond those of the corpus; all tasks of a mixture get them
    vocab = max((c.made_from(c.config, vocab).vocab for c in named.values()), key=len)
    arch = parsed.components["arch"].config
    window = opened[0].manifest.get("window")
    tasks: dict[str, Task] = {}
    for name, component in named.items():
        task = component.made_from(component.config, vocab)
        task = task.with_trained(window=window, position_limit=arch.position_limit, **known)
        for corpus in opened:
            _check_task(name, task, parsed, corpus)
        tasks[name] = task
    return tasks, vocab


@dataclass(frozen=True)
class Layouts:
    """How the tasks of a run lay out corpora."""

    tasks: Mapping[str, Task]
    mixture: Mapping[str, Component]  # their shares, if there are several
    shape: Shape
    extents: Mapping[str, limits.Extent]
    """Task -> how long records become."""
    max_lengths: tuple[int, int]
    """The most tokens of a source and of a target: what suits every task."""

    @classmethod
    def of(
        cls,
        tasks: Mapping[str, Task],
        mixture: Mapping[str, Component],
        shape: Shape,
        corpora: Sequence[Any],
    ) -> Layouts:
        """Measure how long records such as those of the corpora become in the tasks' layouts."""
        if corpora[0].kind == "text":
            return cls(tasks, mixture, shape, {}, (0, 0))
        counts = "source_lengths", "target_lengths", "source_parts"
        longest = [max(int(getattr(c, name).max(initial=1)) for c in corpora) for name in counts]
        extents = dict[str, limits.Extent]()
        bounds = list[tuple[int, int]]()
        given = shape.options.max_source_len, shape.options.max_target_len
        for name, task in tasks.items():
            made_up = partial(lay_out_made_up, task, corpora[0])
            extents[name] = limits.measure_extent(name, made_up, task.vocab.unk, task.pair_slots)
            # where a task shortens by itself, not what train has: valid may have longer ones
            bound = given[0] or limits.UNLIMITED, longest[1]
            if not task.shortens:
                bound = limits.source_and_target(extents[name], shape.arch, longest, given)
            bounds.append(bound)
        max_source = min(source for source, _ in bounds)
        max_target = min(target for _, target in bounds)
        # the longest record, laid out: other tables (GLM: places within a blank) are checked, too
        for task in (task for task in tasks.values() if not task.shortens):
            source = np.full(min(max_source, longest[0]), task.vocab.unk)
            target = np.full(max_target, task.vocab.unk)
            rng = np.random.default_rng(0)
            example = lay_out_made_up(task, corpora[0], [source], target, rng)
            if fault := limits.explain_misfit(example, limits.tables_of(shape.arch)):
                raise UsageError(
                    f"a source of {len(source)} and a target of {len(target)} tokens do not "
                    f"fit: {fault}; lower --max-source-len or --max-target-len"
                )
        return cls(tasks, mixture, shape, extents, (max_source, max_target))

    def examples(self, drawn: Corpora) -> Examples:
        """The examples of corpora, as all tasks lay them out."""
        laid: dict[str, Laid] = {}
        frame = max(task.frame for task in self.tasks.values())  # mixed tasks see the same texts
        for name, task in self.tasks.items():
            if drawn.corpora[0].kind == "text":
                laid[name] = LaidTexts(task, self.shape, frame, drawn)
            else:
                laid[name] = LaidRecords(
                    task, self.shape, self.extents[name], self.max_lengths, drawn
                )
        return Mixed(laid, self.mixture) if self.mixture else next(iter(laid.values()))


def _open_named(option: str, folder: Path, resumes: bool) -> Any:
    try:
        return folders.open_corpus(folder)
    except DataError as error:
        if folder.exists():
            raise
        cure = f"; if it was moved, give its new path as {option}" if resumes else ""
        raise DataError(f"{option} {error}{cure}") from error


def _labels_of_all(opened: Sequence[Any]) -> dict[str, Any]:
    """The labels of all corpora, as fields of `Trained`; DataError if they differ."""
    first = opened[0].manifest.get("labels")
    for corpus in opened:
        if corpus.manifest.get("labels") != first:
            raise DataError(
                f"{corpus.path} has other labels than {opened[0].path}: preprocess them at once"
            )
    return {"labels": tuple(first or ())}


def _labels_of_each(train: Sequence[Any], valid: Iterable[Any]) -> dict[str, Any]:
    """The labels of each corpus by name, as fields of `Trained`."""
    known = dict[str, Sequence[str]]()
    for number, corpus in enumerate([*train, *valid]):
        about = folders.describe(corpus)
        name = about["name"]
        labels = (about.get("form", "none"), *about.get("labels", ()))
        require(
            number < len(train) or name in known,
            f"--valid {corpus.path}: no --data is called {name} ({', '.join(known)})",
        )
        if known.setdefault(name, labels) != labels:
            raise DataError(f"{corpus.path} has other labels than another {name}")
    return {"corpora": known}


def _check_idle(parsed: Parsed, tasks: Mapping[str, Task], corpora: Sequence[Any]) -> None:
    """Refuse options of data that would have no effect."""
    options = parsed.main
    if corpora[0].kind == "text" and parsed.settings.given("blocks", Origin.FLAG):
        uncut = any(task.cut is None for task in tasks.values())
        require(uncut, f"--blocks has no effect: task {[*tasks][-1]} cuts sentence pairs itself")
    idle = "--data-exponent has no effect on one corpus, and with --stateful-rows"
    several = len(corpora) > 1 and not options.stateful_rows
    require(several or options.data_exponent == 1, idle)


def _check_task(name: str, task: Task, parsed: Parsed, corpus: Any) -> None:
    """Refuse a task that does not suit the criterion, the architecture or the corpus."""
    arch, criterion = parsed.components["arch"].config, parsed.components["criterion"].name
    asked = f"--criterion {criterion} cannot learn what --task {name} asks"
    only = task.needs_criterion
    require(only in ("", criterion), f"{asked}; --criterion {only} can")
    drivers = "", *registry.sources("driver")
    near = registry.nearest(task.driver, drivers)
    require(task.driver in drivers, f"--task {name}: there is no driver {task.driver!r}{near}")
    read = task.for_corpus(folders.describe(corpus))
    # layouts rely on labels of their form, so the labels are looked at first
    _check_records(name, task, corpus)
    # a layout of a few words shows the towers of the task
    words = np.full(4, task.vocab.unk)
    rng = np.random.default_rng(0)
    short = lay_out_made_up(read, corpus, [words], words, rng)
    if set(short.towers) != set(arch.towers):
        raise UsageError(limits.explain_towers(task, set(short.towers), parsed))
    orderly = all(reads_one_by_one(slots.table) for slots in short.towers.values())
    require(
        orderly or not arch.sequential,
        f"--arch {parsed.components['arch'].name} reads words one after the other, "
        f"but task {name} lays them out otherwise",
    )
    _check_arch(name, task, arch, parsed.settings.given("arch.heads", Origin.FLAG))
    if fault := limits.explain_misfit(replace(short, inputs={}), limits.tables_of(arch)):
        raise UsageError(f"{corpus.path}: {fault}")


def _check_arch(name: str, task: Task, arch: Any, chose_heads: bool) -> None:
    """Refuse an architecture that lacks what a task needs beside its towers."""
    require(
        len(task.virtual) <= arch.num_virtual,
        f"task {name} needs --arch.num-virtual {len(task.virtual)} for {', '.join(task.virtual)}",
    )
    for need in task.needs:
        enough = getattr(arch, need) > 0 or need in arch.spared
        require(enough, f"task {name} needs {flag(f'arch.{need}')} above 0")
    if chose_heads:  # otherwise they are added
        for head in task.heads:
            require(
                head in arch.heads,
                f"task {name} asks {head}, but --arch.heads are {','.join(arch.heads) or 'none'}: "
                "add it",
            )
    enough = arch.num_segments == 0 or arch.num_segments >= len(task.segments)
    require(enough, f"task {name} needs --arch.num-segments {len(task.segments)}")


def _check_records(name: str, task: Task, corpus: Any) -> None:
    """Refuse a corpus whose labels or parts are not those that a task reads."""
    form = corpus.manifest.get("form", "none")
    if form == "none" and task.form:
        return  # texts or pairs, which the task refuses as a kind
    require(
        task.form in ("", form),
        f"task {name} learns from labels of the form {task.form}, but those of --data are "
        f"{form} (unitk preprocess --labels)",
    )
    if count := len(task.fields):
        parts = [1] if corpus.kind == "text" else corpus.source_parts
        least, largest = min(parts), max(parts)
        fits = least >= count and (form == "choice" or largest == count)
        names = ",".join(task.fields)
        require(
            fits,
            f"task {name} reads texts of {count} parts, but "
            f"those of --data have other parts (unitk preprocess --source-field {names})",
        )


def _check_words(corpora: Sequence[Any]) -> None:
    counting = "--max-words and --save-at-words count the words of texts"
    for corpus in corpora:
        require(corpus.kind == "text", f"{counting}, but {corpus.path} holds {corpus.kind}")
        if not corpus.has(WORDS):
            raise DataError(
                f"{counting}, but {corpus.path} does not say how many its sentences have: "
                "run unitk preprocess again"
            )
