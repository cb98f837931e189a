"""Architectures by name: presets, each a function that returns a model's configuration.

BERT: Devlin et al. 2019, arXiv 1810.04805. RoBERTa: Liu et al. 2019, arXiv 1907.11692. ALBERT:
Lan et al. 2020, arXiv 1909.11942. GPT: Radford et al. 2018. GPT-2: Radford et al. 2019. UniLM: Dong
et al. 2019, arXiv 1905.03197. UniLMv2: Bao et al. 2020, arXiv 2002.12804. MASS: Song et al. 2019,
arXiv 1905.02450. BART: Lewis et al. 2020, arXiv 1910.13461. Optimus: Li et al. 2020, arXiv
2004.04092. GLM: Du et al. 2022, arXiv 2103.10360; the sizes are those of the official
configurations, whose position tables have one row more than the longest input.

Parameters are counted with the official vocabularies. Of every family, `tiny` is for tests, and
one of four layers in all, 256 wide, for a CPU: `small`, or `mini` where the authors have a small.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from unitk.models.config import EncoderDecoderConfig, LatentConfig, ModelConfig
from unitk.registry import register

Config = TypeVar("Config", bound=ModelConfig)


def sized(config: Config, num_layers: int, width: int, num_heads: int) -> Config:
    return replace(
        config, num_layers=num_layers, width=width, num_heads=num_heads, ffn_width=4 * width
    )


def tiny(config: Config) -> Config:
    """2 layers of 64 for each tower, no dropout."""
    plain = replace(config, dropout=0.0, attention_dropout=0.0, activation_dropout=0.0)
    return sized(plain, 2, 64, 4)


def for_cpu(config: Config, num_layers: int = 4) -> Config:
    """256 wide; without attention dropout, which is slow on a CPU."""
    return replace(sized(config, num_layers, 256, 4), attention_dropout=0.0)


def _bert() -> ModelConfig:
    return ModelConfig(
        num_segments=2,
        norm_first=False,
        embedding_norm=True,
        final_norm=False,
        norm_eps=1e-12,
        activation="gelu",
        output_bias=True,
        head_transform=True,
        class_heads=("nsp:2",),
        scaled_init=False,
    )


@register("arch", "bert_tiny")
def bert_tiny() -> ModelConfig:
    """2 layers of 64, no dropout: for tests."""
    return tiny(_bert())


@register("arch", "bert_small")
def bert_small() -> ModelConfig:
    """4 layers of 256, for a CPU; without attention dropout."""
    return for_cpu(_bert())


@register("arch", "bert_base")
def bert_base() -> ModelConfig:
    """BERT-base, 110 M parameters."""
    return _bert()


@register("arch", "bert_large")
def bert_large() -> ModelConfig:
    """BERT-large, 336 M parameters."""
    return sized(_bert(), 24, 1024, 16)


def _albert(num_layers: int, width: int, num_heads: int) -> ModelConfig:
    config = replace(_bert(), embedding_width=128, layer_groups=1, class_heads=("sop:2",))
    config = replace(config, activation="gelu_tanh", dropout=0.0, attention_dropout=0.0)
    return sized(config, num_layers, width, num_heads)


@register("arch", "albert_tiny")
def albert_tiny() -> ModelConfig:
    """2 layers of 64 with the same weights, embeddings of 16: for tests."""
    return replace(_albert(2, 64, 4), embedding_width=16)


@register("arch", "albert_base")
def albert_base() -> ModelConfig:
    """ALBERT-base, 12 M parameters."""
    return _albert(12, 768, 12)


@register("arch", "albert_large")
def albert_large() -> ModelConfig:
    """ALBERT-large, 18 M parameters."""
    return _albert(24, 1024, 16)


@register("arch", "albert_xlarge")
def albert_xlarge() -> ModelConfig:
    """ALBERT-xlarge, 59 M parameters."""
    return _albert(24, 2048, 16)


@register("arch", "albert_xxlarge")
def albert_xxlarge() -> ModelConfig:
    """ALBERT-xxlarge, 223 M parameters."""
    return _albert(12, 4096, 64)


def _roberta() -> ModelConfig:
    # the one segment is the original's, whose table has a single row; its positions begin at 2
    return replace(_bert(), num_segments=1, position_offset=2, norm_eps=1e-5, class_heads=())


@register("arch", "roberta_base")
def roberta_base() -> ModelConfig:
    """RoBERTa-base, 125 M parameters."""
    return _roberta()


@register("arch", "roberta_large")
def roberta_large() -> ModelConfig:
    """RoBERTa-large, 355 M parameters."""
    return sized(_roberta(), 24, 1024, 16)


@register("arch", "gpt_base")
def gpt_base() -> ModelConfig:
    """GPT, 117 M parameters."""
    return ModelConfig(norm_first=False, final_norm=False)


def _gpt2() -> ModelConfig:
    return ModelConfig(max_positions=1024)


@register("arch", "gpt2_tiny")
def gpt2_tiny() -> ModelConfig:
    """2 layers of 64, no dropout: for tests."""
    return tiny(_gpt2())


@register("arch", "gpt2_mini")
def gpt2_mini() -> ModelConfig:
    """4 layers of 256, for a CPU; without attention dropout."""
    return for_cpu(_gpt2())


@register("arch", "gpt2_small")
def gpt2_small() -> ModelConfig:
    """GPT-2 small, 124 M parameters."""
    return _gpt2()


@register("arch", "gpt2_medium")
def gpt2_medium() -> ModelConfig:
    """GPT-2 medium, 355 M parameters."""
    return sized(_gpt2(), 24, 1024, 16)


@register("arch", "gpt2_large")
def gpt2_large() -> ModelConfig:
    """GPT-2 large, 774 M parameters."""
    return sized(_gpt2(), 36, 1280, 20)


@register("arch", "gpt2_xl")
def gpt2_xl() -> ModelConfig:
    """GPT-2 XL, 1.56 billion parameters."""
    return sized(_gpt2(), 48, 1600, 25)


def _unilm() -> ModelConfig:
    # six segments: two for pairs, then one or two for each other kind of language model
    return replace(_bert(), num_segments=6, norm_eps=1e-5)


@register("arch", "unilm_tiny")
def unilm_tiny() -> ModelConfig:
    """2 layers of 64, no dropout: for tests."""
    return tiny(_unilm())


@register("arch", "unilm_small")
def unilm_small() -> ModelConfig:
    """4 layers of 256, for a CPU; without attention dropout."""
    return for_cpu(_unilm())


@register("arch", "unilm_base")
def unilm_base() -> ModelConfig:
    """UniLM-base, 109 M parameters."""
    return _unilm()


@register("arch", "unilm_large")
def unilm_large() -> ModelConfig:
    """UniLM-large, 335 M parameters."""
    return sized(_unilm(), 24, 1024, 16)


def _unilm2() -> ModelConfig:
    # the one virtual row is the pseudo token's
    shown = replace(_bert(), class_heads=(), num_virtual=1)
    return replace(shown, relative_buckets=32, relative_distance=128)


@register("arch", "unilm2_tiny")
def unilm2_tiny() -> ModelConfig:
    """2 layers of 64, no dropout: for tests."""
    return tiny(_unilm2())


@register("arch", "unilm2_small")
def unilm2_small() -> ModelConfig:
    """4 layers of 256, for a CPU; without attention dropout."""
    return for_cpu(_unilm2())


@register("arch", "unilm2_base")
def unilm2_base() -> ModelConfig:
    """UniLMv2-base with relative positions, 110 M parameters."""
    return _unilm2()


def _mass() -> EncoderDecoderConfig:
    return EncoderDecoderConfig(
        position_offset=1,
        embedding_scale=True,
        norm_first=False,
        embedding_norm=True,
        final_norm=False,
        activation="gelu",
        activation_dropout=0.1,
        scaled_init=False,
    )


@register("arch", "mass_tiny")
def mass_tiny() -> EncoderDecoderConfig:
    """2 + 2 layers of 64, no dropout: for tests."""
    return tiny(_mass())


@register("arch", "mass_small")
def mass_small() -> EncoderDecoderConfig:
    """2 + 2 layers of 256, for a CPU; without attention dropout."""
    return for_cpu(_mass(), 2)


@register("arch", "mass_base")
def mass_base() -> EncoderDecoderConfig:
    """MASS-base for summarisation: 6 + 6 layers, 123 M parameters."""
    return _mass()


@register("arch", "mass_middle")
def mass_middle() -> EncoderDecoderConfig:
    """MASS-middle for summarisation: 6 + 6 layers of 1024, 209 M parameters."""
    return sized(_mass(), 6, 1024, 16)


@register("arch", "mass_translation")
def mass_translation() -> EncoderDecoderConfig:
    """MASS for translation, as XLM's code has it: two languages, 6 + 6 layers of 1024."""
    config = replace(_mass(), position_offset=0, embedding_scale=False, num_segments=2)
    config = replace(config, cross_by_segment=True, shared_embeddings=False, output_bias=True)
    config = replace(config, norm_eps=1e-12, activation_dropout=0.0)
    return sized(config, 6, 1024, 8)


