"""Attention within documents, one after the other, by FlashAttention's kernel: on CUDA, 16 bits.

No mask is made and nothing is computed for pairs of different documents. Dropout of the weights is
drawn within the kernel, from the device's generator.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from unitk.packed import PackedDocs


@dataclass(frozen=True)
class Flash:
    """Attention of a batch's slots to those of their documents."""

    packed: PackedDocs
    dropout: float

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """As `View.__call__`: [B, H, T, K], [B, G, T, K] twice -> [B, H, T, K]."""
        rows, width = query.shape[0], query.shape[2]
        dtype = query.dtype
        inputs = query, key.to(dtype), value.to(dtype)
        line = tuple(tensor.transpose(1, 2).flatten(0, 1) for tensor in inputs)
        mixed_NHK = attend(line, self.packed, width, self.dropout, scale)
        return mixed_NHK.unflatten(0, (rows, width)).transpose(1, 2)


def attend(
    line: tuple[Tensor, ...], packed: PackedDocs, longest: int, dropout: float, scale: float
) -> Tensor:
    """Attend from slots [N, H, K] to keys and values [N, G, K], those of all rows in a line.

    No document has more than `longest` slots.
    """
    # `varlen_attn`, which calls the same kernel, has no dropout (torch 2.13)
    arguments = *line, packed.bounds, packed.bounds, longest, longest, dropout, packed.causal, False
    mixed_NHK: Tensor = torch.ops.aten._flash_attention_forward(*arguments, scale=scale)[0]
    return mixed_NHK


def fits(slots: Tensor, dtype: torch.dtype, key_width: int) -> bool:
    """Whether the kernel computes attention over these slots in this dtype."""
    return (
        slots.is_cuda
        and torch.cuda.get_device_capability(slots.device) >= (8, 0)
        and dtype.itemsize == 2
        and key_width % 8 == 0
        and key_width <= 256
    )
