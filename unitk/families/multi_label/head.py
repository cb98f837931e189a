"""The head of several classes a text: a logistic regression for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from unitk.models.heads.base import Asked, Terms
from unitk.models.heads.labels import Pooled
from unitk.registry import register


@register("head", "classes")
class ClassesHead(Pooled):
    """Any number of classes of a text, from one slot, through a pooler.

    The label [K, C] has 1 for each class of the text and 0 for the others. The loss of a text is
    the mean of the classes' binary cross-entropies.
    """

    needs_size = True

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        """Logits [K, C]; a class is likelier than not above 0."""
        return self.pool(asked)

    def terms(self, output: Tensor, label: Tensor, price_K: Tensor, *smoothed: Any) -> Terms:
        loss_KC = F.binary_cross_entropy_with_logits(output.float(), label, reduction="none")
        return Terms(price_K * loss_KC.mean(-1))

    def mean(self, outputs: Sequence[Tensor]) -> Tensor:
        """The log-odds of the mean of the models' probabilities."""
        logits = torch.stack([*outputs]).float()
        # not of the mean itself, which is 1 in fp32 where all models are sure
        yes, no = (F.logsigmoid(sign * logits).logsumexp(0) for sign in (1, -1))
        return yes - no
