"""Architectures by name: a table of presets, each a model's configuration with a line about it.

BERT: Devlin et al. 2019, arXiv 1810.04805. SpanBERT: Joshi et al. 2020, arXiv 1907.10529. RoBERTa:
Liu et al. 2019, arXiv 1907.11692. ALBERT: Lan et al. 2020, arXiv 1909.11942. ERNIE 1.0: Sun et al.
2019, arXiv 1904.09223; 2.0: 2020, arXiv 1907.12412. GPT: Radford et al. 2018. GPT-2: Radford et al.
2019. UniLM: Dong et al. 2019, arXiv 1905.03197. UniLMv2: Bao et al. 2020, arXiv 2002.12804. MASS:
Song et al. 2019, arXiv 1905.02450. BART: Lewis et al. 2020, arXiv 1910.13461. T5: Raffel et al.
2020, arXiv 1910.10683; 1.1: Shazeer 2020, arXiv 2002.05202. UL2: Tay et al. 2023, arXiv 2205.05131.
Optimus: Li et al. 2020, arXiv 2004.04092. MDLM: Sahoo et al. 2024, arXiv 2406.07524. LLaDA: Nie et
al. 2025, arXiv 2502.09992. GLM: Du et al. 2022, arXiv 2103.10360; the sizes are those of the
official configurations, whose position tables have one row more than the longest input.

Parameters are counted with the official vocabularies, those of `modern_*` with 16,384 words (the
mini ones with 8,000). In every family, `tiny` is for tests. For a CPU there is a model of four
layers in all, 256 wide: `small`, or `mini` where there is a published `small`.
T5 has one more dropout after the final norm of each tower, which matters to training only.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TypeVar

from unitk.models.base import Preset
from unitk.models.config import EncoderDecoderConfig, ModelConfig
from unitk.registry import get, register

Config = TypeVar("Config", bound=ModelConfig)


def resize(
    config: Config, num_layers: int, width: int, num_heads: int, ffn_width: int = 0, kv: int = 0
) -> Config:
    """The same family in another size, with `kv` heads of keys and values (0: as many as others).

    A feed-forward part without a width of its own is four times as wide as the states.
    """
    return replace(
        config,
        num_layers=num_layers,
        width=width,
        num_heads=num_heads,
        ffn_width=ffn_width or 4 * width,
        num_kv_heads=kv,
    )


def small(config: Config, num_layers: int, width: int) -> Config:
    """A size that no paper has, with 4 heads; weights begin with a variance of 1 / width.

    The papers' deviation of 0.02 was made for 768 and more: far narrower models hardly learn
    during their first hundreds of updates with it (docs/benchmarks/cpu.md).
    """
    config = resize(config, num_layers, width, num_heads=4)
    return config if config.fan_in_init else replace(config, init_std=width**-0.5)


def tiny(config: Config) -> Config:
    """2 layers of 64 for each tower, no dropout."""
    plain = replace(config, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    return small(plain, 2, 64)


def for_cpu(config: Config) -> Config:
    """4 layers of 256 in all; without attention dropout, which is slow on a CPU."""
    return replace(small(config, 4 // len(config.towers), 256), attention_dropout=0.0)


def modern(config: Config, num_layers: int, width: int, num_heads: int, ffn_width: int) -> Config:
    """A size of the modern stack; weights vary as LTG-BERT's, less in wider models."""
    std = round((2 / (5 * width)) ** 0.5, 4)
    return replace(resize(config, num_layers, width, num_heads, ffn_width), init_std=std)


