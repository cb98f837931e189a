"""Lengths of examples, measured by laying out a few of them.

The slots and the positions of a tower grow by a fixed step with each token of a source, each token
of a target and each part of a source. So four examples determine the bound of all. Texts are
bounded by `Task.slots` instead, since their layouts draw at random.
"""

from __future__ import annotations

import bisect
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unitk import registry
from unitk.errors import require
from unitk.options.config import Parsed, flag
from unitk.options.settings import Setting, argument_text
from unitk.slots import POS, SEG, Doubles, Example, Ids

UNLIMITED = 1 << 30  # positions of an architecture that has no table of them
TABLES = {"max_positions": "position", "max_positions2": "position", "num_segments": "segment"}
"""Option of an architecture that limits `pos`, `pos2` or `seg` -> what messages call its values."""
LEAST_PARTS = 2  # sources are measured with at least this many parts, so that separators fit
STEP = 8  # tokens by which the records that are measured differ
LayOut = Callable[[list[Ids], Ids, np.random.Generator], Example]


@dataclass(frozen=True)
class Extent:
    """The size of laid-out records as a function of source and target lengths and source parts."""

    slots: Doubles
    """[tower, 4]: without tokens, and for each source token, target token and part."""
    positions: Doubles  # the same for the positions in use
    declared: Callable[[Ids, Ids, Ids], Ids | None]  # `Task.pair_slots`

    def bound(self, source: Any, target: Any, parts: Any) -> Ids:
        """The most slots of any tower."""
        slots = self.declared(source, target, parts)
        return slots if slots is not None else _longest(self.slots, source, target, parts)

    def max_source(self, table: int, target: int, parts: int) -> int:
        """The most source tokens that fit the positions beside a target; below 1 if none do."""

        def end(source: int) -> int:
            slots = self.declared(*map(np.array, (source, target, parts)))
            return int(_longest(self.positions, source, target, parts) if slots is None else slots)

        # the end rises with the source: the last length whose end is within the table
        return bisect.bisect_right(range(table + 1), table, key=end) - 1


def measure_extent(name: str, lay_out: LayOut, unk: int, declared: Any) -> Extent:
    """Measure the extent of a task's records by laying out a few; `name` is the task's.

    A task that lays out records of the same lengths in different sizes must declare `pair_slots`.
    """

    def measure_slots(source: int, target: int, parts: int, seed: int = 0) -> Ids:
        words = np.array_split(np.full(source, unk), parts)
        example = lay_out(words, np.full(target, unk), np.random.default_rng(seed))
        towers = example.towers.values()
        return np.array([[len(slots), slots.table[POS].max() + 1] for slots in towers])

    n, p = STEP, LEAST_PARTS
    corner = measure_slots(n, n, p)
    steps = [
        (measure_slots(2 * n, n, p) - corner) / n,
        (measure_slots(n, 2 * n, p) - corner) / n,
        measure_slots(n, n, p + 1) - corner,
    ]
    alone = corner - n * steps[0] - n * steps[1] - p * steps[2]  # without any word or part
    table = np.stack([alone, *steps], axis=-1)  # [tower, slots or positions, 4]
    extent = Extent(table[:, 0], table[:, 1], declared)
    for seed in range(4):  # check the bound for other lengths and draws
        more = measure_slots(5 * n, 3 * n, p + 1, seed)[:, 0].max()
        fits = more <= extent.bound(5 * n, 3 * n, p + 1)
        require(fits, f"task {name} lays out {more} slots at random: it needs pair_slots")
    return extent


def _longest(table: npt.NDArray[Any], source: Any, target: Any, parts: Any) -> Ids:
    # fast for millions of records: integers if all steps are, and no product with a step of 0
    whole = table.astype(np.int64)
    steps = (whole if (whole == table).all() else table).tolist()
    by = source, target, parts
    towers = [sum((a * n for a, n in zip(row[1:], by, strict=True) if a), row[0]) for row in steps]
    longest = np.asarray(functools.reduce(np.maximum, towers))
    return longest if longest.dtype == np.int64 else np.ceil(longest).astype(np.int64)


