"""Updates whose loss and norm the host reads one update late, while the GPU computes the next one.

A bad update (NaN or infinity) is skipped by the optimizers on the device. When the host reads of
it, weights and optimizers are still those before it: it is made again, with a wait, which counts
and reports it as ever, and so is the update after it. What is logged, skipped and saved is that of
updates that wait.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from unitk.data.batching import Update
from unitk.training.run import Run
from unitk.training.updates.recording import Recorder


class UpdatingRun(Run):
    """A run that makes updates: the `Trainer`."""

    @abstractmethod
    def begin(self, update: Update) -> dict[str, float]:
        """Set the rates of an update; returns the counts of its asks, of all ranks."""

    @abstractmethod
    def compute(self, update: Update) -> Passed:
        """Forward and backward of each micro-batch, and the gradients' norm."""

    @abstractmethod
    def update_waiting(self, update: Update) -> None:
        """Make an update and wait for its loss and norm; one that is not finite is skipped."""

    @abstractmethod
    def record(self, computed: Passed, norm: float, update: Update) -> None:
        """Record the losses and the gradient norm of an update."""


@dataclass(frozen=True)
class Passed:
    """The results of the forward and backward passes of an update, besides gradients."""

    sums: dict[str, Tensor]
    """The sums of losses and their parts over all ranks."""
    counts: Mapping[str, float]
    total: Tensor
    """The loss that was minimised."""
    norm: Tensor
    """The norm of the gradients."""


@dataclass(frozen=True)
class Pending:
    """An update that has not been read."""

    update: Update
    position: tuple[int, int]  # the step and the epoch in which it was made
    names: list[str]  # of the sums
    counts: Mapping[str, float]
    read: Callable[[], Tensor]


def can_defer(run: Run) -> bool:
    """Whether the updates of a run need not wait for the device."""
    plain = run.precision != "fp16" and not run.ranks.sharded and not run.config.stateful_rows
    return run.device.type == "cuda" and plain and run.plan.skips


class Late:
    """Makes updates whose loss and norm the host reads one update later."""

    def __init__(self, run: UpdatingRun) -> None:
        self.run = run
        self.pending: Pending | None = None
        self.recorder = Recorder(run) if run.config.capture else None

    def update(self, update: Update) -> None:
        """Make an update; the results of the one before are read while the device computes."""
        at = self.run.progress
        recorded = None
        position = at.step, at.epoch
        if self.recorder is not None:
            self.read_pending()  # the step of this one is in its recording
            counts = self.run.begin(update)
            recorded = self.recorder(update, counts, self.finish)
        if recorded is None:
            computed = self.run.compute(update)
            # the device is busy with this one while the host reads the one before
            if not self.read_pending():
                computed = self.run.compute(update)
            counts = dict(computed.counts)
            recorded = [*computed.sums], self.finish(computed.sums, computed.total, computed.norm)
        names, values = recorded
        self.pending = Pending(update, position, names, counts, start_reading(values))

    def finish(self, sums: Mapping[str, Tensor], total: Tensor, norm: Tensor) -> Tensor:
        """Make the step unless loss or norm are not finite, which the device decides without a
        wait; returns a tensor of the norm, the loss and its sums."""
        run = self.run
        plan = run.plan
        figures = torch.stack(
            [norm.double(), total.double(), *(sum_of_ask.double() for sum_of_ask in sums.values())]
        )
        bad = (~figures[:2].isfinite().all()).float()
        if (largest := run.config.clip_norm) > 0:
            # as where the host decides: a norm that is not above it changes nothing
            run.ranks.clip(plan.parameters, largest, torch.where(norm > largest, norm, 0.0))
        plan.step(bad)
        if run.average is not None:
            run.average.update(run.progress.step + 1, run.total, bad)
        plan.zero_grad()
        return figures

    def read_pending(self) -> bool:
        """Read the last update, and make it again with a wait if it was not finite.

        Returns whether it was finite.
        """
        if self.pending is None:
            return True
        pending = self.pending
        self.pending = None
        run = self.run
        at = run.progress
        norm, total, *sums = pending.read().unbind()
        run.norm = float(norm)
        if math.isfinite(run.norm) and math.isfinite(total):
            sum_of = dict(zip(pending.names, sums, strict=True))
            run.record(Passed(sum_of, pending.counts, total, norm), run.norm, pending.update)
            return True
        run.plan.zero_grad()  # the gradients of the next update, which is computed again
        now = at.step, at.epoch
        at.step, at.epoch = pending.position
        try:
            run.update_waiting(pending.update)
        finally:
            at.step, at.epoch = now
        return False


def start_reading(values: Tensor) -> Callable[[], Tensor]:
    """Begin to copy values to the host; returns a function that waits until they are there."""
    if not values.is_cuda:
        return lambda: values
    on_host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    on_host.copy_(values, non_blocking=True)
    arrived = torch.cuda.Event()
    arrived.record()

    def read() -> Tensor:
        arrived.synchronize()
        return on_host

    return read
