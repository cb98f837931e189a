"""What backward needs of a forward pass, held in less memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch
import torch.nn.functional as F
from torch import Tensor, nn
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
