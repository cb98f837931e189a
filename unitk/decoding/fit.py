"""What fits: a source and its output into the positions of a model, prompts into a batch."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
from torch import Tensor

from unitk.data.texts import shorten
from unitk.decoding.config import GenerateConfig
from unitk.decoding.search import longest
from unitk.errors import DataError, UsageError, require
from unitk.models.base import ArchConfig
from unitk.slots import DOC, PAD, POS, POS2, WIDTH, Batch, Example, Ids, Protocol, collate
from unitk.tasks.base import Task

T = TypeVar("T")
log = logging.getLogger(__name__)


def search_protocol(task: Task, trained: int) -> Protocol | None:
    """The protocol by which a task decodes with a model that has this many trained output rows.

    Raises UsageError if the task must read or write a symbol that only an import added.
    """
    protocol = task.protocol
    if protocol is None:
        return None
    added = range(trained, len(task.vocab))
    needed = [protocol.begin, protocol.probe]
    if not task.continues:
        needed.insert(0, protocol.end)
    if lacking := [id_ for id_ in needed if id_ is not None and id_ in added]:
        names = ", ".join(task.vocab.pieces(lacking))
        raise UsageError(
            f"--checkpoint: task {task.name} needs {names} to generate, which the imported model "
            "lacks: train it with --init-from first"
        )
    return replace(protocol, endless=True) if protocol.end in added else protocol


@dataclass
class SourceTally:
    """Sources that are empty or were shortened, and those for which no output is allowed."""

    count: int = 0  # of those that are not empty
    shortened: int = 0
    without_output: list[int] = field(default_factory=list)  # their numbers, from 1
    together: bool = False
    """Whether one warning is for the sources of all calls of a generator, not one for each call."""

    def add(self, one: SourceTally, config: GenerateConfig) -> None:
        """Add the sources of a call."""
        if self.together:
            self.count += one.count
            self.shortened += one.shortened
            self.without_output += one.without_output
        else:  # no sums, as calls may come from several threads
            one.warn(config)

    def warn(self, config: GenerateConfig) -> None:
        """Log how many sources were shortened or have no output, and whether all are empty."""
        if self.together and not self.count:
            log.warning("an empty input has an empty output; --num-samples writes from nothing")
        if self.shortened:
            max_tokens = config.max_source_len
            limit = f" to {max_tokens} tokens or fewer (--max-source-len)" if max_tokens else ""
            log.warning("shortened %d of %d sources%s", self.shortened, self.count, limit)
        if none := self.without_output:
            log.warning(
                "inputs with no output that the rules allow: %d, first input %d", len(none), none[0]
            )


def batch_prompts(
    prompts: Sequence[Example],
    max_tokens: int,
    max_len: Sequence[int] = (),
    width: int = 1,
    *,
    grid: bool = False,
) -> Iterator[list[int]]:
    """Yield batches of prompts of similar lengths, as numbers, within `max_tokens` slots.

    `max_len` is the most words that each of `width` hypotheses writes in a blank. Without it, the
    prompts are only read. With `grid`, slots and rows count as those of `fill_up`.
    Training has batches of its own (`data.plan.micro_batches`).
    """
    size = [
        (len(p.blanks) if max_len else 0, max(map(len, p.towers.values())), words)
        for p, words in zip(prompts, max_len or [-1] * len(prompts), strict=True)
    ]
    numbers: list[int] = []
    largest = (0, 0, -1)  # blanks, slots, words
    # from the longest prompt on: the first of a batch is as wide as the batch
    for i in sorted(range(len(prompts)), key=size.__getitem__, reverse=True):
        blanks, slots, words = (max(pair) for pair in zip(largest, size[i], strict=True))
        largest = blanks, slots, words
        columns = round_up(slots)
        rows = len(numbers) + 1
        if grid:
            columns = round_to_grid(columns, WIDTH)
            rows = round_to_grid(rows)
        if numbers and rows * (columns + width * longest(blanks, words)) > max_tokens:
            yield numbers
            numbers = []
            largest = size[i]
        numbers.append(i)
    if numbers:
        yield numbers


def split_by_example(
    rows: Tensor, examples: Sequence[Example], numbers: Sequence[int]
) -> Iterator[tuple[int, Any]]:
    """Split a result for the asked rows of a batch [K, ...] into (number, part) of each example."""
    cuts = np.cumsum([len(examples[i].asks[0].label) for i in numbers])[:-1]
    return zip(numbers, np.split(rows.cpu().numpy(), cuts), strict=True)


def round_up(columns: int) -> int:
    """Round up to a width that rows may have."""
    return -(-columns // WIDTH) * WIDTH


def round_to_grid(count: int, unit: int = 1) -> int:
    """Round up to one of 1, 2, 3, 4, 6, 8, 12, 16, 24, ... units."""
    units = -(-count // unit)
    power = 1 << (units - 1).bit_length()
    return unit * (power * 3 // 4 if power > 2 and units <= power * 3 // 4 else power)


def fill_up(prompts: Sequence[Example]) -> Batch:
    """A batch of prompts whose numbers of rows and slots are on the grid, so that shapes recur.

    Further rows repeat the last prompt; further slots are pads.
    """
    missing = round_to_grid(len(prompts)) - len(prompts)
    batch = collate([[prompt] for prompt in [*prompts, *[prompts[-1]] * missing]])
    towers, sight, inputs = dict(batch.towers), dict(batch.sight), dict(batch.inputs)
    for name, table in batch.towers.items():
        pads = round_to_grid(table.shape[2], WIDTH) - table.shape[2]
        if not pads:
            continue
        pad_9BT = PAD[:, :, None].repeat(len(batch.last), 1).repeat(pads, 2)
        pad_9BT[DOC] = batch.docs[:, :1]
        towers[name] = np.concatenate([table, pad_9BT], 2)
        sight[name] = "rule"
        for key, array in batch.inputs.items():
            if key.rpartition(".")[0] == name:
                inputs[key] = np.pad(array, [(0, 0), (0, pads), *[(0, 0)] * (array.ndim - 2)])
    num_keys = {name: table.shape[2] for name, table in towers.items()}
    return replace(batch, towers=towers, sight=sight, inputs=inputs, num_keys=num_keys)


def lay_out_to_fit(
    source: list[Ids],
    lay_out: Callable[[list[Ids]], T],
    overrun: Callable[[T], int],
    truncate: bool,
    slope: float = 0.0,
) -> tuple[T, int]:
    """Lay out a source, which is shortened with `truncate` until no position is over the limit.

    `overrun` counts the positions by which a layout exceeds it. Returns the layout, and how many
    tokens of the source would fit. Each round removes the fewest tokens that may suffice; the limit
    on outputs shrinks by `slope` words for each token of the source. A source that cannot be
    shortened further is laid out though it is too long.
    """
    while True:
        laid = lay_out(source)
        excess = overrun(laid)
        left = sum(map(len, source)) - max(1, int(excess / (1 + slope)))
        if not truncate or excess <= 0 or left <= 0:
            return laid, max(left, 0)
        source = shorten(source, left)


def check_length(source: list[Ids], max_len: int, over: int, limits: ArchConfig) -> None:
    """Raise `UsageError` if a text from nothing would be `over` the positions, above 0."""
    require(
        over <= 0 or bool(source),
        f"--max-len {max_len} is too long by {over:,}: "
        f"the {limits.max_positions:,} positions of this model allow {max_len - over:,}",
    )


def check_places(
    prompt: Example,
    protocol: Protocol | None,
    max_len: int,
    limits: ArchConfig,
    name: str,
    fits: int = 0,
) -> None:
    """Raise DataError before decoding, if an output would pass the end of a position table.

    `fits` is how many tokens the source may have, for the message; 0 if that is not known.
    """
    pos, pos2 = measure_overrun(prompt, protocol, max_len, limits)
    if protocol is None:
        size = limits.max_positions
        over = max(pos, pos2)
        if over > 0:
            raise DataError(f"{name} is too long: position {size - 1 + over:,} of {size:,}")
    elif pos2 > 0:
        at_most = longest_output(max_len, pos2, protocol.dpos2)
        table = f"this model's {limits.max_positions2:,} second positions"
        raise UsageError(f"--max-len {max_len} is more than {table} allow: at most {at_most}")
    elif pos > 0:
        wish = f" with --max-len {max_len}" if protocol.dpos else ""
        table = f"the {limits.max_positions:,} positions of this model"
        or_limit = f" or --max-source-len {fits}" if fits > 0 else ""
        cure = f"--truncate{or_limit} shortens its last part"
        if max_len >= limits.max_positions and protocol.dpos:  # whatever the source is
            cure = f"--max-len may be {longest_output(max_len, pos, protocol.dpos)}"
        raise DataError(f"{name} is too long{wish} by {pos:,} for {table}; {cure}")


def longest_output(max_len: int, over: int, stride: int) -> int:
    """The most words that fit if `max_len` are `over` positions too many, at `stride` a word."""
    return max_len - -(-over // stride) if stride else 0


def count_excess(example: Example, limits: ArchConfig) -> int:
    """How many positions an example exceeds the tables of its towers by; at most 0 if it fits."""
    return max(measure_overrun(example, None, 0, limits))


def measure_overrun(
    prompt: Example, protocol: Protocol | None, max_len: int, limits: ArchConfig
) -> tuple[int, int]:
    """How many positions decoding may exceed the two tables by; each at most 0 if it fits.

    Without a protocol, no word follows the prompt.
    """
    table = prompt.towers[prompt.decoded].table
    # [M + 1, 2] (pos, pos2) of the slot that is read first in each blank
    homes = np.concatenate([table[[POS, POS2], -1:].T, prompt.blanks])
    strides = (protocol.dpos, protocol.dpos2) if protocol else (0, 0)
    end, end2 = (homes.max(axis=0) + np.multiply(strides, max_len)).tolist()
    return (
        _rows_beyond(prompt, POS, end, limits, "max_positions"),
        _rows_beyond(prompt, POS2, end2, limits, "max_positions2"),
    )


def _rows_beyond(prompt: Example, field: int, end: int, limits: ArchConfig, table: str) -> int:
    """How many rows a table lacks in any tower, if the last word is at `end`; at most 0 if none."""
    beyond = []
    for tower, slots in prompt.towers.items():
        last = int(slots.table[field].max())
        if tower == prompt.decoded:
            last = max(last, end)
        if rows := getattr(limits.tower(tower), table):
            beyond.append(last + 1 - rows)
    return max(beyond, default=0)
