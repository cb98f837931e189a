"""Optimizers over groups of named parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from unitk.optim.config import AdamWConfig, BertAdamConfig

FUSED = {"cpu", "cuda"}
"""Devices with one kernel for the whole update."""


def adamw(config: AdamWConfig, model: nn.Module, lr: float) -> torch.optim.AdamW:
    """AdamW over two groups, fused where the device has the kernel."""
    groups = parameter_groups(model.named_parameters(), config.weight_decay)
    devices = {parameter.device.type for group in groups for _, parameter in group["params"]}
    return torch.optim.AdamW(
        groups, lr=lr, betas=config.betas, eps=config.eps, fused=devices <= FUSED
    )


class BertAdam(torch.optim.Optimizer):
    """Devlin et al. 2019, official code: no bias correction, each tensor's gradient clipped."""

    def __init__(self, config: BertAdamConfig, model: nn.Module, lr: float) -> None:
        groups = parameter_groups(model.named_parameters(), config.weight_decay)
        super().__init__(groups, {"lr": lr})
        self.config = config

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """One update with the gradients, which are clipped in place."""
        config = self.config
        for group in self.param_groups:
            for parameter in group["params"]:
                if (grad := parameter.grad) is None:
                    continue
                if config.clip_norm:
                    nn.utils.clip_grad_norm_([parameter], config.clip_norm)
                state = self.state[parameter]
                for name in () if state else ("exp_avg", "exp_avg_sq"):
                    state[name] = torch.zeros_like(parameter)
                mean = state["exp_avg"].lerp_(grad, 1 - config.betas[0])
                square = state["exp_avg_sq"].lerp_(grad.square(), 1 - config.betas[1])
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.addcdiv_(mean, square.sqrt().add_(config.eps), value=-group["lr"])


def parameter_groups(
    named: Iterable[tuple[str, Tensor]], weight_decay: float
) -> list[dict[str, Any]]:
    """What decays and what does not: two groups of (name, parameter), in the model's order.

    Vectors (norms, biases) and whatever is called a bias do not decay; frozen parameters are in
    neither group.
    """
    decayed: list[tuple[str, Tensor]] = []
    plain: list[tuple[str, Tensor]] = []
    for name, parameter in named:
        if parameter.requires_grad:
            decays = parameter.dim() >= 2 and not name.endswith("bias")
            (decayed if decays else plain).append((name, parameter))
    return [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": plain, "weight_decay": 0.0},
    ]
