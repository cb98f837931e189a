"""From a plan to batches: draw the examples, pack them into rows, fetch ahead of the model."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from unitk.data.plan import Plan, micro_batches, pack, plan
from unitk.errors import DataError
from unitk.slots import Batch, Example, Ids, collate

T = TypeVar("T")


@dataclass(frozen=True)
class Examples:
    """The examples of an epoch: declared bounds for planning, weights, and the draw itself."""

    bounds: Callable[[int], Ids]
    """Epoch -> the most slots each example may become."""
    weights: Callable[[int], float | npt.NDArray[np.float64]]
    """Epoch -> how often each example appears."""
    draw: Callable[[int, int, np.random.Generator], Example]
    """(epoch, index, generator) -> the example; a pure function of its arguments."""
    pad: int
    copies: int = 0
    """Epochs after which the same draws come again; 0: never."""


@dataclass(frozen=True)
class Update:
    """One optimizer update as a rank sees it."""

    epoch: int
    cursor: int
    """Units of the epoch that are done after this update; 0 when the epoch is complete."""
    batches: list[Batch]
    numbers: list[int]
    """The number of each micro-batch over all ranks: what dropout is seeded with."""
    ids: Ids
    """Examples of the update, of all ranks."""


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Updates in the order that (seed, epoch) fixes, whatever the number of ranks."""

    examples: Examples
    seed: int
    max_tokens: int
    """Most slots (by their bounds) of one forward on one device."""
    batch_tokens: int
    """Slots of one update over all ranks."""
    batch_texts: int | None = None
    """If given, examples of one update instead of slots."""
    rank: int = 0
    world: int = 1
    packed: bool = True
    """Rows hold several examples; otherwise lots of like length are padded."""

    def plan(self, epoch: int) -> Plan:
        """The epoch's order."""
        bounds, weights = self.examples.bounds(epoch), self.examples.weights(epoch)
        if not len(bounds):
            raise DataError("the training data holds no text at all")
        lot = None if self.packed else min(self.max_tokens, self.batch_tokens)
        return plan(bounds, weights, self.seed, epoch, lot=lot)

    def stop(self, epoch_plan: Plan, cursor: int) -> int:
        """Where the update that begins at `cursor` ends."""
        size = self.batch_texts or self.batch_tokens
        return epoch_plan.stop(cursor, size, texts=self.batch_texts is not None)

    def updates_per_epoch(self, epoch: int = 0) -> int:
        """How many updates an epoch has."""
        size = self.batch_texts or self.batch_tokens
        return self.plan(epoch).updates(size, texts=self.batch_texts is not None)

    def updates(self, epoch: int = 0, cursor: int = 0) -> Iterator[Update]:
        """Updates from there on, epoch after epoch, without end."""
        while True:
            today = self.plan(epoch)
            while cursor < len(today):
                begin, cursor = cursor, self.stop(today, cursor)
                done = cursor == len(today)
                yield self._update(today, epoch, begin, cursor, 0 if done else cursor)
            epoch, cursor = epoch + 1, 0

    def _update(self, today: Plan, epoch: int, begin: int, stop: int, cursor: int) -> Update:
        ids = today.ids(begin, stop)
        lots = micro_batches(ids, today.bound, self.max_tokens, self.world, not self.packed)
        numbers = list(range(self.rank, len(lots), self.world))
        batches = [self._batch(epoch, lots[m], ids) for m in numbers]
        if cursor == 0:
            epoch += 1
        return Update(epoch, cursor, batches, numbers, ids)

    def _batch(self, epoch: int, lot: Ids, ids: Ids) -> Batch:
        """A micro-batch; an empty one (the ranks' uneven end) runs an example with weight 0."""
        batch = make_batch(
            [draw(self.examples, self.seed, epoch, int(i)) for i in (lot if len(lot) else ids[:1])],
            pad=self.examples.pad,
            packed=self.packed,
        )
        if not len(lot):
            for ask in batch.asks.values():
                ask.weight[:] = 0
            batch.count.update(dict.fromkeys(batch.count, 0.0))
        return batch


def draw(examples: Examples, seed: int, epoch: int, index: int) -> Example:
    """Example `index`, from a generator of its own; a failing layout is named."""
    if examples.copies:
        epoch %= examples.copies
    try:
        return examples.draw(epoch, index, np.random.default_rng([seed, epoch, index]))
    except (ValueError, IndexError, AssertionError) as error:
        raise DataError(f"example {index} of epoch {epoch} cannot be laid out: {error}") from error


def make_batch(examples: Sequence[Example], *, pad: int, packed: bool = True) -> Batch:
    """Pack examples best-fit into rows of one width (or one to a row) and collate them."""
    if not packed:
        return collate([[example] for example in examples], pad=pad)
    # towers are packed jointly: an example counts with its longest tower
    lengths = np.array([max(len(s) for s in e.towers.values()) for e in examples])
    longest = int(lengths.max())
    best: list[Ids] = []
    area = 0
    for width in {longest, min(2 * longest, max(longest, 256))}:
        rows = pack(lengths, width)
        size = len(rows) * max(int(lengths[row].sum()) for row in rows)
        if not best or (size, len(best)) < (area, len(rows)):
            best, area = rows, size
    return collate([[examples[i] for i in row] for row in best], pad=pad)


def fixed_batches(examples: Examples, max_tokens: int, *, packed: bool = True) -> Iterator[Batch]:
    """Each example once, in order, drawn from (0, 0, index): what validation reads."""
    bounds = examples.bounds(0)
    for lot in micro_batches(np.arange(len(bounds)), bounds, max_tokens, 1, not packed):
        drawn = [draw(examples, 0, 0, int(i)) for i in lot]
        yield make_batch(drawn, pad=examples.pad, packed=packed)


def prefetch(updates: Iterator[T], depth: int = 2) -> Generator[T, None, None]:
    """The same items of an endless iterator, made by a thread up to `depth` ahead; its errors are raised here."""
    ready: queue.Queue[T | BaseException] = queue.Queue(depth)
    stopped = threading.Event()

    def put(item: T | BaseException) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.1)
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
