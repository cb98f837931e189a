"""The settings of XLNet, and its sizes; torch is imported when a model is built."""

from __future__ import annotations

from dataclasses import dataclass

from unitk.models.archs import CPU, TESTS, for_cpu, resize, tiny
from unitk.models.base import Preset
from unitk.models.config import ModelConfig
from unitk.options.fields import Count
from unitk.registry import register


@dataclass(frozen=True, kw_only=True)
class XLNetConfig(ModelConfig):
    """Transformer-XL's attention and memory (Yang et al. 2019, arXiv 1906.08237, section 2.5)."""

    memory_length: Count = 384
    """States of each layer that a stateful row carries to its next text (--stateful-rows). 0: no
    memory."""
    static_steps = False  # a table of the distances that there are
    network = "unitk.families.xlnet.network:XLNetNetwork"
    attention_type = "unitk.families.xlnet.network:RelativeAttention"

    @property
    def carries(self) -> bool:  # type: ignore[override]
        return self.memory_length > 0

    def num_weights(self, vocab_size: int) -> int:
        maps = self.num_layers * self.width * self.heads_width  # of the sinusoids
        return super().num_weights(vocab_size) + maps


# the one virtual row is what the query stream reads
XLNET = XLNetConfig(
    max_positions=0,
    num_virtual=1,
    norm_first=False,
    final_norm=False,
    norm_eps=1e-12,
    output_bias=True,
    scaled_init=False,
)

for _name, _config, _about in (
    ("xlnet_tiny", tiny(XLNET), TESTS),
    ("xlnet_small", for_cpu(XLNET), CPU),
    ("xlnet_base", XLNET, "XLNet-base, 117 M parameters."),
    ("xlnet_large", resize(XLNET, 24, 1024, 16), "XLNet-large, 360 M parameters."),
):
    register("arch", _name)(Preset(_config, _about))