BERT = ModelConfig(
    num_segments=2,
    norm_first=False,
    embedding_norm=True,
    final_norm=False,
    norm_eps=1e-12,
    activation="gelu",
    output_bias=True,
    head_transform=True,
    heads=("class:nsp:2",),
    scaled_init=False,
)
SPANBERT = replace(BERT, heads=("sbo:span:20",))
ERNIE = replace(BERT, activation="relu", max_positions=513)
ERNIE2 = replace(
    BERT,
    num_segments=4,
    num_tasks=16,
    heads=tuple(
        "tag:capital:2 tag:document:2 class:order:9 class:distance:3 class:discourse:16".split()
    ),
)
ALBERT = replace(
    BERT,
    embedding_width=128,
    layer_groups=1,
    heads=("class:sop:2",),
    activation="gelu_tanh",
    dropout=0.0,
    attention_dropout=0.0,
)
# the one segment is the original's, whose table has a single row; its positions begin at 2
ROBERTA = replace(BERT, num_segments=1, position_offset=2, norm_eps=1e-5, heads=())
GPT = ModelConfig(norm_first=False, final_norm=False, scaled_init=False)
GPT2 = ModelConfig(max_positions=1024)
# six segments: two for pairs, then one or two for each other kind of language model
UNILM = replace(BERT, num_segments=6, norm_eps=1e-5)
# the one virtual row is the pseudo token's
UNILM2 = replace(BERT, heads=(), num_virtual=1, relative_buckets=32, relative_distance=128)
MASS = EncoderDecoderConfig(
    position_offset=1,
    embedding_scale=True,
    norm_first=False,
    embedding_norm=True,
    final_norm=False,
    activation="gelu",
    activation_dropout=0.1,
    scaled_init=False,
)
BART = replace(
    MASS,
    max_positions=1024,
    position_offset=2,
    embedding_scale=False,
    attention_dropout=0.0,
    activation_dropout=0.0,
)
# both towers know positions by their distances alone
T5 = EncoderDecoderConfig(
    head_width=64,
    max_positions=0,
    relative_buckets=32,
    norm="rms",
    norm_eps=1e-6,
    score_scale=False,
    activation="relu",
    bias=False,
    output_scale=True,
    activation_dropout=0.1,
    init_std=1.0,
    scaled_init=False,
    fan_in_init=True,
)
T5_1_1 = replace(T5, ffn_gate=True, activation="gelu_tanh", tied=False, output_scale=False)
UL2 = replace(T5_1_1, activation="silu")
GLM = ModelConfig(max_positions=513, max_positions2=513)
GLM_LONG = ModelConfig(max_positions=1025, max_positions2=1025)
# time enters no layer, so that nothing is left of DiT's adaptive norms
MDLM = ModelConfig(
    positions="rotary",
    max_positions=0,
    attention_bias=False,
    tied=False,
    attention_dropout=0.0,
    zero_init=True,
)
LLADA = ModelConfig(
    positions="rotary",
    rotary_base=500000.0,
    max_positions=4096,
    ffn_gate=True,
    norm="rms",
    activation="silu",
    bias=False,
    tied=False,
    dropout=0.0,
    attention_dropout=0.0,
)
# both positions turn half of every head: any task, GLM's too, takes the same architecture
MODERN = ModelConfig(
    positions="rotary",
    max_positions=0,
    max_positions2=8192,
    num_virtual=1,
    ffn_width=2048,
    ffn_gate=True,
    norm="rms",
    norm_inside=True,
    qk_norm=True,
    embedding_skip=True,
    activation="gelu",
    bias=False,
    heads=("class:nsp:2",),
    attention_dropout=0.0,
    zero_init=True,
    scaled_init=False,
)
MODERN2 = replace(EncoderDecoderConfig(**asdict(MODERN)), num_virtual=0, heads=())

SIZES = "mini", "small", "base"
TESTS = "2 layers of 64, no dropout: for tests."
TESTS2 = "2 + 2 layers of 64, no dropout: for tests."
CPU = "4 layers of 256, for a CPU; without attention dropout, which is slow there."
CPU2 = "2 + 2 layers of 256, for a CPU; without attention dropout, which is slow there."


def our_sizes(
    family: str, config: ModelConfig, cpu: str = "small"
) -> dict[str, tuple[ModelConfig, str]]:
    """A family in the sizes that no paper has: `FAMILY_tiny` for tests, and one for a `cpu`."""
    several = len(config.towers) > 1
    return {
        f"{family}_tiny": (tiny(config), TESTS2 if several else TESTS),
        f"{family}_{cpu}": (for_cpu(config), CPU2 if several else CPU),
    }


