"""Linear maps with low-rank matrices beside their own, and the sum of both as one matrix."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.errors import require
from unitk.families.lora.config import PLACES
from unitk.kernels.lean import Dropout
from unitk.models.attention import Fused
from unitk.models.model import Model

if TYPE_CHECKING:
    from unitk.families.lora.config import LoRA

A, B = "lora_a.weight", "lora_b.weight"
INSIDE = re.compile(r"(^|\.)layers\.\d+\.(attention|cross_attention|ffn)$")
"""The parts of a model whose matrices may be adapted."""


class LowRank(nn.Module):
    """A linear map, and a low-rank one of the same inputs that is added to it.

    Its matrix keeps its name. Several that are stacked have low-rank matrices of their own, which
    are stacked, too: A [count * rank, in], B [count * out, rank].
    """

    def __init__(self, linear: nn.Linear, config: LoRA) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.count = linear.count if isinstance(linear, Fused) else 1
        self.rank, self.scale = config.rank, config.scale
        self.dropout = Dropout(config.dropout)
        outputs = linear.out_features // self.count
        # nn.Linear draws A from the uniform law of Hu et al.'s code
        self.lora_a = Fused(linear.in_features, config.rank, self.count, bias=False)
        self.lora_b = Fused(config.rank, outputs, self.count, bias=False)
        nn.init.zeros_(self.lora_b.weight)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.lora_a(self.dropout(x)) * self.scale
        plain = F.linear(x, self.weight, self.bias)
        if self.count == 1:
            return plain + F.linear(inner, self.lora_b.weight)
        # one product for all that are stacked: c of them, of r rows each
        inner_cNr = inner.flatten(0, -2).unflatten(-1, (self.count, self.rank)).transpose(0, 1)
        outer_cro = self.lora_b.weight.unflatten(0, (self.count, -1)).mT
        added_cNo = torch.bmm(inner_cNr, outer_cro)
        return plain + added_cNo.transpose(0, 1).reshape(plain.shape)


def apply(config: LoRA, model: Model) -> None:
    """Put low-rank matrices beside those of a model that `config` names."""
    matched = {
        f"{model.stored_name(part)}.{child}": (module, child, linear)
        for part, module in model.named_modules()
        for child, linear in module.named_children()
        # the gates of heads are a few numbers, and no one matrix of attention
        if INSIDE.search(part) and isinstance(linear, nn.Linear) and child != "gate"
    }
    require(matched, "--adapter lora: this architecture has no matrix that is adapted")
    for place in config.on.split("+"):
        require(
            any(replace(config, on=place).adapts(name) for name in matched),
            f"--adapter: on={place} fits no matrix of this model; use {', '.join(PLACES)}, or "
            f"patterns of names such as {next(iter(matched))}",
        )
    adapted = [module for name, module in matched.items() if config.adapts(name)]
    # a matrix that is stacked of several is as high as one of them
    ranks = list[int]()
    for *_, linear in adapted:
        height = len(linear.weight) // getattr(linear, "count", 1)
        ranks.append(min(height, linear.in_features))
    most = max(ranks)
    require(
        config.rank <= most,
        f"--adapter: rank must be at most {most}, the rank of the largest matrix that is adapted, "
        f"got {config.rank}",
    )
    for module, child, linear in adapted:
        setattr(module, child, LowRank(linear, config).train(linear.training))


def merge_adapters(config: LoRA, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a model without adapters that computes the same: W + alpha / rank B A."""
    merged = {name: tensor for name, tensor in tensors.items() if not name.endswith((A, B))}
    for name in tensors:
        if name.endswith(A):
            stem = name.removesuffix(A)
            added = delta_of(config, tensors[name], tensors[stem + B])
            merged[f"{stem}weight"] = tensors[f"{stem}weight"].float() + added
    return merged


def delta_of(config: LoRA, lower: Tensor, upper: Tensor) -> Tensor:
    """The product that A and B add to a matrix [out, in]; stacked matrices have one each."""
    count = len(lower) // config.rank
    parts = zip(lower.chunk(count), upper.chunk(count), strict=True)
    return torch.cat([config.scale * (b.float() @ a.float()) for a, b in parts])
