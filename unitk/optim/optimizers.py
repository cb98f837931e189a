"""Optimizers over groups of named parameters."""

from __future__ import annotations

import torch
from torch import nn

from unitk.optim.config import AdamWConfig, Groups, MuonConfig
from unitk.optim.half import HalfAdamW, HalfMuon
from unitk.optim.muon import Configured, Muon

FUSED = {"cpu", "cuda"}  # devices with one kernel for the whole update


def adamw(config: AdamWConfig, groups: Groups) -> torch.optim.Optimizer:
    """AdamW, fused where the device has the kernel, or with means in bf16."""
    if config.state == "bf16":
        return HalfAdamW(config, groups)
    devices = {parameter.device.type for group in groups for _, parameter in group["params"]}
    return torch.optim.AdamW(groups, betas=config.betas, eps=config.eps, fused=devices <= FUSED)


def muon(config: MuonConfig, groups: Groups) -> Muon:
    """Muon, or with momenta in bf16."""
    return HalfMuon(config, groups) if config.state == "bf16" else Muon(config, groups)


def adafactor(groups: Groups) -> torch.optim.Adafactor:
    """Shazeer and Stern 2018, arXiv 1804.04235, algorithms 4 to 6."""
    # below its square, which fp32 has to hold, a second mean counts as that
    return torch.optim.Adafactor(groups, eps=(1e-15, 1e-3))


class BertAdam(Configured):
    """Devlin et al. 2019, official code: no bias correction, each tensor's gradient clipped."""

    def update(self) -> None:
        """One update with the gradients, which are clipped in place."""
        config = self.config
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            grads = [parameter.grad for parameter in parameters]
            for parameter in parameters:
                if config.clip_norm:
                    nn.utils.clip_grad_norm_([parameter], config.clip_norm)
                if not self.state[parameter]:
                    self.state[parameter]["exp_avg"] = torch.zeros_like(parameter)
                    self.state[parameter]["exp_avg_sq"] = torch.zeros_like(parameter)
            means = [self.state[parameter]["exp_avg"] for parameter in parameters]
            squares = [self.state[parameter]["exp_avg_sq"] for parameter in parameters]
            torch._foreach_lerp_(means, grads, 1 - config.betas[0])
            torch._foreach_mul_(squares, config.betas[1])
            torch._foreach_addcmul_(squares, grads, grads, 1 - config.betas[1])
            roots = torch._foreach_sqrt(squares)
            torch._foreach_add_(roots, config.eps)
            torch._foreach_mul_(parameters, 1 - group["lr"] * group["weight_decay"])
            torch._foreach_addcdiv_(parameters, means, roots, -group["lr"])


class Lamb(Configured):
    """You et al. 2020, arXiv 1904.00962, algorithm 2, with both means corrected for their bias."""

    def update(self) -> None:
        """One update with the gradients."""
        config = self.config
        first, second = self.config.betas
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                decay = group["weight_decay"]
                if not state:
                    state |= {"step": 0, "exp_avg": torch.zeros_like(parameter)}
                    state["exp_avg_sq"] = torch.zeros_like(parameter)
                state["step"] += 1
                mean = state["exp_avg"].lerp_(parameter.grad, 1 - first)
                square = state["exp_avg_sq"].lerp_(parameter.grad.square(), 1 - second)
                mean = mean / (1 - first ** state["step"])
                square = square / (1 - second ** state["step"])
                update = mean / (square.sqrt() + config.eps) + decay * parameter
                if config.always_adapt or decay:
                    weight, size = parameter.norm(), update.norm()
                    known = (weight > 0) & (size > 0)
                    update *= torch.where(known, weight / size, torch.ones_like(weight))
                parameter.sub_(update, alpha=group["lr"])
