"""What backward needs of a forward pass, held in less memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks


class Dropout(nn.Dropout):
    """Dropout whose mask takes a byte a value on CPU too, and a 64-bit random number for four.

    There, the chance is rounded to 1 / 65536.
    """

    def forward(self, x: Tensor) -> Tensor:
        if not (self.training and self.p and x.is_cpu) or torch.compiler.is_compiling():
            return F.dropout(x, self.p, self.training)
        dropped = min(max(round(self.p * 65536), 1), 65535)
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
        rows: Tensor = _Rows.apply(self.weight, index)  # type: ignore[no-untyped-call]
        return rows


class _Rows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, index: Tensor) -> Tensor:
        ctx.weight, ctx.index = weight, index
        return F.embedding(index, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[None, None]:
        weight, index = ctx.weight, ctx.index

        def add() -> None:
            if weight.grad is None:
                weight.grad = torch.zeros_like(weight)
            weight.grad.index_add_(0, index.flatten(), g.flatten(0, -2))

        torch.autograd.Variable._execution_engine.queue_callback(add)
        return None, None


def applied_again(
    function: Callable[[Tensor], Tensor], x: Tensor, y: Tensor
) -> AbstractContextManager[None]:
    """While entered, whoever keeps y = function(x) for backward keeps x and computes y again."""

    def pack(kept: Tensor) -> tuple[Tensor, torch.Size | None]:
        own = kept.data_ptr() == y.data_ptr() and kept.numel() == y.numel()
        return (x.detach(), kept.shape) if own and kept.is_contiguous() else (kept, None)

    def unpack(packed: tuple[Tensor, torch.Size | None]) -> Tensor:
        kept, shape = packed
        return kept if shape is None else function(kept).view(shape)

    return saved_tensors_hooks(pack, unpack)
