"""Heads of labels: of texts and slots, of numbers, of the right text, of an answer's borders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.models.config import ModelConfig
from unitk.models.heads.base import Asked, Categorical, Head, Terms
from unitk.models.heads.words import Transform
from unitk.registry import register

SQUASHES: dict[str, Any] = {"tanh": torch.tanh, "gelu": F.gelu, "relu": torch.relu}
"""`--arch.head-dense` -> the activation of a pooler's dense layer."""


def slot_transform(config: ModelConfig) -> nn.Module:
    """The layers of heads over single slots before their linear map (`--arch.head-dense`)."""
    return Transform(config, config.width) if config.head_dense == "transform" else nn.Identity()


class Pooled(Head):
    """Dense, tanh (BERT's pooler), linear; `--arch.head-dense` names others.

    Without the pooler, a linear map without a bias (Radford et al. 2018, section 3.2).
    """

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None) -> None:
        super().__init__(config, vocab_size, size)
        width = config.width
        self.activation = SQUASHES.get(config.head_dense)
        dense = config.head_pooler and self.activation is not None
        self.dense = nn.Linear(width, width) if dense else None
        self.transform = slot_transform(config)
        self.out = nn.Linear(width, size or 1, bias=config.head_pooler)

    def scores(self, states: Tensor) -> Tensor:
        """Outputs [..., size] of states [..., D]."""
        pooled = self.transform(states)
        if self.dense is not None:
            assert self.activation is not None
            pooled = self.activation(self.dense(pooled))
        return self.out(pooled)

    def pool(self, asked: Asked) -> Tensor:
        """Outputs [K, size] of texts: those of one slot, or of the sum of several."""
        return self.scores(asked.states.sum(1))


class OfMean(Pooled):
    """The outputs of the mean of all states of a text."""

    def pool(self, asked: Asked) -> Tensor:
        return self.scores(masked_mean(asked.states, asked.real))


class MeanOf(Pooled):
    """The mean of the outputs of all states of a text."""

    def pool(self, asked: Asked) -> Tensor:
        return masked_mean(self.scores(asked.states), asked.real)


def masked_mean(values_Kac: Tensor, real_Ka: Tensor) -> Tensor:
    """The mean [K, c] of the values of each row's real slots."""
    # a row that reads fewer slots than others has any state after its own
    weight_Ka = real_Ka.to(values_Kac.dtype)
    return torch.einsum("kac,ka->kc", values_Kac, weight_Ka) / weight_Ka.sum(1, keepdim=True)


@register("head", "class")
class ClassHead(Pooled, Categorical):
    """Classes of a text, from one slot, or the sum of several, through a pooler."""

    needs_size = True

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        return self.pool(asked)


@register("head", "class_mean")
class ClassMeanHead(OfMean, ClassHead):
    """Classes of a text, from the mean of all its states, through a pooler."""


@register("head", "class_late")
class ClassLateHead(MeanOf, ClassHead):
    """Classes of a text: the mean of what all its states give through a pooler (EuroBERT)."""


class SlotHead(Categorical):
    """Outputs of single slots by a linear map."""

    outputs = 0
    """How many there are, whatever size `--arch.heads` names; 0: as many as that."""

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None) -> None:
        super().__init__(config, vocab_size, size)
        self.transform = slot_transform(config)
        self.out = nn.Linear(config.width, self.outputs or size or 1)

    def scores(self, states: Tensor) -> Tensor:
        """Outputs [..., size] of states [..., D]."""
        return self.out(self.transform(states))


@register("head", "tag")
class TagHead(SlotHead):
    """Classes of single slots: a linear map."""

    needs_size = True

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        return self.scores(asked.states[:, 0])


@register("head", "regress")
class RegressionHead(Pooled):
    """A number, from one slot, or the sum of several, through a pooler.

    The loss is the squared error."""

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        return self.pool(asked)[:, 0]

    def terms(self, output: Tensor, label: Tensor, price_K: Tensor, *smoothed: Any) -> Terms:
        return Terms(price_K * (output.to(label.dtype) - label) ** 2)

    def mean(self, outputs: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(outputs)).mean(0)


@register("head", "regress_mean")
class RegressionMeanHead(OfMean, RegressionHead):
    """A number, from the mean of all states of a text."""


@register("head", "regress_late")
class RegressionLateHead(MeanOf, RegressionHead):
    """A number: the mean of what all states of a text give."""


@register("head", "choice")
class ChoiceHead(Pooled, Categorical):
    """One of several texts, each a doc of the example: a row reads a slot of each.

    The label is the text's number in the row. Each slot gets a score through a pooler (BERT).
    """

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        return self.scores(asked.states)[..., 0].masked_fill(~asked.real, -torch.inf)


@register("head", "span")
class SpanHead(SlotHead):
    """The first and the last slot of an answer (Devlin et al. 2019, section 4.2).

    A row reads the slots where its answer may be; the label [K, 2] are numbers within the row. The
    loss is the mean of the two cross-entropies, a likelihood is the product of both borders'.
    """

    outputs = 2

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        """Logits [K, 2, a]."""
        return self.scores(asked.states).mT.masked_fill(~asked.real[:, None], -torch.inf)

    def terms(self, output: Tensor, label: Tensor, price_K: Tensor, *smoothed: Any) -> Terms:
        # both borders of a row are compared as two rows
        price = (price_K / 2).repeat_interleave(2)
        terms = super().terms(output.flatten(0, 1), label.flatten(), price)
        assert terms.nll is not None and terms.correct is not None
        loss, nll, correct = (part.view(-1, 2) for part in (terms.loss, terms.nll, terms.correct))
        return Terms(loss.sum(1), nll.sum(1), correct.prod(1))
