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
            parameters = [one for one in group["params"] if one.grad is not None]
            if not parameters:
                continue
            grads = [one.grad for one in parameters]
            for one in parameters:
                if config.clip_norm:
                    nn.utils.clip_grad_norm_([one], config.clip_norm)
                for name in () if self.state[one] else ("exp_avg", "exp_avg_sq"):
                    self.state[one][name] = torch.zeros_like(one)
            means = [self.state[one]["exp_avg"] for one in parameters]
            squares = [self.state[one]["exp_avg_sq"] for one in parameters]
            torch._foreach_lerp_(means, grads, 1 - config.betas[0])
            torch._foreach_mul_(squares, config.betas[1])
            torch._foreach_addcmul_(squares, grads, grads, 1 - config.betas[1])
            roots = torch._foreach_sqrt(squares)
            torch._foreach_add_(roots, config.eps)
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_addcdiv_(parameters, means, roots, -group["lr"])
