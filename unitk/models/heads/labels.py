"""Heads of labels: of texts and slots, of numbers, of the right text, of an answer's borders."""

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
class ClassHead(Pooled, Categorical):
    """Classes of a text, from one slot, or the sum of several, through a pooler."""

    needs_size = True

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        return self.scores(asked.states.sum(1))


@register("head", "tag")
class TagHead(Categorical):
    """Classes of single slots: a linear map."""

    needs_size = True

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None) -> None:
        super().__init__(config, vocab_size, size)
        self.out = nn.Linear(config.width, size or 1)

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        return self.out(asked.states[:, 0])


@register("head", "regress")
class RegressionHead(Pooled):
    """A number, from one slot, or the sum of several, through a pooler; the loss is the squared
    error."""

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        return self.scores(asked.states.sum(1))[:, 0]

    def terms(self, output: Tensor, label: Tensor, price_K: Tensor, *smoothed: Any) -> Terms:
        return Terms(price_K * (output.to(label.dtype) - label) ** 2)

    def mean(self, outputs: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(outputs)).mean(0)


@register("head", "choice")
class ChoiceHead(Pooled, Categorical):
    """One of several texts, each a doc of the example: a row reads a slot of each.

    The label is the text's number in the row. Each slot gets a score through a pooler (BERT).
    """

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        return self.scores(asked.states)[..., 0].masked_fill(~asked.real, -torch.inf)


@register("head", "span")
class SpanHead(Categorical):
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
