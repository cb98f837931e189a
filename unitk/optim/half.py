"""AdamW and Muon whose means are kept in bf16, and rounded up or down at random.

A value between two of bf16 is rounded to the upper one with the probability of its distance from
the lower one (Zamirai et al. 2020, arXiv 2010.06192, section 3): on average nothing is lost. To the
nearest one, the second mean would stand still: a step changes it by less than half the distance
between two values of bf16.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unitk.optim.muon import Configured, Muon

BLOCK = {"cpu": 1 << 17, "cuda": 1 << 22}
"""Weights of a device that are updated at once; on a CPU their means in fp32 stay in its cache."""
MEANS = ("exp_avg", "exp_avg_sq")
LOWER = 0xFFFF  # the bits of fp32 that bf16 lacks
STRIDE = 7919
"""A prime: by so much the random numbers of a block begin later than those of the last."""


class HalfAdamW(Configured):
    """AdamW with a state of 4 bytes a weight, for weights in fp32 on a CPU or on CUDA.

    What is rounded up depends on the number of steps alone, so that a resumed run goes on as if it
    had not been stopped.
    """

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state; means in fp32 are rounded to the nearest bf16."""
        super().load_state_dict(state_dict)
        # torch has given the means the dtype of the weights
        for parameter, state in self.state.items():
            state |= {name: state[name].bfloat16() for name in MEANS}
            state["step"] = state["step"].to(parameter.device)

    def update(self) -> None:
        """Make one update with the gradients."""
        trained = [
            (parameter, group)
            for group in self.param_groups
            for parameter in group["params"]
            if parameter.grad is not None
        ]
        if not trained:
            return
        for parameter, _ in trained:
            self._count_step(parameter)
        device = trained[0][0].device
        step = int(torch.stack([state["step"] for state in self.state.values()]).max())
        noise = RoundingNoise(step, device)
        wide = torch.empty(2, noise.block, device=device)
        for parameter, group in trained:
            state = self.state[parameter]
            tables = parameter, parameter.grad.contiguous(), *(state[name] for name in MEANS)
            blocks = (table.view(-1).split(noise.block) for table in tables)
            for weight, grad, *means in zip(*blocks, strict=True):
                first, second = wide[:, : len(weight)]
                first.copy_(means[0])
                second.copy_(means[1])
                torch._fused_adamw_(
                    [weight],
                    [grad],
                    [first],
                    [second],
                    [],
                    [state["step"]],
                    lr=group["lr"],
                    beta1=self.config.betas[0],
                    beta2=self.config.betas[1],
                    weight_decay=group["weight_decay"],
                    eps=self.config.eps,
                    amsgrad=False,
                    maximize=False,
                )
                random = noise.next(len(weight))
                round_into(means[0], first, random)
                round_into(means[1], second, random)

    def _count_step(self, parameter: Tensor) -> None:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device)
            for name in MEANS:
                state[name] = torch.zeros_like(parameter, dtype=torch.bfloat16)
        state["step"] += 1


class HalfMuon(Muon):
    """Muon with a momentum of 2 bytes a weight, which is rounded as HalfAdamW's means are."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a state; momenta in fp32 are rounded to the nearest bf16."""
        super().load_state_dict(state_dict)
        for state in self.state.values():  # torch has given the momenta the dtype of the weights
            state["momentum"] = state["momentum"].bfloat16()
            state.setdefault("step", 0)

    def follow(self, parameters: list[Tensor], grads: list[Tensor], share: Any) -> list[Tensor]:
        device = parameters[0].device
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros(
                    parameter.shape, dtype=torch.bfloat16, device=device
                )
                state["step"] = 0
            state["step"] += 1
        noise = RoundingNoise(max(self.state[p]["step"] for p in parameters), device)
        directions = [grad.contiguous() for grad in grads]
        for parameter, direction in zip(parameters, directions, strict=True):
            means = self.state[parameter]["momentum"].view(-1).split(noise.block)
            for mean, grad in zip(means, direction.view(-1).split(noise.block), strict=True):
                wide = mean.float()
                wide.lerp_(grad, share)
                grad.lerp_(wide, self.config.momentum)  # before the momentum is rounded
                round_into(mean, wide, noise.next(len(wide)))
        return directions


class RoundingNoise:
    """The random numbers of an update, below 2^16; blocks of weights take theirs in turn."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self.block = BLOCK[device.type]
        self._numbers = draw(2 * self.block, seed, device)
        self._taken = 0  # blocks

    def next(self, count: int) -> Tensor:
        """Random numbers [count] for the next block; drawing new ones for each would cost more."""
        start = self._taken * STRIDE % self.block
        self._taken += 1
        return self._numbers[start:][:count]


def draw(count: int, seed: int, device: torch.device) -> Tensor:
    """Random whole numbers [count], each below 2^16; they depend on the seed and the device."""
    generator = torch.Generator(device).manual_seed(seed)
    words = torch.empty(count // 2, dtype=torch.int64, device=device)
    words.random_(-(1 << 63), None, generator=generator)  # two in each: drawing is what they cost
    return words.view(torch.int32).bitwise_and_(LOWER)


def round_into(to: Tensor, values: Tensor, random: Tensor) -> None:
    """Round fp32 `values`, which are overwritten, to the next bf16 away from or towards zero.

    A value is `to` on average over all `random` numbers below 2^16; one of bf16 stays as it is.
    """
    # the random number is carried into the bits that stay as often as those that are cut off say
    values.view(torch.int32).add_(random).bitwise_and_(~LOWER)
    to.copy_(values)
