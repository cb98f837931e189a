"""Muon: momentum whose matrices are orthogonalised before they are added to the weights.

Jordan et al. 2024, https://kellerjordan.github.io/posts/muon; the scale is that of Liu et al. 2025,
arXiv 2502.16982, section 2.2: an update is as large as AdamW's, so that learning rates and weight
decay carry over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from unitk.kernels.products import computes_in_bf16
from unitk.optim.config import Groups

COEFFICIENTS = (3.4445, -4.775, 2.0315)
"""Factors of X, XX'X and XX'XX'X in an iteration: small singular values rise fastest."""
ITERATIONS = 5
EPS = 1e-7  # what a matrix with a smaller norm is divided by
SCALE = 0.2  # about the root of the mean square of AdamW's updates
BATCH = 1 << 25  # values of the matrices that are orthogonalised at once


class MatrixStep(NamedTuple):
    """The step of a parameter, before its direction is orthogonalised."""

    parameter: Tensor
    direction: Tensor
    fused: int  # how many matrices the parameter stacks
    rate: Any  # the factor of the step: a number, or a tensor where the update is recorded


class Configured(torch.optim.Optimizer):
    """An optimizer that reads its options as `config`, and the rates of its groups."""

    def __init__(self, config: Any, groups: Groups) -> None:
        super().__init__(groups, {})
        self.config = config

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Make one update."""
        self.update()

    def update(self) -> None:
        """Make one update with the gradients, of which none is computed."""
        raise NotImplementedError


class Muon(Configured):
    """Muon, for matrices. A group's "matrices" is how many a parameter stacks vertically."""

    gather: Callable[[Tensor], Tensor] | None = None
    """With --shard: the whole of a tensor of which each rank has some rows."""
    divide: Callable[[Tensor, Tensor], Tensor] | None = None
    """With --shard: this rank's rows of a whole tensor, as those of a parameter."""
    found_inf: Tensor | None = None
    """1 on the device if no update is to be made, else 0; None: the host says so."""

    def update(self) -> None:
        """Make one update with the gradients, which are overwritten."""
        alike: dict[tuple[int, ...], list[MatrixStep]] = {}
        for group in self.param_groups:
            pairs = zip(group["params"], group["matrices"], strict=True)
            fused = {parameter: count for parameter, count in pairs if parameter.grad is not None}
            if not fused:
                continue
            parameters = [*fused]
            grads = [parameter.grad for parameter in fused]
            keep = 1 if self.found_inf is None else 1 - self.found_inf
            if self.found_inf is not None:
                grads = zero_if_bad(grads, self.found_inf)
            directions = self.follow(parameters, grads, keep * (1 - self.config.momentum))
            torch._foreach_mul_(parameters, 1 - keep * (group["lr"] * group["weight_decay"]))
            for parameter, direction in zip(parameters, directions, strict=True):
                sides = sorted((len(parameter) // fused[parameter], parameter.shape[1]))
                update = MatrixStep(parameter, direction, fused[parameter], group["lr"])
                alike.setdefault((*sides,), []).append(update)
        # one product for all matrices of a shape: alone, small ones leave a GPU idle
        for (_, longer), updates in alike.items():
            size = max(1, BATCH // max(update.parameter.numel() for update in updates))
            for at in range(0, len(updates), size):
                self._add(updates[at : at + size], SCALE * longer**0.5)

    def follow(self, parameters: list[Tensor], grads: list[Tensor], share: Any) -> list[Tensor]:
        """Move the momenta by a share of their distance to the gradients, which are overwritten.

        Returns Nesterov's look ahead, which gives the steps.
        """
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter]["momentum"] = torch.zeros_like(parameter)
        momenta = [self.state[parameter]["momentum"] for parameter in parameters]
        if isinstance(share, Tensor):
            change = torch._foreach_sub(grads, momenta)
            torch._foreach_mul_(change, share)
            torch._foreach_add_(momenta, change)
        else:
            torch._foreach_lerp_(momenta, grads, share)
        torch._foreach_lerp_(grads, momenta, self.config.momentum)  # the look ahead
        return grads

    def _add(self, updates: list[MatrixStep], scale: float) -> None:
        """Add the steps of parameters whose matrices have one shape, or its transpose."""
        directions = [update.direction for update in updates]
        if self.gather is not None:
            directions = [self.gather(direction) for direction in directions]
        matrices: list[Tensor] = []
        for update, direction in zip(updates, directions, strict=True):
            matrices += map(wide, direction.chunk(update.fused))
        steps = orthogonal(torch.stack(matrices), self.dtype(matrices[0].device)).float()
        if self.found_inf is not None:
            steps = steps * (1 - self.found_inf)
        counts = [update.fused for update in updates]
        for update, direction, own in zip(updates, directions, steps.split(counts), strict=True):
            rows = len(direction) // update.fused
            step = (own if own.shape[1] == rows else own.mT).reshape(direction.shape)
            if self.divide is not None:
                step = self.divide(step, update.parameter)
            if isinstance(update.rate, Tensor):
                update.parameter.sub_(step * (update.rate * scale))
            else:
                update.parameter.add_(step, alpha=-update.rate * scale)

    def dtype(self, device: torch.device) -> torch.dtype:
        """The precision in which a device orthogonalises matrices."""
        chosen = self.config.precision
        if chosen == "auto":
            chosen = "bf16" if computes_in_bf16(device) else "fp32"
        return torch.bfloat16 if chosen == "bf16" else torch.float32


def zero_if_bad(grads: Sequence[Tensor], bad: Tensor) -> list[Tensor]:
    """Copies of gradients, zeros if `bad` is 1: a product with 0 would not remove NaN."""
    line = torch.cat([grad.flatten() for grad in grads]).masked_fill_(bad.bool(), 0.0)
    copies = line.split([grad.numel() for grad in grads])
    return [copy.view(grad.shape) for copy, grad in zip(copies, grads, strict=True)]


def wide(matrix: Tensor) -> Tensor:
    """The matrix, or its transpose if that has fewer rows: the iteration multiplies R x R."""
    return matrix.T.contiguous() if len(matrix) > matrix.shape[1] else matrix


def orthogonal(matrices_NRC: Tensor, dtype: torch.dtype) -> Tensor:
    """Approximately UV' of each matrix USV' with R <= C, by five Newton-Schulz iterations.

    The singular values end between about 0.5 and 1.2; it matters only that none is much smaller.
    """
    a, b, c = COEFFICIENTS
    norm_N11 = matrices_NRC.norm(dim=(1, 2), keepdim=True).clamp(min=EPS)
    x_NRC: Tensor = (matrices_NRC / norm_N11).to(dtype)
    for _ in range(ITERATIONS):
        gram_NRR = x_NRC @ x_NRC.mT
        factor_NRR = torch.baddbmm(gram_NRR, gram_NRR, gram_NRR, beta=b, alpha=c)
        x_NRC = torch.baddbmm(x_NRC, factor_NRR, x_NRC, beta=a)
    return x_NRC
