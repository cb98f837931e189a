"""The evaluation of an autoencoder by `unitk evaluate --data`; its measures import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

from unitk.errors import require
from unitk.evaluation.base import CorpusEvaluation, Judged, Progress
from unitk.options.fields import Bound, Positive
from unitk.registry import import_object, register

if TYPE_CHECKING:
    from unitk.evaluation.objective import Setup


@register("evaluation", "latent")
@dataclass(frozen=True, kw_only=True)
class LatentMeasures(CorpusEvaluation):
    """Measures of a latent: bound, divergence, mutual information, what is written again."""

    beam: Annotated[int, Bound(0, 10_000)] = 1
    """Optimus: beam size when a text is decoded from the mean of its latent. 1: greedy. 0: nothing
    is decoded."""
    max_len: Positive | None = None
    """Optimus: maximum tokens of a decoded text. Default: the length of the longest text."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(self.beam > 0 or self.max_len is None, "--max-len has no effect with --beam 0")

    @classmethod
    def fits(cls, setup: Setup) -> bool:
        return bool(import_object("unitk.families.latent.measures.corpus:has_latent")(setup))

    def judge(self, setup: Setup, progress: Progress) -> Judged:
        judged: Judged = import_object("unitk.families.latent.measures.corpus:judge")(
            self, setup, progress
        )
        return judged
