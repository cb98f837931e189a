"""Heads over classes, and of numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from unitk.models.config import ModelConfig
from unitk.models.heads.base import Asked, Categorical, Head, Terms
from unitk.registry import register


class Pooled(Head):
    """Dense, tanh (BERT's pooler), linear.

    Without the pooler, a linear map without a bias (Radford et al. 2018, section 3.2).
    """

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None) -> None:
        super().__init__(config, vocab_size, size)
        self.dense = nn.Linear(config.width, config.width) if config.head_pooler else None
        self.out = nn.Linear(config.width, size or 1, bias=config.head_pooler)

    def scores(self, states: Tensor) -> Tensor:
        """Outputs [..., size] of states [..., D]."""
        pooled = states if self.dense is None else torch.tanh(self.dense(states))
        return self.out(pooled)


@register("head", "class")
class Classes(Pooled, Categorical):
    """Classes of a text, from one slot, or the sum of several, through a pooler."""

    needs_size = True

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        return self.scores(asked.states.sum(1))


@register("head", "tag")
class Tags(Categorical):
    """Classes of single slots: a linear map."""

    needs_size = True

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None) -> None:
        super().__init__(config, vocab_size, size)
        self.out = nn.Linear(config.width, size or 1)

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        return self.out(asked.states[:, 0])


@register("head", "regress")
class Regression(Pooled):
    """A number, from one slot, or the sum of several, through a pooler; the loss is the squared
    error."""

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        return self.scores(asked.states.sum(1))[:, 0]

    def terms(self, output: Tensor, label: Tensor, price_K: Tensor, *smoothed: Any) -> Terms:
        return Terms(price_K * (output.to(label.dtype) - label) ** 2)

    def mean(self, outputs: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(outputs)).mean(0)
