"""From a plan to batches: draw the examples, pack them into rows, and prefetch them."""

from __future__ import annotations

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from unitk.data.cuts import AT_THE_END, When
from unitk.data.plan import Plan, generators, micro_batches, pack, plan, plan_rows
from unitk.data.static import fixed_shape, make_fixed
from unitk.data.texts import Joined
from unitk.errors import DataError, require
from unitk.packed import with_documents
from unitk.registry import plugin_line
from unitk.slots import WIDTH, Batch, Doubles, Example, Ids, collate

T = TypeVar("T")


class Examples(ABC):
    """The numbered examples of an epoch: texts or records that are laid out when they are drawn."""

    about = ""
    """A description for the log."""
    shortened = ""
    """What is truncated, as a message; empty if nothing is."""
    max_lengths: tuple[int, int] | None = None
    """The most tokens of a source and of a target, to which records are shortened."""
    items: Joined
    """The texts or records of the epoch that was asked about last."""
    copies = 0
    """Epochs after which draws repeat (static masks); 0: they never do."""
    asks: Mapping[str, Any] = {}
    """The weight of the mean of an ask in the loss of its task; 1 for those not listed."""
    parts: Mapping[str, Examples] = {}
    """Task -> the same texts or records as it lays them out, if several tasks are mixed."""
    recut = False
    """For a part of a mixture: whether its task cuts other texts than the planned ones."""

    @abstractmethod
    def bounds(self, epoch: int) -> Ids:
        """The most slots that each example may have, for planning."""

    @abstractmethod
    def draw(self, epoch: int, index: int, rng: np.random.Generator, when: When) -> Example:
        """Lay out an example for an update: a pure function of the arguments."""

    def weights(self, epoch: int) -> float | Doubles:
        """How often each example appears in an epoch."""
        return 1.0

    def group(self, epoch: int, ids: Ids) -> Ids:
        """The numbers of this part's examples in place of planned ones; others if `recut`."""
        return ids

    def shares(self, step: int, total: int | None) -> dict[str, float]:
        """The probability of each part at a step; they sum to 1."""
        return {}

    def loss_weights(self, step: int, total: int | None) -> dict[str, float]:
        """The weights of asks and of mixed tasks in the loss at a step, those of 1 left out."""
        return self.ask_weights(step, total) | self.shares(step, total)

    def ask_weights(self, step: int, total: int | None) -> dict[str, float]:
        """The weights `asks` at a step, at which schedules are evaluated."""
        return {
            name: weight(step, total) if callable(weight) else weight
            for name, weight in self.asks.items()
        }


