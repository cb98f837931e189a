"""Answers that their own questions can see, in layouts that the run's task makes of its data.

A token of a text is replaced, and the text is laid out again with the same draws. A slot that is
asked for the token must not be reached, through any number of layers, by a slot that reads
something else than before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from unitk.comparison.checks.base import Finding, Findings, Subjects, TrainedRun
from unitk.data.batching import spread
from unitk.data.cuts import AT_THE_END, Text
from unitk.data.mixture import Part
from unitk.masks import cross, dense
from unitk.registry import register
from unitk.slots import Bools, Example, Ids, Slots

TEXTS, TOKENS = 24, 6  # texts of a run that are looked at, and tokens of each
LONGEST = 1024  # slots: the closure takes their cube
CORRUPTED = "mask_keep_random"  # the option of tasks that show some of what they ask for

Record = tuple[Any, ...]  # what a task lays out: a text, or a source and a target


@register("check", "leaks")
def check_leaks(subjects: Subjects) -> Findings:
    """Whether an answer is visible to its own question, in any layout of the tasks of runs."""
    for run in subjects.runs:
        data = run.examples
        if not data.train.parts:
            yield find_leaks(run, data.task.name, data.train)
        for name, part in data.train.parts.items():
            assert isinstance(part, Part)
            yield find_leaks(run, name, part.own)


@dataclass
class LeakCount:
    """How many answers were looked at, and how many of them were visible."""

    asked: int = 0
    seen: int = 0
    through: int = 0  # by way of another tower
    example: str = ""


def find_leaks(run: TrainedRun, name: str, laid: Any) -> Finding:
    """Look for leaks in some of the examples of a task."""
    subject = f"{run.name} {name}"
    if laid.method not in ("pretrain", "finetune"):
        return Finding("ok", "leaks", subject, "labels are no words of the text")
    tally = LeakCount()
    laid.begin(0)
    for index in spread(len(laid.bounds(0)), TEXTS).tolist():
        record, _ = laid.read(index, AT_THE_END)
        task = laid.tasks[laid.items.locate(index)[0]]
        search(without_corruption(task), laid.method, record, index, tally)
    if not tally.asked:
        return Finding("note", "leaks", subject, "no answer could be looked at")
    text = f"{tally.seen} of {tally.asked} answers are visible to their questions"
    if tally.seen:
        return Finding("FAULT", "leaks", subject, f"{text} ({tally.example})", vars(tally))
    text += f"; the encoder has {tally.through} of them" if tally.through else ""
    return Finding("ok", "leaks", subject, text, vars(tally))


def without_corruption(task: Any) -> Any:
    """The task with every hidden token masked: none is kept, none is random."""
    if CORRUPTED not in {option.name for option in fields(task.config)}:
        return task
    return task.with_attributes(config=replace(task.config, **{CORRUPTED: (1.0, 0.0, 0.0)}))


def search(task: Any, method: str, record: Record, index: int, tally: LeakCount) -> None:
    """Replace some tokens of a text, one at a time, and count the asks that can see the change."""
    draws = np.random.default_rng([index, 1])

    def lay(parts: Record) -> Example:
        example: Example = getattr(task, method)(*parts, np.random.default_rng([index, 0]))
        return example

    base = lay(record)
    if sum(map(len, base.towers.values())) > LONGEST:
        return
    # the draws are the same: one closure serves all replacements
    reached, first = closure(base)
    for _ in range(TOKENS):
        other = replace_token(task, record, draws)
        if other is None:
            return
        changed = lay(other)
        if not same_structure(base, changed):
            continue
        for ask, row in diff_asks(base, changed):
            tally.asked += 1
            noticed = reached[first[ask.tower] + row]
            seen, elsewhere = sees_change(base, changed, noticed, ask.tower)
            tally.seen += seen
            tally.through += elsewhere and not seen
            if seen and not tally.example:
                label = task.vocab.pieces([int(ask.label[np.flatnonzero(ask.first == row)[0]])])[0]
                tally.example = f"text {index + 1}, slot {row + 1} asks for {label!r}"


def replace_token(task: Any, record: Record, draws: np.random.Generator) -> Record | None:
    """A text with another word in one place: of a pair, in the target."""
    text = record[0] if isinstance(record[0], Text) else None
    parts = text.parts if text is not None else [record[1]]
    sizes = np.array([len(part) for part in parts])
    # an empty text has no token to replace
    if not sizes.sum():
        return None
    place = int(draws.integers(sizes.sum()))
    which = int(np.searchsorted(np.cumsum(sizes), place, "right"))
    at = place - int(sizes[:which].sum())
    part = parts[which].copy()
    starts, ends = task.vocab.starts, task.vocab.sentence_end
    # of the same sort, so that words and sentences are where they were
    alike = task.words[
        (starts[task.words] == starts[part[at]]) & (ends[task.words] == ends[part[at]])
    ]
    alike = alike[alike != part[at]]
    if not len(alike):
        return None
    part[at] = draws.choice(alike)
    parts = [*parts[:which], part, *parts[which + 1 :]]
    return (replace(text, parts=parts),) if text is not None else (record[0], parts[0])


def same_structure(example: Example, other: Example) -> bool:
    """Whether two examples differ in tokens and labels only."""
    if [len(slots) for slots in example.towers.values()] != [len(s) for s in other.towers.values()]:
        return False
    towers = zip(example.towers.values(), other.towers.values(), strict=True)
    alike = all(np.array_equal(a.table[1:], b.table[1:]) for a, b in towers)
    asks = zip(example.asks, other.asks, strict=False)
    return (
        alike
        and len(example.asks) == len(other.asks)
        and all(np.array_equal(a.rows, b.rows) for a, b in asks)
    )


def diff_asks(example: Example, other: Example) -> Iterator[tuple[Any, int]]:
    """The asks for words, and the slots, whose answers are not the same in both."""
    for ask, again in zip(example.asks, other.asks, strict=True):
        if ask.head == "lm":
            weighs = ask.weight > 0
            for row in ask.first[(ask.label != again.label) & weighs].tolist():
                yield ask, row


def sees_change(example: Example, other: Example, noticed: Bools, tower: str) -> tuple[bool, bool]:
    """Whether a slot sees a change in its own tower, and whether it sees one in another tower."""
    seen = elsewhere = False
    first = 0
    for name, slots in example.towers.items():
        differs = slots.token != other.towers[name].token
        hit = bool((differs & noticed[first : first + len(slots)]).any())
        first += len(slots)
        if name == tower:
            seen = hit
        else:
            elsewhere = elsewhere or hit
    return seen, elsewhere


def closure(example: Example) -> tuple[Bools, dict[str, int]]:
    """Which slots reach each slot through any number of layers, [slots, slots].

    The slots of all towers are in a line; the second result is where each tower begins in it.
    """
    towers: list[Slots] = list(example.towers.values())
    first: Ids = np.cumsum([0, *map(len, towers)])
    seen = np.eye(int(first[-1]), dtype=bool)
    for slots, a, b in zip(towers, first[:-1], first[1:], strict=True):
        seen[a:b, a:b] |= dense(slots.table, slots.table)
    if len(towers) == 2 and set(example.towers) == {"enc", "dec"}:
        enc, dec = list(example.towers).index("enc"), list(example.towers).index("dec")
        seen[first[dec] : first[dec + 1], first[enc] : first[enc + 1]] |= cross(
            example.towers["dec"].table, example.towers["enc"].table
        )
    # in each round, paths of twice the length are found
    while True:
        further = (seen.astype(np.float32) @ seen.astype(np.float32)) > 0
        if (further == seen).all():
            return seen, dict(zip(example.towers, first.tolist(), strict=False))
        seen = further
