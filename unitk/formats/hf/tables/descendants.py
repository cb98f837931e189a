"""Further descendants of Llama: GLM-4, GLM-Edge.

A table says in what a model type differs from Llama.
"""

from __future__ import annotations

from typing import Any

from unitk.errors import CheckpointError
from unitk.formats.hf.families import TEXTS, WORDS, Changes, Checkpoint
from unitk.formats.hf.layers import BASE, SHARE, ropes, rotary, rotary_entries
from unitk.formats.hf.tables.llama import (
    KEYS,
    NORMS,
    ROTARY,
    descendant,
    head_groups,
    llama_entries,
    llama_layout,
)
from unitk.formats.settings import keys
from unitk.models.config import ModelConfig
from unitk.registry import register

GATED = {"ffn.up": "mlp.gate_up_proj"}
"""Both maps of the gated feed-forward part in one matrix, as in unitk."""
GLM_NORMS = {
    **NORMS,
    "attention_after": "post_self_attn_layernorm",
    "ffn_after": "post_mlp_layernorm",
}


def _share(checkpoint: Checkpoint) -> Changes:
    """Heads of keys and values, and rotary positions of a share of the channels."""
    _, _, declared, where = checkpoint
    if "block_position_encoding" in declared:
        raise CheckpointError(f"{where}: this GLM has block positions (--from glm reads it)")
    rope = rotary(ropes(declared, where), where, declared[BASE], declared[SHARE])
    return head_groups(checkpoint) | rope


def _share_entries(config: ModelConfig) -> Changes:
    # a share that is left out is half of the channels
    share = {SHARE: config.rotary_share}
    return llama_entries(config) | share | {"rope_parameters": rotary_entries(config) | share}


def _is_glm(config: ModelConfig, arch: str) -> bool:
    rotates = config.positions == "rotary" and config.norm == "rms" and not config.qk_norm
    return rotates and (arch.startswith("glm") or config.rotary_share < 1)


# channels that turn together are neighbours here, too
GLM: dict[str, Any] = {
    "keys": {**KEYS, **keys("qkv_bias=attention_bias")},
    "usual": {
        BASE: 10000.0,
        SHARE: 0.5,
        "attention_bias": True,
        "rms_norm_eps": 1.5625e-7,
        "num_key_value_heads": 2,
    },
    "complete": _share,
    "entries": _share_entries,
    "fixed": {},
    "free": (*ROTARY, "rotary_share"),
    "heads": {TEXTS: ("", "score"), WORDS: ("", "score")},
    "roots": {},
}

register("model_type", "glm")(
    descendant(
        about="GLM-4-9B and GLM-Edge",
        name="Glm",
        presets=("glm_edge_1.5b", "glm4_9b"),
        **GLM | {"layout": llama_layout({**NORMS, **GATED}, {})},
        fits=lambda config, arch: _is_glm(config, arch) and not config.norm_after,
    )
)
register("model_type", "glm4")(
    descendant(
        about="GLM-4 of April 2025 without experts",
        name="Glm4",
        presets=("glm4_9b_0414",),
        **GLM | {"layout": llama_layout({**GLM_NORMS, **GATED}, {})},
        fits=lambda config, arch: _is_glm(config, arch) and config.norm_after,
    )
)
