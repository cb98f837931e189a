"""Heads over the slots that a row reads: borders of an answer, the right one of several texts."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from unitk.models.config import ModelConfig
from unitk.models.heads.base import Asked, Categorical, Terms
from unitk.models.heads.classes import Pooled
from unitk.registry import register


@register("head", "choice")
class Choice(Pooled, Categorical):
    """One of several texts, each a doc of the example: a row reads a slot of each.

    The label is the text's number in the row. Each slot gets a score through a pooler (BERT).
    """

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        return self.scores(asked.states)[..., 0].masked_fill(~asked.real, -torch.inf)


@register("head", "span")
class Span(Categorical):
    """The first and the last slot of an answer (Devlin et al. 2019, section 4.2).

    A row reads the slots where it may stand; the label [K, 2] are numbers within the row. The loss
    is the mean of the two cross-entropies, a likelihood is the product of both borders'.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None) -> None:
        super().__init__(config, vocab_size, size)
        self.out = nn.Linear(config.width, 2)

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        """Logits [K, 2, a]."""
        scores_K2a: Tensor = self.out(asked.states).mT
        return scores_K2a.masked_fill(~asked.real[:, None], -torch.inf)

    def terms(self, output: Tensor, label: Tensor, price_K: Tensor, *smoothed: Any) -> Terms:
        # both borders of a row are compared as two rows
        price = (price_K / 2).repeat_interleave(2)
        both = super().terms(output.flatten(0, 1), label.flatten(), price)
        assert both.nll is not None and both.correct is not None
        loss, nll, correct = (part.view(-1, 2) for part in (both.loss, both.nll, both.correct))
        return Terms(loss.sum(1), nll.sum(1), correct.prod(1))
