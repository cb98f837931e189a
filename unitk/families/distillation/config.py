"""Options of the criterion that learns from a teacher; torch is imported when it is built."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from unitk.errors import UsageError, require
from unitk.options.fields import Above, Checked, Weight
from unitk.registry import import_object, register

if TYPE_CHECKING:
    from unitk.criterions.base import Criterion
    from unitk.vocab.base import Vocab


@register("criterion", "distill")
@dataclass(frozen=True, kw_only=True)
class DistillConfig(Checked):
    """Cross-entropy, and the distance from a teacher: a trained model that reads the same texts."""

    KIND = "criterion"

    teacher: Path | None = None
    """Run folder or checkpoint of the teacher. It has the same vocabulary and the outputs that the
    task asks, and may have any other architecture with the same towers."""
    labels_weight: Weight = 0.5
    """Weight of the loss of the labels."""
    logits_weight: Weight = 0.5
    """Weight of the divergence of the outputs from the teacher's (Hinton et al. 2015, arXiv
    1503.02531). Of numbers, and of the logits of several classes a text (multi_label), the weight
    of the squared difference."""
    temperature: Above = 2.0
    """Number that divides the logits of both models before their softmax. The divergence is
    multiplied by its square, so that the gradient keeps its size (section 2)."""
    states_weight: Weight = 0.0
    """Weight of the distance of states (TinyBERT: Jiao et al. 2020, arXiv
    1909.10351, equations 8 and 9; PKD: Sun et al. 2019, arXiv 1908.09355)."""
    states_loss: Literal["mse", "normed", "cosine"] = "mse"
    """Distance of two states. mse: mean squared difference (TinyBERT). normed: the same of states
    divided by their lengths (PKD). cosine: 1 minus their cosine (DistilBERT: Sanh et al. 2019,
    arXiv 1910.01108)."""
    states_of: Literal["all", "first"] = "all"
    """Slots whose states are compared. all: those that are no pads. first: the first one of each
    text, which is [CLS] in BERT's layout (PKD)."""
    attention_weight: Weight = 0.0
    """Weight of the distance of the attention of each head from the teacher's. Both need the same
    number of heads."""
    attention_loss: Literal["divergence", "scores"] = "divergence"
    """Distance of two heads. divergence: of what each slot attends to (MiniLM: Wang et al. 2020,
    arXiv 2002.10957, equation 4). scores: mean squared difference of the scores before the softmax,
    over the keys that a slot sees (TinyBERT, equation 7)."""
    layers: tuple[str, ...] = ()
    """Pairs STUDENT=TEACHER of depths whose states, and layers whose attention, are compared: 0 are
    the embeddings, 1 the first layer. Default: all depths, evenly distributed over the teacher's
    (TinyBERT)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for pair in self.layers:
            if not re.fullmatch(r"\d{1,4}=\d{1,4}", pair):
                raise UsageError(f"--criterion.layers must be STUDENT=TEACHER,..., got {pair!r}")
        named = ("labels", "logits", "states", "attention")
        any_weight = any(getattr(self, f"{name}_weight") for name in named)
        require(any_weight, "--criterion distill: all weights are 0, so nothing is learned")
        # a map of depths is for what is compared by depth
        deep = self.states_weight > 0 or self.attention_weight > 0
        require(
            deep or not self.layers,
            "--criterion.layers has no effect without a weight of states or attention",
        )
        chosen = {"states": ("states_loss", "states_of"), "attention": ("attention_loss",)}
        chosen["logits"] = ("temperature",)
        for part, names in chosen.items():
            for name in names:
                idle = getattr(self, name) != getattr(type(self), name)
                idle = idle and not getattr(self, f"{part}_weight")
                require(
                    not idle,
                    f"--criterion.{name.replace('_', '-')} has no effect without "
                    f"--criterion.{part}-weight",
                )

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs of `layers`, as numbers."""
        return [(int(a), int(b)) for a, b in (pair.split("=") for pair in self.layers)]

    def build(self, vocab: Vocab) -> Criterion:
        return import_object("unitk.families.distillation.criterion:Distillation")(self, vocab)
