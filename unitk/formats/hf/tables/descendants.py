"""Further descendants of Llama: GLM-4, Granite, Phi-3, StableLM, StarCoder2.

A table says in what a model type differs from Llama. Factors of Granite's parts become a part of
the weights, which are a Llama's then.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unitk.errors import CheckpointError
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


FUSED, PARTS = "qkv_proj.weight", tuple(f"{part}_proj.weight" for part in "qkv")
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
    """Phi-3's queries, keys and values are one matrix, which is cut into Llama's three."""
    config, tensors, _, where = checkpoint
    sizes = [config.heads_width, config.kv_width, config.kv_width]
    for name in [name for name in tensors if name.endswith(FUSED)]:
        fused = tensors.pop(name)
        if fused.shape[:1] != (sum(sizes),):
            raise CheckpointError(
                f"{where}: {name} needs {sum(sizes):,} rows, got {list(fused.shape)}"
            )
        names = (name.replace(FUSED, part) for part in PARTS)
        tensors |= zip(names, fused.split(sizes), strict=True)
    return one_window(checkpoint)


def _join_phi3(stored: dict[str, Tensor]) -> dict[str, Tensor]:
    joined = {}
    for name, tensor in stored.items():
        if name.endswith(PARTS[0]):
            rows = [stored[name.replace(PARTS[0], part)] for part in PARTS]
            joined[name.replace(PARTS[0], FUSED)] = torch.cat(rows)
        elif not name.endswith(PARTS):
            joined[name] = tensor
    return joined


def _set_apart(declared: Changes, where: Path) -> Changes:
    """Granite's factors under a name of their own, as no other model is read with any."""
    factors = {key: check_value(declared.get(key, 1.0), float, key, where) for key in FACTORS}
    if min(factors.values()) <= 0:
        raise CheckpointError(f"{where}: {', '.join(FACTORS)} must be above 0, got {factors}")
    rest = {key: value for key, value in declared.items() if key not in FACTORS}
    return rest | {SCALED: factors}


def _granite(checkpoint: Checkpoint) -> Changes:
    """Multiply weights by Granite's factors; what is left is a Llama with an output of its own."""
    config, tensors, declared, _ = checkpoint
    embeddings, scores, parts, divisor = declared[SCALED].values()
    if TABLE in tensors:
        tensors.setdefault(OUTPUT, tensors[TABLE])
    factors = {
        re.escape(TABLE): embeddings,
        # Llama divides scores by the root of the width of a head
        r".*\.q_proj\.weight": scores * config.key_width**0.5,
        r".*\.(o|down)_proj\.weight": parts,
        re.escape(OUTPUT): 1 / divisor,
    }
    for pattern, factor in factors.items():
        for name in [name for name in tensors if re.fullmatch(pattern, name)]:
            tensors[name] = tensors[name].float() * factor
    return complete_llama(checkpoint) | {"tied": False}


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
        layout=llama_layout({**NORMS, **GATED}),
        usual={"sliding_window": None},
        fixed={},
        complete=_phi3,
        entries=one_window_entries,
        join=_join_phi3,
        check=check_one_window,
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
