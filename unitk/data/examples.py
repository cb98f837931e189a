"""From corpora to what the loop reads: the corpus kind decides which layout of the task is used."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from unitk.config import Parsed, flag
from unitk.data.batching import Examples, Feed, Update
from unitk.data.cuts import Text
from unitk.data.mixture import check_alike, mixed
from unitk.data.storing.corpus import Corpus, Pairs
from unitk.data.storing.folders import corpus_vocab, open_corpus, part, train_parts
from unitk.data.texts import PairTexts, Texts
from unitk.errors import DataError, UsageError, require
from unitk.slots import POS, SEG, Example, Ids
from unitk.tasks.base import Task
from unitk.training.config import TrainConfig, weighted
from unitk.vocab.base import Vocab

UNLIMITED = 1 << 30
"""Positions of an architecture that has no table of them."""
TABLES = {"max_positions": "position", "max_positions2": "position", "num_segments": "segment"}
"""Options of an architecture that limit `pos`, `pos2` and `seg`, and what these are."""


@dataclass(frozen=True)
class Source:
    """Texts or pairs, laid out by a task."""

    examples: Examples
    lengths: Callable[[], Ids]
    """Tokens of each example of the epoch that `examples` was last asked about."""
    about: str
    """What it holds, in words."""
    shortened: str = ""
    """What is cut off, in words."""
    most: tuple[int, int] | None = None
    """Of pairs: the tokens to which a source and a target are shortened."""


@dataclass(frozen=True)
class Data:
    """Everything a run reads."""

    kind: str
    """"text" or "pairs"."""
    vocab: Vocab
    task: Task
    train: Source
    valid: dict[str, Source]
    fingerprint: str
    """Of the corpora's contents and weights."""

    @property
    def about(self) -> str:
        """What is done with them, in words."""
        return "pre-training on text" if self.kind == "text" else "fine-tuning on pairs"

    def updates(
        self, feed: Feed, epoch: int, cursor: int, step: int = 0, total: int | None = None
    ) -> Iterator[tuple[Update, int]]:
        """The feed's updates, each with the number of its tokens (special symbols not counted)."""
        for update in feed.updates(epoch, cursor, step, total):
            yield update, int(self.train.lengths()[update.ids].sum())


def open_data(parsed: Parsed) -> Data:
    """Open and check the corpora of a run; milliseconds, whatever their size."""
    config: TrainConfig = parsed.main
    places = [weighted(text) for text in config.data]
    trained = [(one, weight) for place, weight in places for one in train_parts(place)]
    weights = [weight for _, weight in trained]
    judged = {name: part(place, "valid") or place for name, place in config.named_valid}
    if not config.valid and (found := part(places[0][0], "valid")):
        judged = {"valid": found}
    folders = [folder for folder, _ in trained] + [*judged.values()]
    opened: list[Any] = [open_corpus(folder) for folder in folders]
    _check_alike(folders, opened)
    corpora, rest = opened[: len(trained)], opened[len(trained) :]
    vocab, kind = corpus_vocab(folders[0]), opened[0].kind
    named = parsed.mixture or {parsed.components["task"].name: parsed.components["task"]}
    tasks = {name: part.made_from(part.config, vocab) for name, part in named.items()}
    for name, task in tasks.items():
        _check_task(name, task, parsed, kind)
    check_alike(tasks, kind)
    make = _makers(list(tasks.values()), parsed, kind, corpora)

    def source(corpora: Sequence[Any], weights: Sequence[float], seed: int) -> Source:
        made = [one(corpora, weights, seed) for one in make]
        if not parsed.mixture:
            return made[0]
        parts = {name: one.examples for name, one in zip(tasks, made, strict=True)}
        return replace(made[0], examples=mixed(parts, parsed.mixture))

    content = [f"{one.fingerprint}={weight}" for one, weight in zip(corpora, weights, strict=True)]
    return Data(
        kind,
        vocab,
        next(iter(tasks.values())),
        source(corpora, weights, config.seed),
        # validation is drawn and cut from (0, 0, example), so that curves of all runs compare
        {name: source([corpus], [1.0], 0) for name, corpus in zip(judged, rest, strict=True)},
        hashlib.sha256("\n".join(content).encode()).hexdigest(),
    )


