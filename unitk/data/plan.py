"""The order of examples, their updates and micro-batches: pure functions of (seed, epoch, bounds).

Lengths are bounds declared by the task, never drawn ones, so a plan is computed before any example
is laid out and is the same for every number of ranks. Its state is (epoch, cursor), the cursor
counting examples. The generators of examples (`generators`) are seeded by (seed, epoch, example).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from unitk.slots import Doubles, Ids

Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Plan:
    """One epoch: the order of examples, and their running cost, in slots or each example 1."""

    order: Ids
    total: Ids
    bound: Ids
    largest_last: float = 1.5
    """The largest size of the last update, in the size of an update."""

    def __len__(self) -> int:
        return len(self.total)

    def stop(self, cursor: int, size: int) -> int:
        """The cursor at which the update ends that starts at `cursor`.

        It costs at most `size` and has at least one example. It also takes what is left of the
        epoch, if it then is no larger than `largest_last` times the size.
        """
        done = self.total[cursor - 1] if cursor else 0
        if self.total[-1] - done <= self.largest_last * size:
            return len(self)
        return max(cursor + 1, int(self.total.searchsorted(done + size, "right")))

    def stops(self, size: int) -> list[int]:
        """The cursors at which the updates of this size end in the epoch."""
        stops = list[int]()
        cursor = 0
        while cursor < len(self):
            stops.append(cursor := self.stop(cursor, size))
        return stops


def plan(bound: Ids, weight: float | Doubles, seed: int, epoch: int) -> Plan:
    """Plan an epoch over examples of at most `bound` slots each.

    An example appears `weight` times an epoch, a fraction being drawn anew; at least one does.
    """
    rng = np.random.default_rng([seed, epoch])
    times = np.floor(weight + rng.random(len(bound))).astype(np.int64)
    if not times.any():  # the largest of these is any example, with a probability as its weight
        times[np.argmax(weight / rng.exponential(size=len(bound)))] = 1
    order = rng.permutation(np.repeat(np.arange(len(bound)), times))
    return Plan(order, np.cumsum(bound[order]), bound)


def plan_rows(bound: Ids, rows: int, backward: bool = False) -> Plan:
    """Plan an epoch over stateful rows, each of which reads its own part of the examples in order.

    Update u has example u of every row, counted from the end with `backward`; the remainder, fewer
    than `rows` examples, is not read.
    """
    # rows begin at equal distances, so that texts in reverse, the second half of all, begin one;
    # a column of that table is an update
    begins = np.arange(rows) * len(bound) // rows
    table = begins[:, None] + np.arange(len(bound) // rows)
    order = (table[:, ::-1] if backward else table).T.ravel()
    return Plan(order, np.cumsum(bound[order]), bound)


def micro_batches(
    ids: Ids, bound: Ids, max_tokens: int, world: int, padded: bool = False
) -> list[Ids]:
    """Cut an update into the fewest micro-batches of at most `max_tokens` slots, of like size.

    Their number is a multiple of `world`, so some may be empty. An example longer than `max_tokens`
    has a micro-batch of its own. What only reads has `decoding.fit.batch_prompts`.
    """
    ids = ids[np.argsort(-bound[ids], kind="stable")] if padded else ids
    cost = bound[ids]
    # the smallest cap that needs no more micro-batches than the largest makes them most even
    low = 1
    high = max_tokens
    count = -(-(len(_runs(cost, high, padded)) - 1) // world) * world
    while low < high:
        cap = (low + high) // 2
        if len(_runs(cost, cap, padded)) - 1 <= count:
            high = cap
        else:
            low = cap + 1
    edge = _runs(cost, high, padded)
    # edges at the end make the empty ones that fill up a multiple of the ranks
    return np.split(ids, edge[1:-1] + [len(ids)] * (count + 1 - len(edge)))


def _runs(cost: Ids, cap: int, padded: bool) -> list[int]:
    """The ends of greedy runs of at most `cap` slots; `cost` falls where rows are padded."""
    total = np.append(0, np.cumsum(cost))
    edge = [0]
    while edge[-1] < len(cost):
        start = edge[-1]
        if padded:
            stop = start + cap // int(cost[start])  # every row is as long as the first one
        else:
            stop = int(np.searchsorted(total, total[start] + cap, "right")) - 1
        edge.append(min(max(stop, start + 1), len(cost)))
    return edge


def pack(lengths: Sequence[int], width: int) -> list[list[int]]:
    """Best-fit decreasing: rows of example numbers whose lengths sum to at most `width`.

    An example longer than `width` has a row of its own. SQuAD's pairs in rows of 512 have 8 % pads.
    """
    rows: list[list[int]] = []
    room: list[int] = []  # kept sorted, with `row_of` parallel to it
    row_of: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        need = lengths[i]
        at = bisect_left(room, need)  # the fullest row that has room
        if at == len(room):
            rows.append([i])
            left = max(width - need, 0)
            row = len(rows) - 1
        else:
            row = row_of.pop(at)
            left = room.pop(at) - need
            rows[row].append(i)
        at = bisect_left(room, left)
        room.insert(at, left)
        row_of.insert(at, row)
    return [sorted(row) for row in rows]


def generators(seed: int, epoch: int, ids: Ids, more: int = 0) -> list[np.random.Generator]:
    """`np.random.default_rng([seed, epoch, i])` for each number i; `more`, if not 0, comes last.

    numpy's own takes a fifth to a third of the time of an example. What it computes of a seed is
    done here for all seeds of a batch at once: its `SeedSequence`, whose words it keeps as they are
    (NEP 19). O'Neill 2015, "Developing a seed_seq alternative".
    """
    if any(number >> 32 for number in (seed, epoch, int(ids.max(initial=0)), more)):
        last = [more] if more > 0 else []
        return [np.random.default_rng([seed, epoch, int(i), *last]) for i in ids]
    numbers = np.array(np.broadcast_arrays(seed, epoch, ids, more), np.uint32)
    return [
        np.random.Generator(np.random.PCG64(Seeded(state)))  # type: ignore[arg-type]
        for state in states(numbers)
    ]


class Seeded(np.random.bit_generator.ISeedSequence):
    """A seed sequence whose words are computed already."""

    def __init__(self, words: npt.NDArray[np.uint64]) -> None:
        self.words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> npt.NDArray[np.uint64]:
        """The four words of 64 bits that PCG64 begins with."""
        return self.words


def states(numbers: Words) -> npt.NDArray[np.uint64]:
    """`SeedSequence(column).generate_state(4, np.uint64)` of each column [4, n], as rows."""
    pool = _hash(numbers, IN[:5])
    for i in range(4):  # each word is mixed into the three others
        others = np.delete(np.arange(4), i)
        hashed = _hash(pool[i], IN[4 + 3 * i : 8 + 3 * i])
        mixed = np.uint32(0xCA01F9DD) * pool[others] - np.uint32(0x4973F715) * hashed
        pool[others] = mixed ^ mixed >> HALF
    words = _hash(pool[np.arange(8) % 4], OUT)
    return np.ascontiguousarray(words.T, "<u4").view("<u8").astype(np.uint64)


def _powers(first: int, factor: int, count: int) -> Words:
    """A column of `count` numbers: first * factor**i modulo 2**32."""
    powers = [first * pow(factor, i, 1 << 32) % (1 << 32) for i in range(count)]
    return np.array(powers, np.uint32)[:, None]


HALF = np.uint32(16)
# a constant before and after each word that is hashed
IN, OUT = _powers(0x43B0D7E5, 0x931E8875, 17), _powers(0x8B51F9DD, 0x58F38DED, 9)


def _hash(words: Words, constants: Words) -> Words:
    words = (words ^ constants[:-1]) * constants[1:]
    return words ^ words >> HALF