def _bart() -> EncoderDecoderConfig:
    config = replace(_mass(), max_positions=1024, position_offset=2)
    return replace(config, embedding_scale=False, attention_dropout=0.0, activation_dropout=0.0)


@register("arch", "bart_tiny")
def bart_tiny() -> EncoderDecoderConfig:
    """2 + 2 layers of 64, no dropout: for tests."""
    return tiny(_bart())


@register("arch", "bart_small")
def bart_small() -> EncoderDecoderConfig:
    """2 + 2 layers of 256, for a CPU."""
    return for_cpu(_bart(), 2)


@register("arch", "bart_base")
def bart_base() -> EncoderDecoderConfig:
    """BART-base: 6 + 6 layers, 139 M parameters."""
    return _bart()


@register("arch", "bart_large")
def bart_large() -> EncoderDecoderConfig:
    """BART-large: 12 + 12 layers of 1024, 406 M parameters."""
    return sized(_bart(), 12, 1024, 16)


def _glm(num_layers: int, width: int, num_heads: int, longest: int) -> ModelConfig:
    config = ModelConfig(max_positions=longest + 1, max_positions2=longest + 1)
    return sized(config, num_layers, width, num_heads)


@register("arch", "glm_tiny")
def glm_tiny() -> ModelConfig:
    """2 layers of 64, no dropout: for tests."""
    return tiny(_glm(2, 64, 4, 512))