def _check_task(name: str, task: Task, parsed: Parsed, kind: str) -> None:
    arch = parsed.components["arch"].config
    words, rng = np.full(4, task.vocab.unk), np.random.default_rng(0)
    text = Text([words], np.zeros(1, np.int64))
    short = task.pretrain(text, rng) if kind == "text" else task.finetune([words], words, rng)
    laid, there = (" and ".join(sorted(towers)[::-1]) for towers in (short.towers, arch.towers))
    has = f"--arch {parsed.components['arch'].name} has {there}"
    require(laid == there, f"task {name} lays out {laid}, but {has}")
    beyond = f"task {name} needs --arch.num-virtual {len(task.virtual)}"
    require(len(task.virtual) <= arch.num_virtual, f"{beyond} for {', '.join(task.virtual)}")
    for need in task.needs:
        option = f"{flag('arch.' + need)}"
        require(getattr(arch, need) > 0, f"task {name} needs {option} above 0")
    for head in task.classes:
        found = f"--arch.class-heads are {','.join(arch.class_heads) or 'none'}"
        require(head in arch.classes, f"task {name} asks class:{head}, but {found}: add {head}:2")
    enough = arch.num_segments == 0 or arch.num_segments >= len(task.segments)
    require(enough, f"task {name} needs --arch.num-segments {len(task.segments)}")
    if task.cut is not None and kind == "text":
        given = parsed.origins.get("blocks", "").startswith("--")
        require(not given, f"--blocks has no effect: task {name} cuts sentence pairs itself")


def _makers(
    tasks: Sequence[Task], parsed: Parsed, kind: str, corpora: Sequence[Any]
) -> list[Callable[[Sequence[Any], Sequence[float], int], Source]]:
    """For each task what makes its examples of corpora, weights and a seed: of the same texts."""
    config, arch = parsed.main, parsed.components["arch"].config
    if kind == "text":
        frame = max(task.frame for task in tasks)
        return [partial(_texts, task, frame, arch, config) for task in tasks]
    limits = [_limits(task, arch, config, corpora) for task in tasks]
    longest = [min(each) for each in zip(*limits, strict=True)]
    return [partial(_pairs, task, arch, *longest) for task in tasks]


def _check_alike(folders: Sequence[Path], opened: Sequence[Corpus | Pairs]) -> None:
    for folder, corpus in zip(folders, opened, strict=True):
        if not (len(corpus) if isinstance(corpus, Pairs) else corpus.num_tokens):
            raise DataError(f"{folder} holds nothing")
        if corpus.kind != opened[0].kind:
            raise UsageError(
                f"{folders[0]} holds {opened[0].kind}, but {folder} holds {corpus.kind}"
            )
        if corpus.vocab_hash != opened[0].vocab_hash:
            raise DataError(f"{folder} was made with another vocabulary than {folders[0]}")


def _texts(
    task: Task,
    frame: int,
    arch: Any,
    config: TrainConfig,
    corpora: Sequence[Corpus],
    weights: Sequence[float],
    seed: int,
) -> Source:
    size, name = config.block_size - frame, flag("block_size")
    require(size > 0, f"{name} must be above {frame}, the special symbols of a text")
    table = arch.room or UNLIMITED
    require(
        config.block_size <= table,
        f"{name} {config.block_size} is more than the {table} positions of --arch;"
        f" --arch.max-positions {config.block_size} makes room",
    )
    how = task.cut or config.blocks
    texts = Texts(corpora, blocks=how, size=size, separator=task.vocab.sep, seed=seed)

    def of(epoch: int) -> Texts:
        texts.begin(epoch % task.copies if task.copies else epoch)
        return texts

    tables = _tables(arch)

    def lay_out(text: Text, rng: np.random.Generator) -> Example:
        _check_tokens(text.parts, task.vocab, corpora)
        return _fitting(task.pretrain(text, rng), tables)

    examples = Examples(
        bounds=lambda epoch: task.slots(of(epoch).lengths),
        weights=lambda epoch: of(epoch).weights(weights),
        draw=lambda epoch, i, rng: lay_out(of(epoch).text(i), rng),
        copies=task.copies,
        asks=task.asks,
    )
    long = 0
    if how == "line":
        long = sum(int((np.diff(corpus.sentences) > size).sum()) for corpus in corpora)
    return Source(
        examples,
        lambda: texts.lengths,
        f"{sum(c.num_documents for c in corpora):,} documents of"
        f" {sum(c.num_tokens for c in corpora):,} tokens{corpora[0].note}",
        f"{long:,} lines are cut off at {size} tokens (--block-size)" if long else "",
    )


