"""The architecture and the task of MASS for translation.

Song et al. 2019, arXiv 1905.02450, section 3.3. Each language has an embedding, which is a segment
in unitk, and an output map in the decoder's cross-attention. `mass_xlm` reads the checkpoints.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Literal

import numpy as np

from unitk.data.cuts import Text
from unitk.errors import require
from unitk.models.archs import MASS as SUMMARIZING
from unitk.models.archs import Preset, sized
from unitk.models.config import EncoderDecoderConfig
from unitk.registry import register
from unitk.slots import Example, Ids, Slots
from unitk.tasks.mass import MASS


@dataclass(frozen=True, kw_only=True)
class TranslationConfig(EncoderDecoderConfig):
    """Two towers with an embedding for each language, which is a segment (MASS, XLM)."""

    cross_by_segment: bool = False
    """Give cross-attention its own output map for each segment, that is for each language."""

    cross_attention_type = "unitk.interop.mass_xlm:CrossBySegment"

    def __post_init__(self) -> None:
        super().__post_init__()
        several = self.num_segments > 0 or not self.cross_by_segment
        self._require("cross_by_segment", several, "off where --arch.num-segments is 0")

    @property
    def cross_maps(self) -> int:
        """The number of output maps of cross-attention."""
        return self.num_segments if self.cross_by_segment else 1

    def num_weights(self, vocab_size: int) -> int:
        layers = self.decoder_layers or self.num_layers
        more = (self.cross_maps - 1) * layers * self.width * self.heads_width
        return super().num_weights(vocab_size) + more


PRESET = "mass_translation"
BASE = TranslationConfig(**{f.name: getattr(SUMMARIZING, f.name) for f in fields(SUMMARIZING)})
register("arch", PRESET)(
    Preset(
        replace(
            sized(BASE, 6, 1024, 8),
            position_offset=0,
            embedding_scale=False,
            num_segments=2,
            cross_by_segment=True,
            shared_embeddings=False,
            output_bias=True,
            norm_eps=1e-12,
            activation_dropout=0.0,
        ),
        "MASS for translation, as XLM's code has it: two languages, 6 + 6 layers of 1024.",
    )
)


@register("task", PRESET)
class Translation(MASS):
    """MASS in several languages: pre-train in each, translate from one into another (XLM)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(MASS.Config):
        """The languages, and the distribution of spans.

        Pre-training texts are in the source language.
        """

        opening: Literal["cls", "sep", "both", "pad", "seps"] = "seps"
        languages: tuple[int, int] = (0, 0)
        """Language numbers of source and target."""

        def __post_init__(self) -> None:
            super().__post_init__()
            least = min(self.languages)
            require(least >= 0, f"--task.languages must be at least 0, got {least}")

    config: Config
    arch = PRESET

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        return self.spoken(super().pretrain(text, rng), alone=True)

    def prompt(self, source: list[Ids]) -> Example:
        return self.spoken(super().prompt(source), alone=len(self.run(source)) > 0)

    def reading(self, source: list[Ids]) -> Slots:
        slots = super().reading(source)
        slots.seg[:] = self.config.languages[0]
        return slots

    def spoken(self, example: Example, alone: bool) -> Example:
        """Give slots their language: source and target, or with `alone` that of the source."""
        source, target = self.config.languages
        example.towers["enc"].seg[:] = source
        example.towers["dec"].seg[:] = source if alone else target
        return example
