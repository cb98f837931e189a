"""Options of the criterion that compares vectors; torch is imported when it is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unitk.criterions.config import OfTask
from unitk.errors import require
from unitk.options.fields import Above
from unitk.registry import import_object, register

if TYPE_CHECKING:
    from unitk.criterions.base import Criterion
    from unitk.vocab.base import Vocab


@register("criterion", "contrastive")
@dataclass(frozen=True, kw_only=True)
class ContrastiveConfig(OfTask):
    """The source's similarity to its target against that to all other targets of the update."""

    temperature: Above = 0.05
    """Number that divides the cosines before their softmax (SimCSE: 0.05)."""
    symmetric: bool = False
    """Also compare each target with all sources, and take the mean of both losses."""
    widths: tuple[int, ...] = ()
    """First dimensions of the vectors that are vectors themselves: the loss is the mean over these
    widths (Matryoshka: Kusupati et al. 2022, arXiv 2205.13147). Default: all dimensions."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rising = all(a < b for a, b in zip((0, *self.widths), self.widths, strict=False))
        require(rising, f"--criterion.widths must rise from above 0, got {self.widths}")

    def build(self, vocab: Vocab) -> Criterion:
        return import_object("unitk.families.retrieval.criterion:Contrast")(self)
