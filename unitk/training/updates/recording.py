"""Whole updates as CUDA graphs (`--capture`): a GPU replays them without waiting for Python.

A recording has the shapes of one batch; what differs between updates lies in tensors that are
filled before it is replayed: the slots, the asks, the rates, and the weights of the asks' means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unitk.criterions.cross_entropy import CrossEntropy
from unitk.data.batching import Update
from unitk.errors import require
from unitk.kernels.products import compute_in
from unitk.slots import Batch
from unitk.training.device import derive_seed, reseed
from unitk.training.run import Run

Finish = Callable[[Mapping[str, Tensor], Tensor, Tensor], Tensor]
"""Makes the step of losses, their sum and the gradients' norm; returns what is read of it."""


@dataclass
class Recording:
    """An update of one shape."""

    batch: Batch
    numbers: Tensor  # the rates of the groups, and a factor of each loss
    names: list[str]  # of the losses
    graph: Any = None
    values: Tensor | None = None  # what the graph leaves to be read


class Recorder:
    """Records updates and replays them. The first one of a shape is made as ever."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.made: dict[Any, Recording | None] = {}
        self.pool: Any = None
        config, exact = run.config, run.criterion
        plain = type(exact) is CrossEntropy and not (exact.label_smoothing or exact.ar or exact.tar)
        require(config.static, "--capture needs --static: a recording has one shape")
        require(plain, "--capture needs --criterion cross_entropy without smoothing, ar and tar")
        other = config.thaw or config.average_last or run.ranks.world > 1
        require(not other, "--capture excludes --thaw, --average-last and several processes")

    def __call__(
        self, update: Update, counts: Mapping[str, float], finish: Finish
    ) -> tuple[list[str], Tensor] | None:
        """Make an update: the names of its losses, and what `finish` returned. None: it must be
        made as ever, as it is the first of its shape or has several batches."""
        if len(update.batches) != 1:
            return None
        (batch,) = update.batches
        names = [name for name in counts if counts[name] and name in batch.asks]
        key = (*(tuple(tensor.shape) for tensor in tensors_read(batch)), *names)
        if key not in self.made:
            self.made[key] = None
            return None  # which also makes the state of the optimizers, outside of any graph
        groups = self.run.plan.groups
        rates = [group["lr"] for group in groups]
        # what differs from update to update, and is no tensor of the batch
        values = [*rates, *(update.weight(name) / counts[name] for name in names)]
        recording = self.made[key]
        device = self.run.device
        if recording is None:
            # the tensors of this batch belong to the thread that copies batches
            numbers = torch.tensor(values, dtype=torch.float32, device=device)
            recording = self.made[key] = Recording(with_own_tensors(batch), numbers, [])
        else:
            recording.numbers.copy_(torch.tensor(values, dtype=torch.float32))
            pairs = zip(tensors_read(recording.batch), tensors_read(batch), strict=True)
            for recorded, tensor in pairs:
                recorded.copy_(tensor)
        # a replay reads the generator's seed; nothing may set it within a graph
        reseed(device, derive_seed(self.run.config.seed, self.run.progress.step, update.numbers[0]))
        for group, rate in zip(groups, recording.numbers.unbind(), strict=False):
            group["lr"] = rate
        try:
            self.replay(recording, names, finish)
        finally:
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate
        assert recording.values is not None
        return recording.names, recording.values

    def replay(self, recording: Recording, names: list[str], finish: Finish) -> None:
        """Run a recording, which is made if there is none; without CUDA its function is called."""
        if self.run.device.type != "cuda":
            recording.values = self.compute(recording, names, finish)
            return
        if recording.graph is None:
            recording.graph = torch.cuda.CUDAGraph()
            groups = self.run.plan.groups
            for group in groups:
                group["capturable"] = True  # torch's optimizers want to be told
            # another thread copies the next batches meanwhile
            with torch.cuda.graph(
                recording.graph, pool=self.pool, capture_error_mode="thread_local"
            ):
                recording.values = self.compute(recording, names, finish)
            # checkpoints and other updates have groups as ever
            for group in groups:
                group["capturable"] = False
            # of all recordings one at a time is replayed: they share their memory
            self.pool = recording.graph.pool()
        recording.graph.replay()

    def compute(self, recording: Recording, names: list[str], finish: Finish) -> Tensor:
        """Forward, backward and step: what is recorded."""
        run = self.run
        at = self.run.progress
        factors = dict(zip(names, recording.numbers[len(run.plan.groups) :].unbind(), strict=True))
        with compute_in(run.device, run.precision, at.products):
            loss = run.criterion(run.model, recording.batch, at.step, run.total)
        total = torch.stack([factors[name] * loss.sums[name] for name in names]).sum()
        run.ranks.backward(run.model, total)
        recording.names = [*loss.logged]
        # what is logged has no factors: the host divides sums by counts
        sums = {name: value.detach() for name, value in loss.logged.items()}
        return finish(sums, total.detach(), run.ranks.norm(run.plan.parameters))


def tensors_read(batch: Batch) -> list[Tensor]:
    """The tensors of a batch that a model of one tower reads: slots, documents and asks."""
    tensors = [*batch.towers.values(), *(docs.bounds for docs in batch.packed.values())]
    of_asks = (array for ask in batch.asks.values() for array in ask.arrays)
    return tensors + [array for array in of_asks if array is not None]


def with_own_tensors(batch: Batch) -> Batch:
    """A batch with tensors of its own where `tensors_read` finds them."""

    def clone(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.clone()

    return replace(
        batch,
        towers={name: table.clone() for name, table in batch.towers.items()},
        packed={
            name: replace(docs, bounds=clone(docs.bounds)) for name, docs in batch.packed.items()
        },
        asks={
            name: replace(
                ask,
                rows=clone(ask.rows),
                label=clone(ask.label),
                weight=clone(ask.weight),
                among=clone(ask.among),
            )
            for name, ask in batch.asks.items()
        },
    )
