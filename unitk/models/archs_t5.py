"""T5's architectures: Raffel et al. 2020, arXiv 1910.10683; 1.1: Shazeer 2020, arXiv 2002.05202.

Both towers know positions by their distances alone. Dropout stands where the stack has it: T5 has
one more behind the final norm of each tower, which matters to training only. Parameters are counted
with the official vocabulary of 32,128 rows.
"""

from __future__ import annotations

from dataclasses import replace

from unitk.models.archs import for_cpu, sized, tiny
from unitk.models.config import EncoderDecoderConfig
from unitk.registry import register


def _t5(num_layers: int, width: int, num_heads: int) -> EncoderDecoderConfig:
    config = EncoderDecoderConfig(
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
    return sized(config, num_layers, width, num_heads)


def _t5_v1_1(num_layers: int, width: int, num_heads: int, ffn_width: int) -> EncoderDecoderConfig:
    gated = replace(_t5(num_layers, width, num_heads), ffn_gate=True, activation="gelu_tanh")
    return replace(gated, ffn_width=ffn_width, tied=False, output_scale=False)


@register("arch", "t5_tiny")
def t5_tiny() -> EncoderDecoderConfig:
    """2 + 2 layers of 64, heads of 24, no dropout: for tests."""
    return replace(tiny(_t5(2, 64, 4)), head_width=24)


@register("arch", "t5_mini")
def t5_mini() -> EncoderDecoderConfig:
    """2 + 2 layers of 256, for a CPU; without attention dropout."""
    return for_cpu(_t5(2, 256, 4), 2)


@register("arch", "t5_small")
def t5_small() -> EncoderDecoderConfig:
    """T5-small: 6 + 6 layers of 512, 61 M parameters."""
    return _t5(6, 512, 8)


@register("arch", "t5_base")
def t5_base() -> EncoderDecoderConfig:
    """T5-base: 12 + 12 layers, 223 M parameters."""
    return _t5(12, 768, 12)


@register("arch", "t5_large")
def t5_large() -> EncoderDecoderConfig:
    """T5-large: 24 + 24 layers of 1024, 738 M parameters."""
    return _t5(24, 1024, 16)


@register("arch", "t5_v1_1_small")
def t5_v1_1_small() -> EncoderDecoderConfig:
    """T5 1.1 small: gated feed-forward part, output matrix of its own; 77 M parameters."""
    return _t5_v1_1(8, 512, 6, 1024)


@register("arch", "t5_v1_1_base")
def t5_v1_1_base() -> EncoderDecoderConfig:
    """T5 1.1 base: 12 + 12 layers, 248 M parameters."""
    return _t5_v1_1(12, 768, 12, 2048)
