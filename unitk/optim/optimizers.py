"""Optimizers over groups of named parameters."""

from __future__ import annotations

import torch
from torch import nn

from unitk.optim.config import AdamWConfig, BertAdamConfig, Groups

FUSED = {"cpu", "cuda"}
"""Devices with one kernel for the whole update."""


def adamw(config: AdamWConfig, groups: Groups) -> torch.optim.AdamW:
    """AdamW, fused where the device has the kernel."""
    devices = {parameter.device.type for group in groups for _, parameter in group["params"]}
    return torch.optim.AdamW(groups, betas=config.betas, eps=config.eps, fused=devices <= FUSED)


class BertAdam(torch.optim.Optimizer):
    """Devlin et al. 2019, official code: no bias correction, each tensor's gradient clipped."""

    def __init__(self, config: BertAdamConfig, groups: Groups) -> None:
        super().__init__(groups, {})
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
