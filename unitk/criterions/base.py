"""The interface of a criterion."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from unitk.errors import require, show_value
from unitk.slots import Ask, Batch


@dataclass(frozen=True)
class Loss:
    """Sums over one micro-batch, keyed by the ask's name; the loop divides, once per update."""

    sums: dict[str, Tensor]  # what is minimised
    parts: dict[str, Tensor]  # detached sums for the log, "NAME/PART", divided by the count of NAME
    carry: Mapping[str, Tensor] = field(default_factory=dict)
    """The states that stateful rows carry to the next update (`Batch.carry`)."""

    @property
    def logged(self) -> dict[str, Tensor]:
        """All sums that are logged."""
        return {**self.sums, **self.parts}

    def weigh(self, weight: Callable[[str], float], counts: Mapping[str, float]) -> Tensor | None:
        """This micro-batch's part of the loss of an update: each sum by its ask's weight and the
        ask's count in the whole update. None if there is nothing to minimise."""
        # an ask that the whole update does not ask has no mean
        means = [
            weight(name) * total / counts[name]
            for name, total in self.sums.items()
            if counts.get(name)
        ]
        return torch.stack(means).sum() if means else None


def check_loss(loss: Any, counts: Any, name: str) -> None:
    """Refuse what a criterion, which errors call `name`, returns for sums and their counts."""
    good = isinstance(loss, Loss) and all(
        isinstance(total, Tensor) and total.dim() == 0 for total in loss.logged.values()
    )
    what = f"{name} must return a Loss of sums, each a tensor of one number"
    require(good, f"{what}, got {show_value(loss)}")
    good = isinstance(counts, dict) and loss.sums.keys() <= counts.keys()
    what = f"{name}: counts must return a number for each of {', '.join(loss.sums)}"
    require(good, f"{what}, got {show_value(counts)}")


class Trainable(Protocol):
    """The interface of a model that a criterion uses."""

    training: bool
    heads: Any

    def condition(self, batch: Batch) -> Any: ...

    def __call__(self, batch: Batch, condition: Any) -> tuple[dict[str, Tensor], Any]: ...

    def answer(
        self,
        states: Mapping[str, Tensor],
        batch: Batch,
        asks: Sequence[Ask],
        price_K: Tensor | None = None,
        *smoothed: Any,
    ) -> Any:
        """Loss, nll and correct of the rows of asks of one tower and head (`heads.base.Terms`)."""


def totals(
    terms: Any, asks: Sequence[Ask]
) -> Iterator[tuple[Tensor, Tensor | None, Tensor | None]]:
    """Sums over the rows of each ask: the loss, and by weight nll and how many are right.

    A head without probabilities has the loss alone.
    """
    stop = 0
    for ask in asks:  # whose rows follow one another
        start = stop
        stop = start + len(ask.label)
        rows = slice(start, stop)
        # products and sums, not `@`, which autocast would do in 16 bits
        nll, correct = (
            None if term is None else (ask.weight * term[rows]).sum()
            for term in (terms.nll, terms.correct)
        )
        yield terms.loss[rows].sum(), nll, correct


class Criterion(Protocol):
    """Compares the model's predictions at the asked rows with the labels."""

    def counts(self, batch: Batch) -> dict[str, float]:
        """The divisor of each sum, before the counts of the whole update are added up.

        It is known before the first backward pass.
        """

    def __call__(self, model: Trainable, batch: Batch, step: int, total: int | None) -> Loss:
        """The sums at update `step` (from 0) of `total`, if the end is known."""


@runtime_checkable
class Undivided(Protocol):
    """An optional property of a criterion: its loss is not a sum over texts."""

    def whole_update(self) -> str:
        """The option that requires an update to be one micro-batch; empty if none does."""


def whole_update_option(criterion: Any) -> str:
    """The option that requires an update to be one micro-batch; empty if none does."""
    return criterion.whole_update() if isinstance(criterion, Undivided) else ""


@runtime_checkable
class Learning(Protocol):
    """An optional method of a criterion that keeps something beside the weights in the model."""

    def learn(self, model: Any, total: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
        """Take in what the micro-batches of an update were; `total` adds tensors of all ranks.

        It is called once for an update, on every rank, before the optimizer steps.
        """


@dataclass(frozen=True)
class Panel:
    """A report on a model that training shows every --panel-every updates."""

    values: dict[str, float]  # for the log, by full name ("panel/kl")
    lines: list[str]  # the same, for a person
    warning: str = ""  # what is wrong, and the remedy


@runtime_checkable
class Watching(Protocol):
    """An optional method of a criterion that reports more about the model than the loss."""

    def panel(
        self, model: Any, batches: Sequence[Batch], step: int, total: int | None
    ) -> Panel | None:
        """Report on the model after update `step` (from 0), or None if there is nothing to show.

        `batches` hold the same texts each time, one example a row, on the model's device. The model
        is in eval mode, without gradients. The method must not draw from a global generator.
        """
