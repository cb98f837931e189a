"""Architectures by name: presets, each a function that returns a model's configuration.

GLM: Du et al. 2022, arXiv 2103.10360; the sizes are those of the official configurations. Its
position tables have one row more than the longest input. Parameter counts are for the official
vocabularies (30,592 or 50,304 rows).
"""

from __future__ import annotations

from dataclasses import replace

from unitk.models.config import ModelConfig
from unitk.registry import register


def _glm(num_layers: int, width: int, num_heads: int, longest: int) -> ModelConfig:
    return ModelConfig(
        num_layers=num_layers,
        width=width,
        num_heads=num_heads,
        ffn_width=4 * width,
        max_positions=longest + 1,
        max_positions2=longest + 1,
    )


@register("arch", "glm_tiny")
def glm_tiny() -> ModelConfig:
    """2 layers of 64, no dropout: for tests."""
    return replace(_glm(2, 64, 4, 512), dropout=0.0, attention_dropout=0.0)


@register("arch", "glm_small")
def glm_small() -> ModelConfig:
    """4 layers of 256, for a CPU; without attention dropout, which is slow there."""
    return replace(_glm(4, 256, 4, 512), attention_dropout=0.0)


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
