"""Further descendants of Llama: GLM-4, Granite, Phi-3, StableLM, StarCoder2.

A table says in what a model type differs from Llama. Factors of Granite's parts become a part of
the weights, which are a Llama's then.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from unitk.errors import CheckpointError, require
from unitk.formats.hf.families import TEXTS, WORDS, Changes, Checkpoint
from unitk.formats.hf.layers import BASE, SHARE, ropes, rotary, rotary_entries
from unitk.formats.hf.tables.llama import (
    KEYS,
    NORMS,
    ROTARY,
    WINDOWS,
    check_one_window,
    complete_llama,
    descendant,
    head_groups,
    llama_entries,
    llama_layout,
    one_window,
    one_window_entries,
)
from unitk.formats.names import FUSED, HALVES, Layout, Stored, compose
from unitk.formats.settings import check_value, keys, refuse
from unitk.models.config import ModelConfig
from unitk.registry import register

GATED = {"ffn.up": "mlp.gate_up_proj"}
"""Both maps of the gated feed-forward part in one matrix, as in unitk."""
GLM_NORMS = {
    **NORMS,
    "attention_after": "post_self_attn_layernorm",
    "ffn_after": "post_mlp_layernorm",
}


OUTPUT, TABLE = "lm_head.weight", "model.embed_tokens.weight"
FACTORS = (
    "embedding_multiplier",
    "attention_multiplier",
    "residual_multiplier",
    "logits_scaling",
)
"""Granite's factors of embeddings, scores and parts, and what its logits are divided by."""
SCALED = "factors"


def _share(usual: float) -> Callable[[Checkpoint], Changes]:
    """Heads of keys and values, and rotary positions of a share of the channels."""

    def complete(checkpoint: Checkpoint) -> Changes:
        _, _, declared, where = checkpoint
        if "block_position_encoding" in declared:
            raise CheckpointError(f"{where}: this GLM has block positions (--from glm reads it)")
        base, share = declared.get(BASE, 10000.0), declared.get(SHARE, usual)
        return head_groups(checkpoint) | rotary(ropes(declared, where), where, base, share)

    return complete


def _share_entries(config: ModelConfig) -> Changes:
    # a share that is left out is not all of the channels there
    share = {SHARE: config.rotary_share}
    return llama_entries(config) | share | {"rope_parameters": rotary_entries(config) | share}


def _is_glm(config: ModelConfig, arch: str) -> bool:
    rotates = config.positions == "rotary" and config.norm == "rms" and not config.qk_norm
    return rotates and (arch.startswith("glm") or config.rotary_share < 1)


