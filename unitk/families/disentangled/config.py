"""The settings of disentangled attention, and its sizes; torch is imported with a model.

DeBERTa: He et al. 2021, arXiv 2006.03654; v3: 2023, arXiv 2111.09543. LTG-BERT: Samuel et al. 2023,
arXiv 2303.09859. GPT-BERT: Charpentier and Samuel 2024, arXiv 2410.24159.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from unitk.models.archs import CPU, TESTS, for_cpu, resize, tiny
from unitk.models.base import Preset
from unitk.models.config import ModelConfig
from unitk.options.fields import Positive
from unitk.registry import register


@dataclass(frozen=True, kw_only=True)
class DisentangledConfig(ModelConfig):
    """A tower whose scores compare contents with vectors of distances (He et al. 2021, section 3).

    Distances from --arch.relative-distance on share a vector.
    """

    position_rows: Positive = 512
    """Vectors of distances, which all layers share: two for each of DeBERTa's buckets, and one less
    in LTG-BERT."""
    position_norm: bool = True
    """Normalize the vectors of distances (DeBERTa v2 and later)."""
    plain_norms: bool = False
    """Norms of inputs have no weights, and one after attention has (LTG-BERT)."""
    relative_distance: int = 512
    """Distances from this one on share a vector."""
    network = "unitk.families.disentangled.network:Disentangled"
    attention_type = "unitk.families.disentangled.network:DisentangledAttention"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require("score_scale", self.score_scale, "on with disentangled attention")
        # a quarter of the rows are distances of their own, on either side
        fits = self.relative_distance - 1 > (self.position_rows + 1) // 4 > 1
        self._require("position_rows", fits, "8 at least, and less than 4 --arch.relative-distance")

    def num_weights(self, vocab_size: int) -> int:
        return super().num_weights(vocab_size) + self.position_rows * self.width


@dataclass(frozen=True, kw_only=True)
class GPTBERTConfig(DisentangledConfig):
    """LTG-BERT with gated values, whose parts read weighted sums of what parts before them made.

    Both weights of sums and gates are of the released models (section 3.1).
    """

    network = "unitk.families.disentangled.gpt_bert:GPTBERT"
    attention_type = "unitk.families.disentangled.gpt_bert:GatedAttention"

    def num_weights(self, vocab_size: int) -> int:
        # of each layer a map to the gates, and two weighted sums, the first of two states
        gates = self.num_layers * (self.width + 1) * self.heads_width
        sums = self.num_layers * (2 * self.num_layers + 3)
        return super().num_weights(vocab_size) + gates + sums


DEBERTA = DisentangledConfig(
    max_positions=0,
    norm_first=False,
    embedding_norm=True,
    final_norm=False,
    norm_eps=1e-7,
    activation="gelu",
    output_bias=True,
    head_transform=True,
    head_dense="gelu",
    scaled_init=False,
)
# its maps of attention have biases, those of the feed-forward part none
LTG_BERT = DisentangledConfig(
    max_positions=0,
    position_rows=63,
    plain_norms=True,
    embedding_norm=True,
    norm_eps=1e-7,
    ffn_gate=True,
    bias=False,
    qkv_bias=True,
    out_bias=True,
    output_bias=True,
    head_transform=True,
)


GPT_BERT = GPTBERTConfig(**{**asdict(LTG_BERT), "norm_eps": 1e-5})


def _ltg(width: int, heads: int, ffn_width: int) -> DisentangledConfig:
    return replace(resize(LTG_BERT, 12, width, heads), ffn_width=ffn_width)


for _name, _config, _about in (
    ("deberta_v3_tiny", replace(tiny(DEBERTA), position_rows=16, relative_distance=24), TESTS),
    ("deberta_v3_mini", for_cpu(DEBERTA), CPU),
    ("deberta_v3_xsmall", resize(DEBERTA, 12, 384, 6), "DeBERTa v3 xsmall, 71 M parameters."),
    ("deberta_v3_base", DEBERTA, "DeBERTa v3 base, 184 M parameters."),
    ("deberta_v3_large", resize(DEBERTA, 24, 1024, 16), "DeBERTa v3 large, 434 M parameters."),
    ("ltg_bert_tiny", replace(tiny(LTG_BERT), position_rows=15, relative_distance=24), TESTS),
    ("ltg_bert_small", _ltg(384, 6, 1024), "LTG-BERT small: BabyLM's 10 M words, 24 M."),
    ("gpt_bert_tiny", replace(tiny(GPT_BERT), position_rows=15, relative_distance=24), TESTS),
    (
        "gpt_bert_small",
        replace(resize(GPT_BERT, 12, 384, 6), ffn_width=1280),
        "GPT-BERT small: BabyLM's 10 M words, 30 M.",
    ),
    (
        "gpt_bert_base",
        replace(resize(GPT_BERT, 12, 768, 12), ffn_width=2560),
        "GPT-BERT base: BabyLM's 100 M words, 119 M.",
    ),
    ("ltg_bert_base", _ltg(768, 12, 2048), "LTG-BERT base: BabyLM's 100 M words, 98 M."),
):
    register("arch", _name)(Preset(_config, _about))
