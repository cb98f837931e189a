"""Languages: the architecture and the tasks of MASS for translation.

Song et al. 2019, arXiv 1905.02450, section 3.3. Each language has an embedding, which is a segment
in unitk, and an output map in the decoder's cross-attention. `format.py` reads the checkpoints.
Back-translation reads a text y and the number of the language into which the model translates it
(`into`); `back.py` puts that translation x in the place of the encoder's y.

             enc                          dec              enc, once it is translated
    token    S  a  b  c  S                S  a  b  c       S  x  y  S
    seg      0  0  0  0  0                0  0  0  0       1  1  1  1
    cross    .  .  .  .  .                                 1  1  1  1
    label    .  .  .  .  .                a  b  c  S
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from unitk.criterions.config import OfTask
from unitk.data.cuts import Text
from unitk.errors import require
from unitk.models.archs import MASS as SUMMARIZING
from unitk.models.archs import resize
from unitk.models.base import Preset
from unitk.models.config import EncoderDecoderConfig
from unitk.options.fields import Count, Rate, Weight
from unitk.registry import import_object, register
from unitk.slots import Example, Ids, Slots
from unitk.tasks.mass import MASS
from unitk.tasks.seq2seq import Seq2Seq

if TYPE_CHECKING:
    from unitk.criterions.base import Criterion
    from unitk.vocab.base import Vocab


@dataclass(frozen=True, kw_only=True)
class TranslationConfig(EncoderDecoderConfig):
    """Two towers with an embedding for each language, which is a segment (MASS, XLM)."""

    cross_by_segment: bool = False
    """Give cross-attention its own output map for each segment, that is for each language."""

    cross_attention_type = "unitk.families.translation.format:CrossBySegment"

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
        further = (self.cross_maps - 1) * layers * self.width * self.heads_width
        return super().num_weights(vocab_size) + further


PRESET = "mass_translation"
INTO = "into"
"""The input with the language into which a text is translated; only back-translation has it."""
BASE = TranslationConfig(**asdict(SUMMARIZING))
register("arch", PRESET)(
    Preset(
        replace(
            resize(BASE, 6, 1024, 8),
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


class Multilingual(Seq2Seq):
    """A source in one language and a target in another, each of whose slots says which."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Seq2Seq.Config):
        """The languages, and what is before source and target."""

        opening: Literal["cls", "sep", "both", "pad", "seps"] = "seps"
        languages: tuple[Count, Count] = (0, 0)
        """Language numbers of source and target, where a corpus has none of its own (unitk
        preprocess --languages). Pre-training texts are in the source language."""

    config: Config
    arch = PRESET

    def for_corpus(self, manifest: Mapping[str, Any]) -> Multilingual:
        configured = self.config.languages
        languages = manifest.get("languages", configured)
        if len(languages) == 1:  # of texts; they are translated into the other language
            languages = [
                *languages,
                next(
                    (language for language in configured if language != languages[0]), languages[0]
                ),
            ]
        return self.with_attributes(config=replace(self.config, languages=tuple(languages)))

    def prompt(self, source: list[Ids]) -> Example:
        return set_languages(super().prompt(source), *self.config.languages)

    def reading(self, source: list[Ids]) -> Slots:
        slots = super().reading(source)
        slots.seg[:] = self.config.languages[0]
        return slots


@register("task", PRESET)
class Translation(Multilingual, MASS):
    """MASS in several languages: pre-train in each, translate from one into another (XLM)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Multilingual.Config, MASS.Config):
        """The languages, and the distribution of spans."""

    config: Config

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        language, _ = self.config.languages
        return set_languages(super().pretrain(text, rng), language, language)

    def prompt(self, source: list[Ids]) -> Example:
        example = super().prompt(source)
        language, _ = self.config.languages
        return set_languages(example, language, language) if len(self.run(source)) else example


@register("task", "back_translation")
class BackTranslation(Multilingual):
    """Write texts, given translations of them by the model as it is (on-the-fly back-translation).

    Texts of two languages train both directions.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(Multilingual.Config):
        """The languages between which texts are translated."""

        languages: tuple[Count, Count] = (0, 1)
        """The two languages. Texts are in the first, unless their corpus says another."""

        def __post_init__(self) -> None:
            super().__post_init__()
            first, second = self.languages
            require(
                first != second, f"--task.languages must be two languages, got {first},{second}"
            )

    config: Config
    criterion = needs_criterion = "back_translation"
    writes = True

    def slots(self, n: Ids) -> Ids:
        return self.frame + longest_translation(n)

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        first, second = self.config.languages
        example = set_languages(self.finetune([text.ids], text.ids, rng), first, first)
        example.towers["enc"].cross[:] = 0  # the decoder is to read its translation
        return replace(example, inputs={INTO: np.array([second])})


def set_languages(example: Example, source: int, target: int) -> Example:
    """The example with the encoder's slots in one language and the decoder's in another."""
    example.towers["enc"].seg[:] = source
    example.towers["dec"].seg[:] = target
    return example


def longest_translation(n: Ids) -> Ids:
    """The most tokens of translations of texts of `n` tokens (XLM: 1.3 n + 5)."""
    return 13 * n // 10 + 5


@register("criterion", "back_translation")
@dataclass(frozen=True, kw_only=True)
class BackTranslationConfig(OfTask):
    """Cross-entropy of texts given their translations, which the model writes before each update.

    Sennrich et al. 2016, arXiv 1511.06709; of both directions at once, Lample et al. 2018, arXiv
    1711.00043, section 2.4. No gradient passes through a translation. Pairs are learnt as they are.
    """

    mixes = True

    label_smoothing: Rate = 0.0
    """Share of the weight of each label that is spread over all other words."""
    temperature: Weight = 0.0
    """Temperature at which translations are sampled. 0: greedy search (XLM)."""

    def build(self, vocab: Vocab) -> Criterion:
        build = import_object("unitk.families.translation.back:BackTranslating")
        return build(self.label_smoothing, temperature=self.temperature, vocab=vocab)
