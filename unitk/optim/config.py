"""Optimizers by name, and their options; torch is imported when one is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unitk.errors import UsageError
from unitk.registry import imported, register

if TYPE_CHECKING:
    from torch import nn
    from torch.optim import Optimizer


@register("optimizer", "adamw")
@dataclass(frozen=True, kw_only=True)
class AdamWConfig:
    """Adam with decoupled weight decay; the defaults are GLM's."""

    betas: tuple[float, float] = (0.9, 0.98)
    """Decay of the running means of the gradient and of its square."""
    eps: float = 1e-6
    """Added to the root of the second mean."""
    weight_decay: float = 0.1
    """Of matrices; biases and norms never decay."""

    def __post_init__(self) -> None:
        if not all(0 <= beta < 1 for beta in self.betas):
            given = ",".join(f"{beta:g}" for beta in self.betas)
            raise UsageError(f"--optimizer.betas must be in [0, 1), got {given}")
        if self.eps <= 0:
            raise UsageError(f"--optimizer.eps must be above 0, got {self.eps:g}")
        if self.weight_decay < 0:
            given = f"{self.weight_decay:g}"
            raise UsageError(f"--optimizer.weight-decay must be at least 0, got {given}")

    def build(self, model: nn.Module, lr: float) -> Optimizer:
        made: Optimizer = imported("unitk.optim.optimizers:adamw")(self, model, lr)
        return made


@register("optimizer", "bert_adam")
@dataclass(frozen=True, kw_only=True)
class BertAdamConfig(AdamWConfig):
    """BertAdam of BERT's and UniLM's official code: Adam without bias correction."""

    betas: tuple[float, float] = (0.9, 0.999)
    """Decay of the running means of the gradient and of its square."""
    weight_decay: float = 0.01
    """Of matrices; biases and norms never decay."""
    clip_norm: float = 1.0
    """Scale the gradient of each tensor with a larger norm down to it; 0: never. Their code does
    this instead of --clip-norm, which is for the whole gradient and comes first."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.clip_norm < 0:
            given = f"{self.clip_norm:g}"
            raise UsageError(f"--optimizer.clip-norm must be at least 0, got {given}")

    def build(self, model: nn.Module, lr: float) -> Optimizer:
        made: Optimizer = imported("unitk.optim.optimizers:BertAdam")(self, model, lr)
        return made