def _stablelm(checkpoint: Checkpoint) -> Changes:
    config, _, declared, where = checkpoint
    refuse(declared, {"head_dim": config.width // config.num_heads}, where)
    return _share(0.25)(checkpoint)


def _phi3(checkpoint: Checkpoint) -> Changes:
    config, _, _, where = checkpoint
    changes = one_window(checkpoint)
    if changes["num_kv_heads"]:
        raise CheckpointError(
            f"{where}: unitk reads a Phi-3 with num_key_value_heads {config.num_heads} only, as "
            f"num_attention_heads, got {config.num_kv_heads}"
        )
    return changes


def _check_phi3(config: ModelConfig) -> None:
    check_one_window(config)
    require(not config.grouped, "--to hf: a Phi-3 has one matrix of queries, keys and values")


def _set_apart(declared: Changes, where: Path) -> Changes:
    """Granite's factors under a name of their own, as no other model is read with any."""
    factors = {key: check_value(declared.get(key, 1.0), float, key, where) for key in FACTORS}
    if min(factors.values()) <= 0:
        raise CheckpointError(f"{where}: {', '.join(FACTORS)} must be above 0, got {factors}")
    rest = {key: value for key, value in declared.items() if key not in FACTORS}
    return rest | {SCALED: factors}


def _granite(checkpoint: Checkpoint) -> Changes:
    """A Llama with an output of its own: of the embeddings, by another factor."""
    tensors = checkpoint.tensors
    if TABLE in tensors:
        tensors.setdefault(OUTPUT, tensors[TABLE])
    return complete_llama(checkpoint) | {"tied": False}


def _multiply(layout: Layout, declared: Mapping[str, Any]) -> Layout:
    """The table of names with Granite's factors, by which weights are multiplied."""
    embeddings, scores, parts, divisor = declared[SCALED].values()

    def times(factor: float) -> Stored:
        return Stored(lambda tensor, _: tensor.float() * factor, lambda tensor, _: tensor / factor)

    # Llama divides scores by the root of the width of a head
    root = Stored(
        lambda tensor, config: tensor * config.key_width**0.5,
        lambda tensor, config: tensor / config.key_width**0.5,
    )
    forms = {
        re.escape(TABLE): times(embeddings),
        r".*\.q_proj\.weight": compose(times(scores), root, HALVES),
        r".*\.(o|down)_proj\.weight": times(parts),
        re.escape(OUTPUT): times(1 / divisor),
    }
    return replace(layout, forms={**forms, **layout.forms})


# channels that turn together are neighbours here, too
GLM: dict[str, Any] = {
    "keys": {**KEYS, **keys("qkv_bias=attention_bias")},
    "usual": {
        "attention_bias": True,
        "rms_norm_eps": 1.5625e-7,
        "num_key_value_heads": 2,
    },
    "complete": _share(0.5),
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

register("model_type", "granite")(
    descendant(
        about="Granite, which leaves as a Llama",
        name="Granite",
        presets=("llama_tiny", "llama_135m", "llama_360m", "llama_1b"),
        usual={"rms_norm_eps": 1e-6},
        unpack=_set_apart,
        complete=_granite,
        of_checkpoint=_multiply,
        heads={},
        roots={},
        fits=lambda config, arch: False,
    )
)
register("model_type", "phi3")(
    descendant(
        about="Phi-3 with positions that are not scaled",
        name="Phi3",
        presets=("phi3_3.8b",),
        layout=llama_layout(
            {**NORMS, **GATED, "attention.qkv": "self_attn.qkv_proj"},
            {r".*\.self_attn\.qkv_proj\.weight": FUSED},
        ),
        usual={"sliding_window": None},
        fixed={},
        complete=_phi3,
        entries=one_window_entries,
        check=_check_phi3,
        free=("num_virtual", "rotary_base", "layer_windows"),
        heads={TEXTS: ("", "score"), WORDS: ("", "score")},
        roots={},
        # nothing but its name tells it from a Llama
        fits=lambda config, arch: config.norm == "rms" and arch.startswith("phi3"),
    )
)
register("model_type", "stablelm")(
    descendant(
        about="StableLM",
        name="StableLm",
        presets=("stablelm_2_1.6b",),
        keys={
            **{field: names for field, names in KEYS.items() if field != "head_width"},
            **keys("norm_eps=layer_norm_eps qkv_bias=use_qkv_bias"),
        },
        usual={"use_qkv_bias": False},
        fixed={"use_parallel_residual": False, "qk_layernorm": False},
        complete=_stablelm,
        both_ways=False,
        entries=_share_entries,
        free=(*ROTARY, "rotary_share"),
        heads={TEXTS: ("", "score"), WORDS: ("", "score")},
        roots={},
        fits=lambda config, arch: (
            config.positions == "rotary"
            and config.norm == "layer"
            and config.norm_bias
            and config.ffn_gate
        ),
    )
)
register("model_type", "starcoder2")(
    descendant(
        about="StarCoder2",
        name="Starcoder2",
        presets=("starcoder2_3b",),
        layout=llama_layout({**NORMS, "ffn.up": "mlp.c_fc", "ffn.down": "mlp.c_proj"}),
        keys={**KEYS, **keys("norm_eps=norm_epsilon bias=use_bias")},
        usual={"sliding_window": None, BASE: 10000.0},
        fixed={},
        complete=one_window,
        entries=one_window_entries,
        check=check_one_window,
        free=WINDOWS,
        heads={TEXTS: ("", "score"), WORDS: ("", "score")},
        roots={},
        fits=lambda config, arch: (
            config.positions == "rotary" and config.norm == "layer" and not config.ffn_gate
        ),
    )
)
