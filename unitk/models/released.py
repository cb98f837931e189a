"""Architectures by name: today's models with public weights, as settings of the one stack.

Llama: Dubey et al. 2024, arXiv 2407.21783. SmolLM2: Ben Allal et al. 2025, arXiv 2502.02737.
SmolLM3: Bakouch et al. 2025, https://huggingface.co/blog/smollm3. Mistral: Jiang et al. 2023, arXiv
2310.06825. Qwen2.5: 2024, arXiv 2412.15115; Qwen3: 2025, arXiv 2505.09388. OLMo 2: 2025, arXiv
2501.00656. Gemma 3: 2025, arXiv 2503.19786. Pythia: Biderman et al. 2023, arXiv 2304.01373.
T5Gemma: Zhang et al. 2025, arXiv 2504.06225. ModernBERT: Warner et al. 2024, arXiv 2412.13663;
Ettin: Weller et al. 2025, arXiv 2507.11412.

transformers, llama.cpp and their kin compute all of them. Channels of a pair are neighbours here,
and half a head apart there. The virtual row is what some tasks read; an import has none.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from unitk.models.archs import SIZES, TESTS, TESTS2, modern, resize, tiny
from unitk.models.base import Preset
from unitk.models.config import EncoderDecoderConfig, ModelConfig
from unitk.registry import register


def pair(config: ModelConfig) -> EncoderDecoderConfig:
    """Two towers with these settings; rotary positions turn nothing in cross-attention."""
    return replace(EncoderDecoderConfig(**asdict(config)), num_virtual=0, cross_rotary=False)


# what nearly all of these families have; the others change a part or two
LLAMA = ModelConfig(
    positions="rotary",
    max_positions=0,
    num_virtual=1,
    ffn_gate=True,
    norm="rms",
    activation="silu",
    bias=False,
    dropout=0.0,
    attention_dropout=0.0,
)
SMOLLM2 = replace(LLAMA, rotary_base=100000.0)
# a quarter of 8,192 positions, and all of them: `high_freq_factor` is 4, `low_freq_factor` 1
LLAMA3 = replace(
    LLAMA, rotary_base=500000.0, rotary_factor=32.0, rotary_wavelengths=(2048.0, 8192.0)
)
# a causal window of 4,096 there has the slot itself in it
MISTRAL = replace(LLAMA, layer_windows=(4095,), tied=False)
SMOLLM3 = replace(LLAMA, norm_eps=1e-6, layer_rotary_bases=(5e6, 5e6, 5e6, 0.0))
QWEN2 = replace(LLAMA, rotary_base=1e6, norm_eps=1e-6, qkv_bias=True)
NORMED = replace(LLAMA, norm_eps=1e-6, qk_norm=True, qk_norm_weights=True)
# the first weights are our own
QWEN3 = replace(NORMED, ffn_width=2048, zero_init=True, scaled_init=False)
# no norm of an input: what a part makes is normed, and then queries and keys as wholes
OLMO2 = replace(
    NORMED,
    rotary_base=500000.0,
    norm_first=False,
    norm_after=True,
    qk_norm_joint=True,
    tied=False,
)
# its norms multiply by 1 + w, which an import adds up
GEMMA3 = replace(
    NORMED,
    head_width=256,
    layer_windows=(511, 511, 511, 511, 511, 0),
    layer_rotary_bases=(1e4, 1e4, 1e4, 1e4, 1e4, 1e6),
    embedding_scale=True,
    norm_after=True,
    activation="gelu_tanh",
)
# without Gemma 2's caps of scores, and with full attention
T5GEMMA = replace(
    pair(LLAMA),
    embedding_scale=True,
    norm_after=True,
    norm_eps=1e-6,
    activation="gelu_tanh",
)
# what a causal model goes into twice; no class of transformers computes it
QWEN3_PAIR = pair(QWEN3)
# 128 positions there are 64 to either side
MODERNBERT = replace(
    LLAMA,
    layer_windows=(0, 64, 64),
    layer_rotary_bases=(160000.0, 10000.0, 10000.0),
    embedding_norm=True,
    first_norm=False,
    norm="layer",
    norm_bias=False,
    activation="gelu",
    output_bias=True,
    head_transform=True,
    head_dense="transform",
)
# LayerNorms and biases as GPT-2 has them
PYTHIA = ModelConfig(
    positions="rotary",
    rotary_share=0.25,
    max_positions=0,
    num_virtual=1,
    parallel_residual=True,
    activation="gelu",
    tied=False,
    dropout=0.0,
    attention_dropout=0.0,
)

PRESETS: dict[str, tuple[ModelConfig, str]] = {
    "qwen3_tiny": (modern(tiny(QWEN3), 2, 64, 4, 176), TESTS),
    "qwen3_mini": (
        resize(QWEN3, 4, 256, 4, 704),
        "Qwen3's stack: 4 layers of 256, 5.3 M parameters, for a CPU.",
    ),
    "qwen3_15m": (
        resize(QWEN3, 7, 384, 6, 960),
        "Qwen3's stack: 7 layers of 384, 15 M parameters: unitk-base-en.",
    ),
    "qwen3_small": (resize(QWEN3, 12, 384, 6, 1280), "Qwen3's stack: 12 layers of 384, 31 M."),
    "qwen3_base": (
        replace(resize(QWEN3, 12, 768, 12, 2048), tied=False),
        "Qwen3's stack: 12 layers of 768 and an output matrix of its own, 110 M parameters.",
    ),
    "qwen3_0.6b": (
        replace(resize(QWEN3, 28, 1024, 16, 3072, 8), head_width=128, rotary_base=1e6),
        "Qwen3-0.6B, 596 M parameters.",
    ),
    "qwen3_encdec_tiny": (modern(tiny(QWEN3_PAIR), 2, 64, 4, 176), TESTS2),
    "qwen3_encdec_mini": (
        resize(QWEN3_PAIR, 4, 256, 4, 704),
        "Two towers as qwen3_mini, 10 M parameters, for a CPU.",
    ),
    "qwen3_encdec_15m": (
        resize(QWEN3_PAIR, 7, 384, 6, 960),
        "Two towers as qwen3_15m, 31 M parameters: unitk-base-en in both.",
    ),
    "qwen2_0.5b": (resize(QWEN2, 24, 896, 14, 4864, 2), "Qwen2.5-0.5B, 494 M parameters."),
    "llama_tiny": (resize(tiny(LLAMA), 2, 64, 4, 176, 2), TESTS),
    "llama_135m": (resize(SMOLLM2, 30, 576, 9, 1536, 3), "SmolLM2-135M."),
    "llama_360m": (resize(SMOLLM2, 32, 960, 15, 2560, 5), "SmolLM2-360M."),
    "llama_1b": (resize(LLAMA3, 16, 2048, 32, 8192, 8), "Llama 3.2 1B."),
    "mistral_7b": (resize(MISTRAL, 32, 4096, 32, 14336, 8), "Mistral 7B, version 0.1."),
    "smollm3_3b": (resize(SMOLLM3, 36, 2048, 16, 11008, 4), "SmolLM3-3B."),
    "olmo2_1b": (resize(OLMO2, 16, 2048, 16, 8192), "OLMo 2 1B, 1.48 billion parameters."),
    "gemma3_tiny": (
        replace(
            resize(tiny(GEMMA3), 2, 64, 4, 176, 1),
            head_width=24,
            layer_windows=(7, 0),
            layer_rotary_bases=(1e4, 1e6),
        ),
        "2 layers of 64, heads of 24, a window of 7, no dropout: for tests.",
    ),
    "gemma3_270m": (resize(GEMMA3, 18, 640, 4, 2048, 1), "Gemma 3 270M."),
    "gemma3_1b": (resize(GEMMA3, 26, 1152, 4, 6912, 1), "Gemma 3 1B."),
    "t5gemma_tiny": (resize(tiny(T5GEMMA), 2, 64, 4, 176, 2), TESTS2),
    "t5gemma_mini": (
        replace(resize(T5GEMMA, 2, 256, 4, 576), init_std=256**-0.5),
        "T5Gemma's stack: 2 + 2 layers of 256, 5.4 M parameters, for a CPU.",
    ),
    "t5gemma_small": (resize(T5GEMMA, 6, 384, 6, 1280), "T5Gemma's stack: 6 + 6 layers of 384."),
    "pythia_tiny": (tiny(PYTHIA), TESTS),
    "pythia_14m": (resize(PYTHIA, 6, 128, 4), "Pythia-14M."),
    "pythia_31m": (resize(PYTHIA, 6, 256, 8), "Pythia-31M."),
    "pythia_70m": (resize(PYTHIA, 6, 512, 8), "Pythia-70M."),
    "pythia_160m": (resize(PYTHIA, 12, 768, 12), "Pythia-160M."),
    "pythia_410m": (resize(PYTHIA, 24, 1024, 16), "Pythia-410M."),
    "modernbert_tiny": (
        replace(resize(tiny(MODERNBERT), 2, 64, 4, 96), layer_windows=(0, 8)),
        "2 layers of 64, one with a window of 8, no dropout: for tests.",
    ),
    "modernbert_17m": (resize(MODERNBERT, 7, 256, 4, 384), "Ettin's encoder of 17 M parameters."),
    "modernbert_32m": (resize(MODERNBERT, 10, 384, 6, 576), "Ettin's encoder of 32 M."),
    "modernbert_68m": (resize(MODERNBERT, 19, 512, 8, 768), "Ettin's encoder of 68 M."),
    "modernbert_base": (
        resize(MODERNBERT, 22, 768, 12, 1152),
        "ModernBERT-base and Ettin's encoder of 150 M parameters.",
    ),
    "modernbert_large": (
        resize(MODERNBERT, 28, 1024, 16, 2624),
        "ModernBERT-large and Ettin's encoder of 396 M parameters.",
    ),
    "modernbert_1b": (resize(MODERNBERT, 28, 1792, 28, 3840), "Ettin's encoder of 1.03 billion."),
}

OWN = {f"{family}_{size}" for family in ("qwen3", "t5gemma") for size in SIZES} | {"qwen3_15m"}

for _name, (_config, _about) in PRESETS.items():
    register("arch", _name)(Preset(_config, _about, _name in OWN))
