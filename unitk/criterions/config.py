"""Criterions by name, and their options; torch is imported when one is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from unitk.errors import require
from unitk.registry import imported, register

if TYPE_CHECKING:
    from unitk.criterions.base import Criterion
    from unitk.vocab.base import Vocab


@register("criterion", "cross_entropy")
@dataclass(frozen=True, kw_only=True)
class CrossEntropyConfig:
    """Negative log-likelihood of the labels, which are words or classes."""

    label_smoothing: float = 0.0
    """Share of each label's weight that is spread over other words."""
    smoothed_over: Literal["all", "others"] = "all"
    """What it is spread over. all: the whole vocabulary. others: all but the label and [PAD], and
    the loss is the divergence from these targets, which sharp predictions cannot beat (UniLM)."""
    z_loss: float = 0.0
    """Weight of the square of the logarithm of the softmax's denominator, which keeps logits from
    drifting (PaLM: 1e-4; Chowdhery et al. 2022, arXiv 2204.02311, section 5). Words only."""

    def __post_init__(self) -> None:
        given = self.label_smoothing
        require(0 <= given < 1, f"--criterion.label-smoothing must be in [0, 1), got {given}")
        idle = self.smoothed_over != "all" and not given
        require(not idle, "--criterion.smoothed-over has no effect without a label-smoothing")
        require(self.z_loss >= 0, f"--criterion.z-loss must be at least 0, got {self.z_loss:g}")

    def build(self, vocab: Vocab) -> Criterion:
        pad = vocab.pad if self.smoothed_over == "others" else None
        build = imported("unitk.criterions.cross_entropy:CrossEntropy")
        made: Criterion = build(self.label_smoothing, pad, self.z_loss)
        return made


@register("criterion", "cloze")
@dataclass(frozen=True, kw_only=True)
class ClozeConfig:
    """The right answer's score against those of the other answers (GLM's `finetune_glm.py`)."""

    loss: Literal["cross_entropy", "hinge", "generative", "mixed"] = "cross_entropy"
    """cross_entropy: of the softmax over the answers' scores; hinge: for each other answer what it
    lacks of scoring 1 less; generative: the right answer's negative log-probability; mixed: the sum
    of the first and the third one."""

    def build(self, vocab: Vocab) -> Criterion:
        build = imported("unitk.criterions.cloze:Cloze")
        made: Criterion = build(self.loss)
        return made
