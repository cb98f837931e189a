"""Averages of the weights (`--ema`, `--average-last`), which validation and inference use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """After every update `average = (1 - share) * average + share * weights`, in fp32.

    A moving average has the share `1 - decay`; the mean of the `last` part of a run 1 / n at the
    n-th update of that part, and until then 1.
    """

    def __init__(self, model: nn.Module, decay: float | None, last: float | None = None) -> None:
        self.decay = decay
        self.last = last
        named = model.named_parameters()
        self.weights = {name: weight.data for name, weight in named if weight.requires_grad}
        self.tensors = {name: tensor.float().clone() for name, tensor in self.weights.items()}

    def update(self, step: int, total: int | None, bad: Tensor | None = None) -> None:
        """Include the weights after update `step` of `total`; not if `bad` is 1 on the device."""
        if self.decay is not None:
            share = 1 - self.decay
        else:
            assert self.last is not None and total is not None
            share = 1 / max(1, step - round((1 - self.last) * total))
        averages, weights = list(self.tensors.values()), list(self.weights.values())
        if bad is None or share == 1:  # after a bad update weights are still the averages
            torch._foreach_lerp_(averages, weights, share)
        else:
            change = torch._foreach_sub(weights, averages)
            torch._foreach_mul_(change, share * (1 - bad))
            torch._foreach_add_(averages, change)

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the averages from a checkpoint."""
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[name])

    @contextmanager
    def apply(self) -> Iterator[None]:
        """A context in which the model computes with the averages."""
        kept = {name: tensor.clone() for name, tensor in self.weights.items()}
        self._put(self.tensors)
        try:
            yield
        finally:
            self._put(kept)

    def _put(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in self.weights.items():
            tensor.copy_(tensors[name])
