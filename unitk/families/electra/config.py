"""The registered components of ELECTRA: architectures and criterion; torch is imported later.

Clark et al. 2020, arXiv 2003.10555, sections 3.1 and 3.2, appendix A; the sizes are table 6's.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import TYPE_CHECKING

from unitk.criterions.config import OfTask
from unitk.models.archs import BERT, CPU, TESTS, for_cpu, resize, tiny
from unitk.models.base import Preset
from unitk.models.config import ModelConfig
from unitk.options.fields import Count, Weight
from unitk.registry import import_object, register

if TYPE_CHECKING:
    from unitk.criterions.base import Criterion
    from unitk.vocab.base import Vocab

DETECT = "detect:replaced"
"""The head that tells replaced tokens from those of the text."""


@dataclass(frozen=True, kw_only=True)
class ElectraConfig(ModelConfig):
    """BERT that tells replaced tokens, with a smaller generator that fills masks (ELECTRA).

    The options are the discriminator's. The generator has the same tables of embeddings, and the
    output layer over the vocabulary.
    """

    generator_divisor: Count = 4
    """Number that divides the width, the heads and the feed-forward width in the generator (paper:
    4; base: 3). 0: no generator, as in a released discriminator."""
    generator_layers: Count = 0
    """Layers of the generator. 0: as many as the model has (paper)."""
    network = "unitk.families.electra.network:Generating"

    def __post_init__(self) -> None:
        super().__post_init__()
        parts = self.generator_divisor
        least = min(self.width, self.ffn_width)
        self._require("generator_divisor", parts <= least, f"at most {least}")
        idle = not self.generator_layers or parts > 0
        self._require("generator_layers", idle, "0 without a generator")
        for name in ("layer_heads", "layer_groups"):
            self._require(name, not (parts and getattr(self, name)), "left out with a generator")

    @property
    def generator(self) -> ModelConfig | None:
        """The settings of the generator, which begin with the model's embeddings."""
        if not (parts := self.generator_divisor):
            return None
        shared = {field.name: getattr(self, field.name) for field in fields(ModelConfig)}
        width = self.width // parts
        # as many parts of everything, but for the tables, which both networks read
        shared |= {
            "num_layers": self.generator_layers or self.num_layers,
            "width": width,
            "num_heads": max(self.num_heads // parts, 1),
            "ffn_width": self.ffn_width // parts,
            "embedding_width": self.table_width if self.table_width != width else 0,
            "head_layers": (),
            "head_layer_norm": False,
        }
        return ModelConfig(**shared)

    def num_weights(self, vocab_size: int) -> int:
        weights = super().num_weights(vocab_size)
        if (generator := self.generator) is None:
            return weights
        # common tables were counted twice
        rows = vocab_size + self.num_segments + self.max_positions
        heads = (len(self.heads) - 1) * generator.width**2  # counted with the model already
        return weights + generator.num_weights(vocab_size) - rows * self.table_width - heads


@register("criterion", "electra")
@dataclass(frozen=True, kw_only=True)
class ElectraLossConfig(OfTask):
    """The generator's loss at hidden tokens, and the discriminator's at all (ELECTRA)."""

    detect_weight: Weight = 50.0
    """Weight of the discriminator's mean loss beside the generator's (lambda, appendix A)."""

    def build(self, vocab: Vocab) -> Criterion:
        return import_object("unitk.families.electra.criterion:ReplacedTokens")(self.detect_weight)


ELECTRA = ElectraConfig(**asdict(replace(BERT, heads=(DETECT,), head_dense="gelu")))
SMALL = replace(resize(ELECTRA, 12, 256, 4), embedding_width=128)

for _name, _config, _about in (
    ("electra_tiny", replace(tiny(ELECTRA), embedding_width=32, generator_divisor=2), TESTS),
    ("electra_mini", replace(for_cpu(ELECTRA), embedding_width=128), CPU),
    ("electra_small", SMALL, "ELECTRA-small: 14 M parameters, and a generator of 64."),
    (
        "electra_small_pp",
        replace(SMALL, generator_divisor=1),
        "ELECTRA-small++ as released, with a generator of 256.",
    ),
    (
        "electra_base",
        replace(ELECTRA, generator_divisor=3),
        "ELECTRA-base: 110 M parameters, and a generator of 256.",
    ),
    (
        "electra_large",
        resize(ELECTRA, 24, 1024, 16),
        "ELECTRA-large: 335 M parameters, and a generator of 256.",
    ),
):
    register("arch", _name)(Preset(_config, _about))
