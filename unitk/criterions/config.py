"""Criterions by name, and their options; torch is imported when one is built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from unitk.errors import UsageError, require
from unitk.registry import imported, register
from unitk.values import Schedule, parse_schedule

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

    def __post_init__(self) -> None:
        given = self.label_smoothing
        require(0 <= given < 1, f"--criterion.label-smoothing must be in [0, 1), got {given}")
        idle = self.smoothed_over != "all" and not given
        require(not idle, "--criterion.smoothed-over has no effect without a label-smoothing")

    def build(self, vocab: Vocab) -> Criterion:
        pad = vocab.pad if self.smoothed_over == "others" else None
        build = imported("unitk.criterions.cross_entropy:CrossEntropy")
        made: Criterion = build(self.label_smoothing, pad)
        return made


KLMode = Literal["mask", "hinge", "mean-hinge", "sum"]


@register("criterion", "elbo")
@dataclass(frozen=True, kw_only=True)
class ELBOConfig:
    """Reconstruction and divergence of a variational autoencoder, in nats a text.

    Validation takes the beta that the schedule rises to, so that its losses compare.
    """

    beta: Schedule = field(default_factory=lambda: parse_schedule("cyclical", "--criterion.beta"))
    """Weight of the divergence: cyclical (Optimus: half of a cycle 0, a quarter rising), a number,
    or constant:warmup=0.5, which rises over half of the run and stays."""
    kl_mode: KLMode = "mask"
    """How dimensions below the threshold count. mask: not at all (Optimus' code); hinge: as the
    threshold (its equation 9, the same gradient); mean-hinge: hinge of the mean over the batch
    (Kingma et al. 2016, arXiv 1606.04934), which must be one micro-batch; sum: no threshold."""
    kl_threshold: float = 0.5
    """Nats that each dimension may have for nothing (Optimus' lambda)."""
    length_weighted: bool = False
    """Divide a text's reconstruction by its length with begin and end, but not its divergence."""
    aggressive_steps: int = 0
    """Updates of the encoder alone before each one of both (He et al. 2019, arXiv 1901.05534)."""
    aggressive_share: float = 0.2
    """Share of the run after which there are no such updates any more."""

    def __post_init__(self) -> None:
        limit = self.kl_threshold
        require(limit >= 0, f"--criterion.kl-threshold must be at least 0, got {limit:g}")
        steps, share = self.aggressive_steps, self.aggressive_share
        require(steps >= 0, f"--criterion.aggressive-steps must be at least 0, got {steps}")
        require(0 < share <= 1, f"--criterion.aggressive-share must be in (0, 1], got {share:g}")
        name, end = type(self.beta).__name__.lower(), self.beta(1 << 20, 1 << 20)
        if end < self.beta.value:
            raise UsageError(
                f"--criterion.beta {name} falls to {end:g}, which leaves the divergence free;"
                " constant:warmup=0.5 rises over half of the run"
            )

    def build(self, vocab: Vocab) -> Criterion:
        made: Criterion = imported("unitk.latent.elbo:ELBO")(self)
        return made
