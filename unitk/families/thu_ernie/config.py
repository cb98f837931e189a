"""The settings of THU-ERNIE, and its sizes; torch is imported when a model is built."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from unitk.models.archs import BERT, CPU, TESTS, for_cpu, tiny
from unitk.models.base import Preset
from unitk.models.config import ModelConfig
from unitk.options.fields import Count, Positive
from unitk.registry import register

CANDIDATES = "candidates:entity"
"""The head over entities. Its table has the vectors that the stream of entities begins with."""


@dataclass(frozen=True, kw_only=True)
class THUERNIEConfig(ModelConfig):
    """BERT whose last layers read entities beside tokens (Zhang et al. 2019, arXiv 1905.07129)."""

    entity_layers: Count = 0
    """Last layers that mix the states of entities and tokens (K-encoder, section 3.3). 0: half of
    the layers (paper: 6 of 12)."""
    entity_width: Positive = 100
    """Width of the vectors and states of entities (section 4.1)."""
    entity_heads: Positive = 4
    """Heads of the attention of entities to each other (section 4.1)."""
    entities_mix_first: bool = False
    """The first layer that mixes has no attention of entities (released model)."""
    first_linked: bool = False
    """The first slot of each text has an entity without a vector (released model)."""
    network = "unitk.families.thu_ernie.network:THUERNIENetwork"

    def __post_init__(self) -> None:
        super().__post_init__()
        fits = self.entity_layers <= self.num_layers
        self._require("entity_layers", fits, f"{self.num_layers} (--arch.num-layers) at most")
        divides = self.entity_width % self.entity_heads == 0
        self._require(
            "entity_heads", divides, f"a divisor of --arch.entity-width {self.entity_width}"
        )
        self._require("norm_first", not self.norm_first, "off where entities are mixed in")
        for name in ("embedding_skip", "norm_after"):
            self._require(name, not getattr(self, name), "off where entities are mixed in")

    @property
    def num_fusions(self) -> int:
        """The number of layers that mix."""
        return self.entity_layers or (self.num_layers + 1) // 2

    @property
    def entity_config(self) -> ModelConfig:
        """The settings of the attention of entities, which have no positions."""
        return ModelConfig(
            width=self.entity_width,
            num_heads=self.entity_heads,
            bias=self.bias,
            attention_bias=self.attention_bias,
            norm=self.norm,
            norm_eps=self.norm_eps,
        )

    def num_weights(self, vocab_size: int) -> int:
        width = self.entity_width
        up = self.ffn_width * (1 + self.ffn_gate)
        maps = self.num_fusions * width * (4 * width + up)
        maps -= self.entities_mix_first * 4 * width * width
        maps += (self.num_fusions - 1) * width * self.ffn_width
        table = width * self.head_sizes.get(CANDIDATES, 0)
        return super().num_weights(vocab_size) + maps + table


# what it has beside BERT begins anew where its weights come from a BERT
THU_ERNIE = THUERNIEConfig(**asdict(BERT))

for _name, _config, _about in (
    ("thu_ernie_tiny", tiny(replace(THU_ERNIE, entity_width=16)), TESTS),
    ("thu_ernie_small", for_cpu(THU_ERNIE), CPU),
    ("thu_ernie_base", THU_ERNIE, "THU-ERNIE, 114 M parameters beside the vectors of entities."),
):
    register("arch", _name)(Preset(_config, _about))
