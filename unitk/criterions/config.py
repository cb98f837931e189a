"""Criterions by name, and their options; torch is imported when one is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unitk.errors import UsageError
from unitk.registry import register

if TYPE_CHECKING:
    from unitk.criterions.base import Criterion


@register("criterion", "cross_entropy")
@dataclass(frozen=True, kw_only=True)
class CrossEntropyConfig:
    """Negative log-likelihood of the labels, which are words or classes."""

    label_smoothing: float = 0.0
    """Share of each label's weight that is spread over the whole vocabulary."""

    def __post_init__(self) -> None:
        if not 0 <= self.label_smoothing < 1:
            given = self.label_smoothing
            raise UsageError(f"--criterion.label-smoothing must be in [0, 1), got {given}")

    def build(self, vocab_size: int) -> Criterion:
        from unitk.criterions.cross_entropy import CrossEntropy

        return CrossEntropy(self.label_smoothing)
