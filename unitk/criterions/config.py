"""Criterions by name, and their options; torch is imported when one is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from unitk.errors import require
from unitk.options.fields import Checked, Rate, Weight
from unitk.registry import import_object, register

if TYPE_CHECKING:
    from unitk.criterions.base import Criterion
    from unitk.vocab.base import Vocab


class OfTask(Checked):
    """Options of a criterion that learns only from tasks that have it as their default."""

    KIND = "criterion"
    mixes = False
    """Whether it knows the asks of a mixture, which have the names of their tasks before them."""


@register("criterion", "cross_entropy")
@dataclass(frozen=True, kw_only=True)
class CrossEntropyConfig(Checked):
    """Negative log-likelihood of the labels, which are words or classes."""

    KIND = "criterion"

    label_smoothing: Rate = 0.0
    """Share of the weight of each label that is spread over other words."""
    smoothed_over: Literal["all", "others"] = "all"
    """Words that the share is spread over. all: the whole vocabulary. others: all but the label and
    [PAD]; the loss is then the divergence from these targets (UniLM)."""
    z_loss: Weight = 0.0
    """Weight of the squared logarithm of the softmax's denominator, which keeps logits from
    drifting (PaLM: 1e-4; Chowdhery et al. 2022, arXiv 2204.02311, section 5). For words only."""
    ar: Weight = 0.0
    """Weight of the mean square of the states, as dropout leaves them, in training (AR; ULMFiT: 2;
    Merity et al. 2017, arXiv 1708.01009)."""
    tar: Weight = 0.0
    """Weight of the mean square of the differences between neighbouring states, before dropout, in
    training (TAR; ULMFiT: 1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        idle = self.smoothed_over != "all" and not self.label_smoothing
        require(not idle, "--criterion.smoothed-over has no effect without a label-smoothing")

    def build(self, vocab: Vocab) -> Criterion:
        pad = vocab.pad if self.smoothed_over == "others" else None
        build = import_object("unitk.criterions.cross_entropy:CrossEntropy")
        return build(self.label_smoothing, pad, self.z_loss, self.ar, self.tar)
