"""Options of the criterion of cloze questions; torch is imported when it is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from unitk.criterions.config import OfTask
from unitk.registry import import_object, register

if TYPE_CHECKING:
    from unitk.criterions.base import Criterion
    from unitk.vocab.base import Vocab


@register("criterion", "cloze")
@dataclass(frozen=True, kw_only=True)
class ClozeConfig(OfTask):
    """The right answer's score against those of the other answers (GLM's `finetune_glm.py`)."""

    loss: Literal["cross_entropy", "hinge", "generative", "mixed"] = "cross_entropy"
    """Loss over the scores of the answers. cross_entropy: of their softmax. hinge: for each wrong
    answer, how far it is from scoring 1 less. generative: the negative log-probability of the right
    answer. mixed: cross_entropy plus generative."""

    def build(self, vocab: Vocab) -> Criterion:
        return import_object("unitk.families.cloze.criterion:ClozeCriterion")(self.loss)
