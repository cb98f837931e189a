"""A moving average of the weights, which validation and whoever uses the model take (`--ema`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn


class Average:
    """After every update `average = decay * average + (1 - decay) * weights`, in fp32."""

    def __init__(self, model: nn.Module, decay: float) -> None:
        self.decay = decay
        self.weights = {name: parameter.data for name, parameter in model.named_parameters()}
        self.tensors = {name: tensor.float().clone() for name, tensor in self.weights.items()}

    def update(self) -> None:
        """Take the weights of an update in."""
        torch._foreach_lerp_(
            list(self.tensors.values()), list(self.weights.values()), 1 - self.decay
        )

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Go on from what a checkpoint holds."""
        for name, tensor in self.tensors.items():
            tensor.copy_(tensors[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While entered, the model computes with the averages."""
        kept = {name: tensor.clone() for name, tensor in self.weights.items()}
        self._put(self.tensors)
        try:
            yield
        finally:
            self._put(kept)

    def _put(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in self.weights.items():
            tensor.copy_(tensors[name])