PRESETS: dict[str, tuple[ModelConfig, str]] = {
    **our_sizes("bert", BERT),
    "bert_base": (BERT, "BERT-base, 110 M parameters."),
    "bert_large": (resize(BERT, 24, 1024, 16), "BERT-large, 336 M parameters."),
    **our_sizes("spanbert", SPANBERT),
    "spanbert_base": (SPANBERT, "BERT-base with SpanBERT's head, 110 M parameters."),
    "spanbert_large": (
        resize(SPANBERT, 24, 1024, 16),
        "BERT-large with SpanBERT's head, 337 M parameters.",
    ),
    "albert_tiny": (
        replace(small(ALBERT, 2, 64), embedding_width=16),
        "2 layers of 64 with the same weights, embeddings of 16: for tests.",
    ),
    "albert_small": (
        replace(for_cpu(ALBERT), embedding_width=64),
        "4 layers of 256 with the same weights, embeddings of 64: for a CPU.",
    ),
    "albert_base": (resize(ALBERT, 12, 768, 12), "ALBERT-base, 12 M parameters."),
    "albert_large": (resize(ALBERT, 24, 1024, 16), "ALBERT-large, 18 M parameters."),
    "albert_xlarge": (resize(ALBERT, 24, 2048, 16), "ALBERT-xlarge, 59 M parameters."),
    "albert_xxlarge": (resize(ALBERT, 12, 4096, 64), "ALBERT-xxlarge, 223 M parameters."),
    **our_sizes("ernie", ERNIE),
    "ernie_base": (ERNIE, "ERNIE 1.0, 100 M parameters: BERT-base with ReLU."),
    **our_sizes("ernie2", ERNIE2),
    "ernie2_base": (ERNIE2, "ERNIE 2.0 base, 111 M parameters."),
    "ernie2_large": (resize(ERNIE2, 24, 1024, 16), "ERNIE 2.0 large, 338 M parameters."),
    **our_sizes("roberta", ROBERTA),
    "roberta_base": (ROBERTA, "RoBERTa-base, 125 M parameters."),
    "roberta_large": (resize(ROBERTA, 24, 1024, 16), "RoBERTa-large, 355 M parameters."),
    "gpt_base": (GPT, "GPT, 117 M parameters."),
    **our_sizes("gpt2", GPT2, "mini"),
    "gpt2_small": (GPT2, "GPT-2 small, 124 M parameters."),
    "gpt2_medium": (resize(GPT2, 24, 1024, 16), "GPT-2 medium, 355 M parameters."),
    "gpt2_large": (resize(GPT2, 36, 1280, 20), "GPT-2 large, 774 M parameters."),
    "gpt2_xl": (resize(GPT2, 48, 1600, 25), "GPT-2 XL, 1.56 billion parameters."),
    **our_sizes("unilm", UNILM),
    "unilm_base": (UNILM, "UniLM-base, 109 M parameters."),
    "unilm_large": (resize(UNILM, 24, 1024, 16), "UniLM-large, 335 M parameters."),
    **our_sizes("unilm2", UNILM2),
    "unilm2_base": (UNILM2, "UniLMv2-base with relative positions, 110 M parameters."),
    **our_sizes("mass", MASS),
    "mass_base": (MASS, "MASS-base for summarisation: 6 + 6 layers, 123 M parameters."),
    "mass_middle": (
        resize(MASS, 6, 1024, 16),
        "MASS-middle for summarisation: 6 + 6 layers of 1024, 209 M parameters.",
    ),
    **our_sizes("bart", BART),
    "bart_base": (BART, "BART-base: 6 + 6 layers, 139 M parameters."),
    "bart_large": (resize(BART, 12, 1024, 16), "BART-large: 12 + 12 layers of 1024, 406 M."),
    "t5_tiny": (
        replace(tiny(T5), head_width=24),
        "2 + 2 layers of 64, heads of 24, no dropout: for tests.",
    ),
    "t5_mini": (for_cpu(T5), CPU2),
    "t5_small": (resize(T5, 6, 512, 8), "T5-small: 6 + 6 layers of 512, 61 M parameters."),
    "t5_base": (resize(T5, 12, 768, 12), "T5-base: 12 + 12 layers, 223 M parameters."),
    "t5_large": (resize(T5, 24, 1024, 16), "T5-large: 24 + 24 layers of 1024, 738 M."),
    "t5_v1_1_small": (
        resize(T5_1_1, 8, 512, 6, 1024),
        "T5 1.1 small: gated feed-forward part, output matrix of its own; 77 M parameters.",
    ),
    "t5_v1_1_base": (
        resize(T5_1_1, 12, 768, 12, 2048),
        "T5 1.1 base: 12 + 12 layers, 248 M parameters.",
    ),
    **our_sizes("ul2", UL2),
    "ul2_20b": (
        replace(resize(UL2, 32, 4096, 16), head_width=256),
        "UL2: 32 + 32 layers of 4096, 20 billion parameters.",
    ),
    **our_sizes("glm", GLM),
    "glm_base": (resize(GLM, 12, 768, 12), "GLM-base, 109 M parameters."),
    "glm_large": (
        resize(GLM, 24, 1024, 16),
        "GLM-large, also GLM-doc and GLM-sent: 335 M parameters.",
    ),
    "glm_410m": (resize(GLM, 30, 1024, 16), "GLM-410M, 410 M parameters."),
    "glm_515m": (resize(GLM, 30, 1152, 18), "GLM-515M, 515 M parameters."),
    "glm_roberta": (
        resize(GLM, 24, 1024, 16),
        "GLM-RoBERTa: GLM-large with RoBERTa's vocabulary, 355 M parameters.",
    ),
    "glm_2b": (resize(GLM_LONG, 36, 2048, 32), "GLM-2B, 1.92 billion parameters."),
    "glm_10b": (resize(GLM_LONG, 48, 4096, 64), "GLM-10B, 9.88 billion parameters."),
    "mdlm_tiny": (tiny(MDLM), TESTS),
    "mdlm_small": (for_cpu(MDLM), "4 layers of 256 and an output matrix of its own, for a CPU."),
    "mdlm_base": (MDLM, "MDLM and BD3-LM: 12 layers of 768, 162 M parameters."),
    **our_sizes("llada", LLADA),
    "llada_8b": (
        resize(LLADA, 32, 4096, 32, 12288),
        "LLaDA: 32 layers of 4096, 8.0 billion parameters.",
    ),
    "modern_tiny": (modern(tiny(MODERN), 2, 64, 4, 176), TESTS),
    "modern_mini": (
        modern(MODERN, 4, 256, 4, 704),
        "4 layers of 256, 5.3 M parameters: for a CPU.",
    ),
    "modern_small": (modern(MODERN, 12, 384, 6, 1280), "12 layers of 384, 31 M parameters."),
    "modern_base": (
        modern(replace(MODERN, tied=False), 12, 768, 12, 2048),
        "12 layers of 768 and an output matrix of its own, 111 M parameters.",
    ),
    # a table of positions: a decoder that knows a latent and no source counts words
    "modern_sentence": (
        replace(
            modern(MODERN, 2, 128, 4, 352),
            positions="learned",
            max_positions=96,
            max_positions2=0,
            num_virtual=0,
            heads=(),
            dropout=0.0,
        ),
        "2 layers of 128, a table of 96 positions, no dropout: for sentences on a CPU.",
    ),
    "modern_encdec_tiny": (modern(tiny(MODERN2), 2, 64, 4, 176), TESTS2),
    "modern_encdec_mini": (
        modern(MODERN2, 2, 256, 4, 576),
        "2 + 2 layers of 256, 5.4 M parameters: for a CPU.",
    ),
    "modern_encdec_small": (modern(MODERN2, 6, 384, 6, 1280), "6 + 6 layers of 384, 35 M."),
    "modern_encdec_base": (modern(MODERN2, 6, 768, 12, 2048), "6 + 6 layers of 768, 112 M."),
}

OWN = {f"{family}_{size}" for family in ("modern", "modern_encdec") for size in SIZES}

for _name, (_config, _about) in PRESETS.items():
    register("arch", _name)(Preset(_config, _about, _name in OWN))


def preset(name: str) -> ModelConfig:
    """The configuration of a preset."""
    return get("arch", name)()