def source_and_target(
    extent: Extent, arch: Any, longest: list[int], given: tuple[int | None, int | None]
) -> tuple[int, int]:
    """The lengths to which sources and targets are truncated so that the positions suffice.

    `longest` are the most tokens of a source and of a target, and the most parts, in the data.
    """
    table = arch.position_limit or UNLIMITED
    max_target = given[1] or min(longest[1], table // 2)
    fits = extent.max_source(table, max_target, max(longest[2], LEAST_PARTS))
    require(
        fits > 0,
        f"--max-target-len {max_target} leaves no room for a source "
        f"in the {table} positions of --arch",
    )
    max_source = given[0] or fits
    require(
        max_source <= fits,
        f"--max-source-len {max_source}: only {fits} source tokens fit the {table} positions of "
        f"--arch beside a target of {max_target}",
    )
    return max_source, max_target


def tables_of(arch: Any) -> dict[str, list[int]]:
    """The rows of the tables in `TABLES` for each tower, and of that of tasks; 0: no limit."""
    towers = {name: arch.tower(name) for name in ("x", "enc", "dec", *arch.towers)}
    rows = {name: [getattr(tower, table) for table in TABLES] for name, tower in towers.items()}
    for of_tower in rows.values():
        of_tower[-1] *= of_tower[-1] > 1  # one segment is that of all parts (RoBERTa)
    return rows | {"task": [arch.num_tasks]}


def explain_misfit(example: Example, tables: dict[str, list[int]]) -> str:
    """A message about a value of an example that has no row in its table; "" if all have one."""
    for name, slots in example.towers.items():
        largest = slots.table[POS : SEG + 1].max(axis=1).tolist()
        for last, size, (table, what) in zip(largest, tables[name], TABLES.items(), strict=True):
            if 0 < size <= last:
                return f"{what} {last} is beyond {flag('arch.' + table)} {size}"
    (rows,) = tables["task"]
    if rows and "task" in example.inputs and (last := int(example.inputs["task"].max())) >= rows:
        return f"task number {last} is beyond --arch.num-tasks {rows}"
    return ""


TOWERS = {
    frozenset({"x"}): ("one tower", ("glm_infill", "unilm", "lm")),
    frozenset({"enc", "dec"}): ("an encoder and a decoder", ("seq2seq", "bart", "mass")),
    frozenset({"fwd", "bwd"}): ("a tower for each direction", ("bilm",)),
}
"""Towers of an architecture: what they are called, and tasks that train them."""
LAYERS = "num_layers", "width", "num_heads", "ffn_width", "ffn_gate", "activation", "positions"
"""The options that an encoder-decoder must share with a model to take its weights."""


def pair_of(settings: Mapping[str, Setting]) -> str:
    """The encoder-decoder architecture whose towers equal that of `settings`, or ""."""
    for name in registry.names("arch"):
        if "_encdec_" not in name:
            continue
        preset = registry.get("arch", name)()
        texts = {f"arch.{key}": argument_text(getattr(preset, key), key) for key in LAYERS}
        if all(key in settings and settings[key].text == text for key, text in texts.items()):
            return name
    return ""


def describe_towers(names: Iterable[str]) -> tuple[str, tuple[str, ...]]:
    """What the towers of an architecture are called, and tasks that train them."""
    return TOWERS.get(frozenset(names), (f"the towers {' and '.join(sorted(names))}", ()))


def explain_towers(task: Any, needed: set[str], parsed: Parsed) -> str:
    """The message that a task needs other towers than those of a run's architecture, with cures."""
    arch = parsed.components["arch"]
    started = vars(parsed.main).get("init_from")
    present = arch.config.towers
    needs, _ = describe_towers(needed)
    has, tasks = describe_towers(present)
    own = f"--arch {task.component('arch', task.config)}"
    cures = [f"{own} without --init-from" if started else own]
    # --init-from brings the architecture of its checkpoint
    if started and "dec" in needed and (pair := pair_of(parsed.settings)):
        cures.insert(0, f"--arch {pair} --init-encoder {started} --init-decoder {started}")
    if "towers" in vars(task.config):
        cures.insert(0, f"--task.towers {'one' if 'x' in present else 'two'}")
    if tasks:
        cures.append(f"--task {' or '.join(tasks)}")
    what = f"--task {task.name} needs {needs}, but --arch {arch.name} has {has}"
    return f"{what}: take {', or '.join(cures)}"
