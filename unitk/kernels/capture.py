"""Steps of decoding that a GPU records once and replays, which saves the launches of kernels.

A recording reads and writes the same memory whenever it is replayed. So the tables of a batch stay
where they are, and later batches of the same shapes are written into them (`Kept`). Batches are
filled up to a grid of shapes (`decoding.fit.fill_up`), so that shapes come again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from threading import Lock
from typing import Any, Generic, Literal, Protocol, TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from unitk.errors import require
from unitk.models.base import Decoder

SHARE = 8
"""Tables that recordings were made over take at most 1 / SHARE of a GPU's memory."""

RECORDING = Lock()
"""One thread records at a time."""
T = TypeVar("T")
W = TypeVar("W", bound="Recordable")

log = logging.getLogger(__name__)


class Recordable(Protocol):
    """A batch that is decoded step by step."""

    recorded: Any
    """None where it has no tables of its own."""

    @property
    def fixed(self) -> Hashable:
        """The values that two batches must share, besides shapes, to use one recorded step."""

    def tables(self) -> list[Tensor]:
        """All tensors that a step reads and that differ from batch to batch."""

    def count_on_device(self) -> None:
        """Count steps and columns in tensors on the device, as a recorded step must."""

    def keep(self, memory: Memory) -> None:
        """Give the work tensors of its own, so that steps over them can be recorded."""

    def go_on_from(self, other: Any) -> None:
        """Continue the batch `other` of the same shapes, whose tensors were copied into these."""


class Memory:
    """Memory of a GPU that the recordings of a model have in common: they are replayed one after
    the other, and what each makes on the way is not read afterwards."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.first: Any = None
        """A recording that stays: memory that all recordings have left cannot be recorded into."""

    def record(self, function: Callable[[], None]) -> Any:
        """A function as a graph; nothing is computed."""
        if self.first is None:
            self.first = self._record(lambda: torch.zeros(1, device=self.device), None)
        return self._record(function, self.first.pool())

    def _record(self, function: Callable[[], Any], pool: Any) -> Any:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.device(self.device):
            where = {"pool": pool, "stream": torch.cuda.Stream()}
            # what other threads do meanwhile, such as to pin memory, is no part of it
            with torch.cuda.graph(graph, **where, capture_error_mode="thread_local"):
                function()
        return graph


class Recorded:
    """A function without arguments as a CUDA graph: it reads and writes tensors in place.

    These must keep their memory addresses and shapes, and the function must not wait for a value.
    The first call is a warm-up, the second one records.
    """

    count = 0
    """How many were recorded in this process."""

    def __init__(self, function: Callable[[], None], memory: Memory) -> None:
        self.function = function
        self.memory = memory
        self.warm = False
        self.graph: Any = None

    def __call__(self) -> None:
        if not self.warm:
            self.warm = True
            self.function()
            return
        if self.graph is None:
            with RECORDING:
                self.graph = self.record()
            Recorded.count += 1
        self.graph.replay()

    def record(self) -> Any:
        """The function as a graph; nothing is computed."""
        return self.memory.record(self.function)


RECORDERS: dict[str, type[Recorded]] = {"cuda": Recorded}
"""Type of a device -> the class that records steps there."""


class LRUCache(Generic[T]):
    """A cache for later batches, from which the least recently used entries are dropped."""

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.kept = OrderedDict[Hashable, tuple[T, int]]()

    def take(self, key: Hashable) -> T | None:
        """Remove and return an entry."""
        return self.kept.pop(key, (None, 0))[0]

    def put(self, key: Hashable, value: T, size: int) -> None:
        """Keep something that takes this many bytes; the newest one stays, whatever its size."""
        self.kept[key] = value, size
        while len(self.kept) > 1 and sum(size for _, size in self.kept.values()) > self.max_bytes:
            self.kept.popitem(last=False)


def tensors_within(tree: object) -> Iterator[Tensor]:
    """The tensors within dataclasses, mappings and sequences, always in the same order."""
    if isinstance(tree, Tensor):
        yield tree
    elif is_dataclass(tree):
        yield from tensors_within([getattr(tree, field.name) for field in fields(tree)])
    elif isinstance(tree, Mapping):
        yield from tensors_within(list(tree.values()))
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from tensors_within(item)
    else:
        assert tree is None or isinstance(tree, int | float | str), f"tables in {type(tree)}"


class Kept:
    """The tables and recordings that batches of a model leave to later ones, by their shapes.

    Whoever decodes takes them out of the cache: two searches that go on in turns have tables each.
    """

    def __init__(self, model: Decoder) -> None:
        self.cache = LRUCache[Any](memory_limit(model.device))
        self.memory = Memory(model.device)
        self.weights = addresses(weights(model))

    def adopt(self, work: W) -> W:
        """The work in tables that an earlier batch of its shapes left, or else in its own."""
        work.count_on_device()
        tables = work.tables()
        kept: W | None = self.cache.take(recording_key(work, tables))
        if kept is None:
            work.keep(self.memory)
            return work
        for own, new in zip(kept.tables(), tables, strict=True):
            own.copy_(new)
        kept.go_on_from(work)
        return kept

    def give_back(self, work: Recordable) -> None:
        """Keep the tables of a batch that is done with them; none after an error."""
        if work.recorded is not None:
            tables = work.tables()
            self.cache.put(recording_key(work, tables), work, sum(table.nbytes for table in tables))


def recording_key(work: Recordable, tables: list[Tensor]) -> Hashable:
    """The key of tensors in the cache."""
    return work.fixed, tuple((table.dtype, table.shape) for table in tables)


KEPT: WeakKeyDictionary[Decoder, Kept] = WeakKeyDictionary()


def recordings(model: Decoder, capture: Literal["auto", "on", "off"]) -> Kept | None:
    """The cache of recorded steps of a model; None if steps are not recorded (--capture)."""
    alike = model.config.static_steps or capture != "on"
    require(alike, "--capture on excludes xlnet_* and LSTMs, whose steps cannot be recorded")
    if capture == "off" or not on_grid(model):
        return None
    own = weights(model)
    # weights that are trained between two batches are decoded without, unless it is asked for
    if capture == "auto" and any(weight.requires_grad for weight in own):
        return None
    if model not in KEPT or KEPT[model].weights != addresses(own):
        log.info("decoding steps are recorded and replayed (not with --capture off)")
        KEPT[model] = Kept(model)
    return KEPT[model]


def on_grid(model: Decoder) -> bool:
    """Whether batches of a model have sizes that come again, as recordings need them."""
    return model.config.static_steps and model.device.type in RECORDERS


def weights(model: Decoder) -> list[Tensor]:
    """A model's weights, without their names, which take milliseconds a batch to find."""
    parameters = (weight for part in model.modules() for weight in part.parameters(recurse=False))
    return list(parameters)


def addresses(weights: list[Tensor]) -> list[int]:
    """The addresses of weights in memory."""
    return [weight.data_ptr() for weight in weights]


def memory_limit(device: torch.device) -> int:
    """The bytes that the tables of recordings may take on a device."""
    if device.type != "cuda":
        return 1 << 30
    return int(torch.cuda.get_device_properties(device).total_memory) // SHARE
