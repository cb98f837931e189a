"""Operations that keep less memory for the backward pass."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks

from unitk.models.config import ModelConfig


class Dropout(nn.Dropout):
    """Dropout whose mask takes a byte a value on CPU too, and a 64-bit random number for four.

    There, the chance is rounded to 1 / 65536.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.p):
            return x
        if not x.is_cpu or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        dropped = min(max(round(self.p * 65536), 1), 65535)
        # four masks of 16 bits in each number: drawing is what a mask costs on a CPU
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
        bits = words.view(torch.int16)[: x.numel()].view(x.shape)
        return x * (bits >= dropped - 32768) * (65536 / (65536 - dropped))


class Table(nn.Embedding):
    """An embedding that may add its rows' gradients to `weight.grad` when backward is at its end.

    Only `backward` has them then, not `torch.autograd.grad`. Where the table is the output matrix
    too, autograd would make a second gradient as large, most of it zeros, and a third of the sum.
    """

    lean = False

    def forward(self, index: Tensor) -> Tensor:
        learns = self.training and torch.is_grad_enabled() and self.weight.requires_grad
        if not (self.lean and learns):
            return super().forward(index)
        return _Rows.apply(self.weight, index)  # type: ignore[no-untyped-call]


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, index: Tensor) -> Tensor:
        ctx.weight = weight
        ctx.index = index
        return F.embedding(index, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[None, None]:
        weight, index = ctx.weight, ctx.index

        def add() -> None:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            weight.grad.index_add_(0, index.flatten(), g.flatten(0, -2))

        # after all other gradients of this pass: autograd's own sum would not know of these rows
        torch.autograd.Variable._execution_engine.queue_callback(add)
        return None, None


class RMSNorm(nn.Module):
    """States over their root mean square, times a weight if there is one."""

    def __init__(self, width: int, eps: float, elementwise_affine: bool = True):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(width)) if elementwise_affine else None

    def forward(self, x_BTD: Tensor) -> Tensor:
        unit_BTD = unit_rms(x_BTD, self.eps)
        return unit_BTD if self.weight is None else unit_BTD * self.weight.type_as(x_BTD)


def norm(config: ModelConfig, width: int = 0, inside: bool = False) -> nn.Module:
    """A norm of the configured kind, of the model's width unless another is given.

    One `inside` a layer's parts has no weights, as the map that follows has its own.
    """
    if inside and not config.norm_inside:
        return nn.Identity()
    sizes = width or config.width, config.norm_eps, not inside
    return RMSNorm(*sizes) if config.norm == "rms" else nn.LayerNorm(*sizes, config.norm_bias)


def map_normed(norm: nn.Module, linear: nn.Module, x: Tensor) -> Tensor:
    """Apply a norm and then a linear map: linear(norm(x)).

    A norm without weights before a map without a bias is one factor for each row of the outputs;
    where a map has fewer outputs than inputs, it is cheaper there.
    """
    if not (isinstance(norm, RMSNorm) and norm.weight is None and linear.bias is None):
        return linear(norm(x))
    y = linear(x)
    factor = _factor if torch.compiler.is_compiling() else _Factor.apply
    return y * factor(x, norm.eps).type_as(y)


def _factor(x: Tensor, eps: float) -> Tensor:
    """One over the root of the mean square plus eps of each row, in 32 bits at least."""
    # unlike `x.square().mean()` it makes no table as large as x, whose memory is new each time
    norm = torch.linalg.vector_norm(
        x, dim=-1, keepdim=True, dtype=torch.promote_types(x.dtype, torch.float32)
    )
    return (norm.square() / x.shape[-1] + eps).rsqrt()


class _Factor(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        factor = _factor(x, eps)
        ctx.save_for_backward(x, factor)
        return factor

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        x, factor = ctx.saved_tensors
        return x * (-g * factor**3 / x.shape[-1]).type_as(x), None


class _Unit(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, eps: float) -> Tensor:
        factor = _factor(x, eps)
        y = (x * factor).type_as(x)
        ctx.save_for_backward(y, factor)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        y, factor = ctx.saved_tensors  # once: recomputed ones are given once
        y = y.to(factor.dtype)
        wide_g = g.to(factor.dtype)
        dx = wide_g * y
        along = dx.mean(-1, keepdim=True)
        return torch.addcmul(wide_g, y, along, value=-1, out=dx).mul_(factor).type_as(g), None


def unit_rms(x: Tensor, eps: float) -> Tensor:
    """States over the root of their mean square plus eps, which has 32 bits at least.

    Backward keeps the result, which what comes next keeps as well. A GPU has one kernel for it,
    and a compiler makes one.
    """
    if not x.is_cpu or torch.compiler.is_compiling():
        return F.rms_norm(x, x.shape[-1:], eps=eps)
    return _Unit.apply(x, eps)  # type: ignore[no-untyped-call]


def apply_again(
    function: Callable[[Tensor], Tensor], x: Tensor, y: Tensor
) -> AbstractContextManager[None]:
    """While entered, an operation that keeps y = function(x) for backward keeps x instead.

    Backward computes y again: once for all operations that keep it, until the last one has it.
    """
    keepers, waiting = 0, 0
    again: list[Tensor] = []

    def pack(kept: Tensor) -> tuple[Tensor, torch.Size | None]:
        nonlocal keepers
        # y itself or a view of all of it, such as a linear map flattens; dropout's is another
        own = kept.data_ptr() == y.data_ptr() and kept.numel() == y.numel()
        own = own and kept.is_contiguous()
        keepers += own
        return (x.detach(), kept.shape) if own else (kept, None)

    def unpack(packed: tuple[Tensor, torch.Size | None]) -> Tensor:
        nonlocal waiting
        kept, shape = packed
        if shape is None:
            return kept
        if not again:
            again.append(function(kept))
            waiting = keepers
        waiting -= 1
        return (again[0] if waiting else again.pop()).view(shape)

    return saved_tensors_hooks(pack, unpack)
