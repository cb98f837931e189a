"""The head that compares states of different widths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unitk.models.config import ModelConfig
from unitk.models.heads.base import Asked, Head, Terms
from unitk.registry import register


@register("head", "project")
class ProjectHead(Head):
    """A linear map of states to SIZE numbers, the teacher's width (TinyBERT, equation 8)."""

    needs_size = True

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None) -> None:
        super().__init__(config, vocab_size, size)
        self.out = nn.Linear(config.width, size or 1, bias=False)

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        return self.out(asked.states[:, 0])

    def terms(self, output: Tensor, label: Tensor, price_K: Tensor, *smoothed: Any) -> Terms:
        return Terms(price_K * (output - label).square().mean(-1))

    def mean(self, outputs: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(outputs)).mean(0)