def _pairs(
    task: Task,
    arch: Any,
    max_source: int,
    max_target: int,
    corpora: Sequence[Pairs],
    weights: Sequence[float],
    seed: int,
) -> Source:
    pairs = PairTexts(corpora, max_source=max_source, max_target=max_target)
    bounds = task.pair_slots(pairs.source_lengths, pairs.target_lengths)

    tables = _tables(arch)

    def lay_out(source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        sides = [corpus for pair in corpora for corpus in (pair.source, pair.target)]
        _check_tokens([*source, target], task.vocab, sides)
        return _fitting(task.finetune(source, target, rng), tables)

    examples = Examples(
        bounds=lambda epoch: bounds,
        weights=lambda epoch: pairs.weights(weights),
        draw=lambda epoch, i, rng: lay_out(*pairs.pair(i), rng),
        copies=task.copies,
        asks=task.asks,
    )
    lengths = pairs.source_lengths + pairs.target_lengths
    return Source(
        examples,
        lambda: lengths,
        f"{len(lengths):,} pairs of {lengths.sum():,} tokens{corpora[0].note}",
        f"{pairs.shortened:,} of {len(lengths):,} pairs are shortened to {max_source} source and"
        f" {max_target} target tokens (--max-source-len, --max-target-len)"
        if pairs.shortened
        else "",
        (max_source, max_target),
    )


def _limits(
    task: Task, arch: Any, config: TrainConfig, corpora: Sequence[Pairs]
) -> tuple[int, int]:
    """The most tokens of a source and of a target that the architecture's positions allow."""
    table = arch.room or UNLIMITED
    longest_source = max(int(pairs.source_lengths.max(initial=1)) for pairs in corpora)
    longest_target = max(int(pairs.target_lengths.max(initial=1)) for pairs in corpora)
    max_target = config.max_target_len or min(longest_target, table // 2)
    fits = task.max_source(table, max_target)
    require(
        fits > 0,
        f"--max-target-len {max_target} leaves no room for a source"
        f" in the {table} positions of --arch",
    )
    max_source = config.max_source_len or fits
    require(
        max_source <= fits,
        f"--max-source-len {max_source}: only {fits} source tokens fit the {table} positions of"
        f" --arch beside a target of {max_target}",
    )
    # the longest pair, laid out: other tables (GLM: places within a blank) are checked as well
    words = [np.full(n, task.vocab.unk) for n in (min(max_source, longest_source), max_target)]
    example = task.finetune(words[:1], words[1], np.random.default_rng(0))
    require(
        not (fault := _misfit(example, _tables(arch))),
        f"a source of {len(words[0])} and a target of {len(words[1])} tokens do not fit: {fault};"
        " lower --max-source-len or --max-target-len",
    )
    return max_source, max_target


def _check_tokens(parts: list[Ids], vocab: Vocab, corpora: Sequence[Corpus]) -> None:
    """ValueError (which names the example further up) where an altered corpus has a wild id."""
    if max(int(part.max(initial=0)) for part in parts) >= len(vocab):
        where = next(filter(None, (corpus.first_beyond(len(vocab)) for corpus in corpora)))
        raise ValueError(f"{where} is beyond the vocabulary of {len(vocab)}")


def _tables(arch: Any) -> dict[str, list[int]]:
    """Rows of the tables that `TABLES` names in each tower a task may lay out; 0: no limit."""
    towers = {name: arch.tower(name) for name in ("x", "enc", "dec")}
    return {name: [getattr(tower, table) for table in TABLES] for name, tower in towers.items()}


def _fitting(example: Example, tables: dict[str, list[int]]) -> Example:
    """The example, or ValueError where a position has no row."""
    if fault := _misfit(example, tables):
        raise ValueError(fault)
    return example


def _misfit(example: Example, tables: dict[str, list[int]]) -> str:
    for name, slots in example.towers.items():
        most = slots.table[POS : SEG + 1].max(axis=1).tolist()
        for last, size, (table, what) in zip(most, tables[name], TABLES.items(), strict=True):
            if 0 < size <= last:
                return f"{what} {last} is beyond {flag('arch.' + table)} {size}"
    return ""
