"""Options of the criterion of several labelled corpora; torch is imported when it is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from unitk.criterions.config import OfTask
from unitk.registry import import_object, register

if TYPE_CHECKING:
    from unitk.criterions.base import Criterion
    from unitk.vocab.base import Vocab

JOINT = "labels"
"""The loss of all corpora together."""
TAKEN = (JOINT, "lm")
"""Names in the log that no corpus may have."""


@register("criterion", "mtdnn")
@dataclass(frozen=True, kw_only=True)
class MTDNNConfig(OfTask):
    """The mean over the labels of all corpora: cross-entropies, and squared errors of numbers."""

    def build(self, vocab: Vocab) -> Criterion:
        return import_object("unitk.families.mtdnn.criterion:JointCrossEntropy")()
