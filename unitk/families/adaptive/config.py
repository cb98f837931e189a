"""The options of adaptive masking; torch is imported when its criterion is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unitk.criterions.config import OfTask
from unitk.options.fields import Positive, Rate
from unitk.registry import import_object, register

if TYPE_CHECKING:
    from unitk.criterions.base import Criterion
    from unitk.vocab.base import Vocab

DRAW, COUNT = "x.draw", "hidden"
"""Inputs of a batch: a number for each token that may be hidden, and how many of a text are."""
DIFFICULTY = "difficulty:tokens"
"""The head that keeps how hard each token of the vocabulary is."""


@register("criterion", "adaptive")
@dataclass(frozen=True, kw_only=True)
class AdaptiveConfig(OfTask):
    """Cross-entropy at hidden tokens, which are chosen by how hard they are (adaptive masking)."""

    every: Positive = 200
    """Updates after which the weights of tokens change (Edman and Fraser 2025, arXiv 2510.20475,
    section 3)."""
    kept: Rate = 0.2
    """Share of a weight that stays when it changes; the rest is the share of wrong predictions
    since the last change (lambda)."""

    def build(self, vocab: Vocab) -> Criterion:
        return import_object("unitk.families.adaptive.criterion:AdaptiveMasking")(
            self.every, self.kept
        )