@register("arch", "glm_small")
def glm_small() -> ModelConfig:
    """4 layers of 256, for a CPU; without attention dropout, which is slow there."""
    return for_cpu(_glm(4, 256, 4, 512))


@register("arch", "glm_base")
def glm_base() -> ModelConfig:
    """GLM-base, 109 M parameters."""
    return _glm(12, 768, 12, 512)


@register("arch", "glm_large")
def glm_large() -> ModelConfig:
    """GLM-large, also GLM-doc and GLM-sent: 335 M parameters."""
    return _glm(24, 1024, 16, 512)


@register("arch", "glm_410m")
def glm_410m() -> ModelConfig:
    """GLM-410M, 410 M parameters."""
    return _glm(30, 1024, 16, 512)


@register("arch", "glm_515m")
def glm_515m() -> ModelConfig:
    """GLM-515M, 515 M parameters."""
    return _glm(30, 1152, 18, 512)


@register("arch", "glm_roberta")
def glm_roberta() -> ModelConfig:
    """GLM-RoBERTa: GLM-large with RoBERTa's vocabulary, 355 M parameters."""
    return _glm(24, 1024, 16, 512)


@register("arch", "glm_2b")
def glm_2b() -> ModelConfig:
    """GLM-2B, 1.92 billion parameters."""
    return _glm(36, 2048, 32, 1024)


@register("arch", "glm_10b")
def glm_10b() -> ModelConfig:
    """GLM-10B, 9.88 billion parameters."""
    return _glm(48, 4096, 64, 1024)


def _optimus() -> LatentConfig:
    # with the row for the memory, the decoder's position table is GPT-2's
    return LatentConfig(max_positions=1023)


@register("arch", "optimus_tiny")
def optimus_tiny() -> LatentConfig:
    """bert_tiny, a latent of 16, gpt2_tiny; no dropout: for tests."""
    return replace(tiny(_optimus()), encoder="bert_tiny", latent=16)


@register("arch", "optimus_small")
def optimus_small() -> LatentConfig:
    """bert_small, a latent of 32, gpt2_mini: for a CPU; without attention dropout."""
    return replace(for_cpu(_optimus()), encoder="bert_small")


@register("arch", "optimus_base")
def optimus_base() -> LatentConfig:
    """BERT-base, a latent of 32, GPT-2 small: 233 M parameters."""
    return _optimus()
