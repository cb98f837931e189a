"""Optimizers over groups of named parameters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from unitk.optim.config import AdamWConfig

FUSED = {"cpu", "cuda"}
"""Devices with one kernel for the whole update."""


def adamw(config: AdamWConfig, model: nn.Module, lr: float) -> torch.optim.AdamW:
    """AdamW over two groups, fused where the device has the kernel."""
    groups = parameter_groups(model.named_parameters(), config.weight_decay)
    devices = {parameter.device.type for group in groups for _, parameter in group["params"]}
    return torch.optim.AdamW(
        groups, lr=lr, betas=config.betas, eps=config.eps, fused=devices <= FUSED
    )


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