@dataclass(frozen=True)
class Update:
    """One update of the optimizer, as one rank sees it."""

    epoch: int
    cursor: int
    """The examples of the epoch that are done after this update; 0 if the epoch is complete."""
    batches: list[Batch]
    numbers: list[int]  # of the micro-batches, counted over all ranks: the seeds of dropout
    ids: Ids  # examples of the update, of all ranks
    shares: dict[str, float] = field(default_factory=dict)  # of the tasks that are mixed in it
    asks: dict[str, float] = field(default_factory=dict)
    """The weight of the mean of an ask in the loss of its task; 1 for those not listed."""
    begins: bool = False  # whether it is the first one of an epoch: nothing is carried into it

    def numbered(self) -> Iterator[tuple[int, Batch]]:
        """The micro-batches with their numbers."""
        return zip(self.numbers, self.batches, strict=True)

    def weight(self, ask: str) -> float:
        """The weight of an ask's mean in the loss, including the share of its task.

        A share r counts r / (1 - (1 - r) ** n) in an update that has the task, because an update of
        n texts lacks it with probability (1 - r) ** n. Over many updates, each mean has the weight
        of its share.
        """
        share = self.shares.get(ask.partition(".")[0], 1.0)
        return share / (1 - (1 - share) ** len(self.ids)) * self.asks.get(ask, 1.0)


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Updates in an order that depends only on (seed, epoch), whatever the number of ranks."""

    examples: Examples
    seed: int
    max_tokens: int  # most slots (by their bounds) of one forward on one device
    batch_tokens: int  # slots of one update over all ranks
    batch_texts: int | None = None  # if given, examples of one update instead of slots
    rank: int = 0
    world: int = 1
    rows: int = 0
    """Stateful rows, as many as `batch_texts`: each continues where it was in the update before,
    on the same rank. 0: examples are shuffled and packed."""
    backward: bool = False  # whether these rows read their texts from the last to the first
    undivided: bool = False  # whether no update may be larger, so that it fits a micro-batch
    static: bool = False  # whether all micro-batches have one shape

    def plan(self, epoch: int) -> Plan:
        """The order of an epoch."""
        bounds, weights = self.examples.bounds(epoch), self.examples.weights(epoch)
        if not len(bounds):
            raise DataError("the training data holds no text at all")
        if self.rows:
            require(
                len(bounds) >= self.rows,
                f"--stateful-rows {self.rows}: there are only {len(bounds)} texts",
            )
            order = plan_rows(bounds, self.rows, self.backward)
        else:
            order = plan(bounds, weights, self.seed, epoch)
        if self.batch_texts:
            order = replace(order, total=np.arange(1, len(order) + 1))
        return replace(order, largest_last=1.0) if self.undivided else order

    @property
    def size(self) -> int:
        """The cost of an update over all ranks, as the plan of an epoch counts it."""
        return self.batch_texts or self.batch_tokens

    def check_undivided(self, option: str) -> None:
        """Refuse --batch-texts if a micro-batch cannot hold every update of the first epoch.

        `option` is the one that requires undivided updates, for the message; "" requires nothing.
        """
        if not (option and self.batch_texts):
            return
        today = self.plan(0)
        starts = [0, *today.stops(self.size)[:-1]]
        need = int(np.add.reduceat(today.bound[today.order], starts).max())
        require(
            need <= self.max_tokens,
            f"{option} needs each update in one micro-batch, and updates of --batch-texts "
            f"{self.batch_texts} have up to {need:,} slots: give --max-tokens {need} or more",
        )

    def updates_per_epoch(self, epoch: int = 0) -> int:
        """How many updates an epoch has."""
        return len(self.plan(epoch).stops(self.size))

    def updates(
        self, epoch: int = 0, cursor: int = 0, step: int = 0, total: int | None = None
    ) -> Iterator[Update]:
        """All further updates, epoch after epoch, without end.

        `step` and `total` are the updates done and the updates of the run, on which schedules
        depend.
        """
        while True:
            today = self.plan(epoch)
            while cursor < len(today):
                begin = cursor
                cursor = today.stop(cursor, self.size)
                step += 1  # schedules count updates from 1
                shares = self.examples.shares(step, total)
                ids = today.order[begin:cursor]
                make = self._batch_rows if self.rows else self._pack
                numbers, batches = make(today, epoch, ids, shares, (step, total))
                weights = self.examples.ask_weights(step, total)
                # where a resumed run goes on: after the last update the next epoch begins
                position = (epoch + 1, 0) if cursor == len(today) else (epoch, cursor)
                yield Update(*position, batches, numbers, ids, shares, weights, begins=not begin)
            epoch += 1
            cursor = 0

    def _batch_rows(
        self, today: Plan, epoch: int, ids: Ids, shares: dict[str, float], when: When
    ) -> tuple[list[int], list[Batch]]:
        """The stateful rows of this rank, in equally many micro-batches on every rank."""
        rows = np.arange(self.rows).reshape(self.world, -1)[self.rank]  # the same in every update
        # all ranks make equally many micro-batches: the longest text of the update decides
        rows_a_batch = max(1, self.max_tokens // int(today.bound[ids].max()))
        batches = []
        for chunk in np.array_split(rows, -(-len(rows) // rows_a_batch)):
            drawn = draw_all(self.examples, self.seed, epoch, ids[chunk], when)
            batch = collate([[example] for example in drawn])
            batches.append(replace(batch, stateful_rows=chunk))
        return [number * self.world + self.rank for number in range(len(batches))], batches

    def _pack(
        self, today: Plan, epoch: int, ids: Ids, shares: dict[str, float], when: When
    ) -> tuple[list[int], list[Batch]]:
        """Pack examples into micro-batches with one task each."""
        lots: list[tuple[Examples, Ids, Ids]] = []
        for part, of_part in self._parts(epoch, ids, shares):
            bound = today.bound
            if part.recut:
                of_part = part.group(epoch, of_part)
                bound = part.bounds(epoch)
            cuts = micro_batches(of_part, bound, self.max_tokens, self.world)
            lots += [(part, lot, of_part) for lot in cuts]
        # dealt out in turn, so that every rank has micro-batches of every task
        numbers = list(range(self.rank, len(lots), self.world))
        return numbers, [self._batch(epoch, *lots[m], when) for m in numbers]

    def _parts(
        self, epoch: int, ids: Ids, shares: dict[str, float]
    ) -> Iterator[tuple[Examples, Ids]]:
        """The examples of each task; a uniform number for each example picks its task."""
        if not shares:
            yield self.examples, ids
            return
        # the last number of the seed keeps these draws apart from those of the layouts
        points = [rng.random() for rng in generators(self.seed, epoch, ids, 1)]
        pick = np.searchsorted(np.cumsum(list(shares.values())), points, "right")
        for number, part in enumerate(self.examples.parts[name] for name in shares):
            # shares that rounding sums to less than 1 leave a gap above the last one
            of_part = ids[np.minimum(pick, len(shares) - 1) == number]
            if len(of_part):
                yield part, of_part

    def _batch(self, epoch: int, part: Examples, lot: Ids, ids: Ids, when: When) -> Batch:
        """Make a micro-batch; a rank without examples gets one with weight 0."""
        drawn = draw_all(part, self.seed, epoch, lot if len(lot) else ids[:1], when)
        if self.static:
            batch = make_fixed(drawn, fixed_shape(part.bounds(epoch), self.max_tokens))
        else:
            batch = make_batch(drawn)
        return batch if len(lot) else zero_weights(batch)


def draw(examples: Examples, seed: int, epoch: int, index: int, when: When = AT_THE_END) -> Example:
    """Lay out example `index` with its own generator; an error names the example."""
    return draw_all(examples, seed, epoch, np.array([index]), when)[0]


def draw_all(
    examples: Examples, seed: int, epoch: int, ids: Ids, when: When = AT_THE_END
) -> list[Example]:
    """Lay out each of these examples with its own generator; an error names the example."""
    if examples.copies:
        epoch %= examples.copies
    drawn = list[Example]()
    try:
        for index, rng in zip(ids.tolist(), generators(seed, epoch, ids), strict=True):
            drawn.append(examples.draw(epoch, index, rng, when))
    except (ValueError, IndexError, AssertionError) as error:
        line = plugin_line(error)
        raise DataError(
            f"example {ids[len(drawn)]} of epoch {epoch} cannot be laid out: "
            f"{line and f'{line}: '}{type(error).__name__}: {error}"
        ) from error
    return drawn


def make_batch(examples: Sequence[Example]) -> Batch:
    """Pack examples best-fit into rows of one width and collate them."""
    # towers are packed jointly: an example counts with its longest tower
    lengths = [max(map(len, example.towers.values())) for example in examples]
    longest = max(lengths)
    # short rows waste less attention, long ones less padding: few widths are worth a try
    widths = longest, min(2 * longest, max(longest, 256)), max(longest, min(2 * longest, 512))
    ways = [pack(lengths, width) for width in sorted({-(-w // WIDTH) * WIDTH for w in widths})]
    best = min(ways, key=lambda rows: _work([sum([lengths[i] for i in row]) for row in rows]))
    return with_documents(collate([[examples[i] for i in row] for row in best]))


def _work(lengths: list[int]) -> int:
    """The work of a model for rows of these lengths, in arbitrary units.

    Attention over 4,096 slots takes as long as the rest of a layer of 700 to 800 values.
    """
    width = -(-max(lengths) // WIDTH) * WIDTH
    return len(lengths) * width * (4096 + width)


def zero_weights(batch: Batch) -> Batch:
    """The same slots with all weights 0, for a rank that has no examples while others do."""
    for ask in batch.asks.values():
        ask.weight[:] = 0
    batch.count.update(dict.fromkeys(batch.count, 0.0))
    return replace(batch, num_real=0)


class FixedBatches:
    """The batches of validation: each example once, in order, drawn from (`seed`, 0, index).

    With `texts`, only that many examples at equal distances. In a mixture, each task lays out every
    example. All ranks read equally many batches.
    """

    def __init__(
        self,
        examples: Examples,
        max_tokens: int,
        texts: int | None = None,
        rank: int = 0,
        world: int = 1,
        seed: int = 0,
    ) -> None:
        self.rank = rank
        self.world = world
        self.seed = seed
        self._lots = []
        # cut as for one rank: the number of ranks must not change the batches
        for part in examples.parts.values() or [examples]:
            bounds = part.bounds(0)
            ids = spread(len(bounds), texts)
            self._lots += [(part, lot) for lot in micro_batches(ids, bounds, max_tokens, 1)]

    def __len__(self) -> int:
        return -(-len(self._lots) // self.world)

    def __iter__(self) -> Iterator[tuple[int, Batch]]:
        last = len(self._lots) - 1
        for number in range(self.rank, self.world * len(self), self.world):
            part, lot = self._lots[min(number, last)]  # a rank without one repeats the last
            batch = make_batch(draw_all(part, self.seed, 0, lot))
            yield number, batch if number <= last else zero_weights(batch)


def spread(count: int, limit: int | None) -> Ids:
    """At most `limit` numbers below `count`, at equal distances (neighbours may share a text)."""
    return np.linspace(0, count - 1, min(limit or count, count)).astype(int)


def single_batches(examples: Examples, ids: Ids, max_tokens: int) -> Iterator[Batch]:
    """Yield batches of these examples with one in each row, the longest first.

    They are drawn as in validation. `max_tokens` changes the size of batches, not the order.
    """
    bounds = examples.bounds(0)
    for lot in micro_batches(ids, bounds, max_tokens, 1, padded=True):
        yield collate([[example] for example in draw_all(examples, 0, 0, lot)])


def prefetch(updates: Iterator[T]) -> Generator[T, None, None]:
    """Yield the items of an iterator that a thread runs, up to two items ahead.

    Errors of the thread are raised here.
    """
    ready: queue.Queue[T | BaseException] = queue.Queue(2)
    stopped = threading.Event()

    def put(item: T | BaseException) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)  # the reader may be gone
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for update in updates:
                if not put(update):
                    return
        except BaseException as error:  # whatever it is, the reader must get it
            put(error)

    thread = threading.Thread(target=work, daemon=True, name="prefetch")
    thread.start()
    try:
        while True:
            item = ready.get()
            if isinstance(item, BaseException):
                raise item
            yield item
    finally:
        stopped.set()
        thread.join(timeout=5)
