"""Llama and what descends from it: rotary positions, RMSNorm and a gated feed-forward part.

A table says in what a model type differs from Llama. Most read from left to right; if config.json
says `"is_causal": false`, transformers lets the same classes see both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unitk.errors import CheckpointError
from unitk.formats.hf.families import Changes, Checkpoint, Family
from unitk.formats.names import HALVES, Layout, Theirs, within
from unitk.formats.settings import checked, keys
from unitk.models.config import ModelConfig
from unitk.registry import register

KEYS = keys("""
    num_layers=num_hidden_layers width=hidden_size num_heads=num_attention_heads
    num_kv_heads=num_key_value_heads head_width=head_dim ffn_width=intermediate_size
    norm_eps=rms_norm_eps activation=hidden_act attention_dropout=attention_dropout
    init_std=initializer_range
""")
LAYER: dict[str, Theirs] = {
    "attention.qkv": tuple(f"self_attn.{part}_proj" for part in "qkv"),
    # queries whose heads share keys and values are a matrix of their own in unitk
    "attention.query": "self_attn.q_proj",
    "attention.kv": ("self_attn.k_proj", "self_attn.v_proj"),
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "attention.out": "self_attn.o_proj",
    "ffn.up": ("mlp.gate_proj", "mlp.up_proj"),
    "ffn.down": "mlp.down_proj",
}
NORMS = {"attention_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}
AFTER = {
    "attention_after": "post_attention_layernorm",
    "ffn_after": "post_feedforward_layernorm",
}
"""Norms of what attention and feed-forward part make (OLMo 2)."""
LONGEST = 32_768  # positions, written for models without a limit
ROPES = ("default", "linear", "llama3")


def table(norms: Mapping[str, str] = NORMS) -> Layout:
    """The table of names, with these norms of a layer."""
    return Layout(
        {
            "embed.tokens": "model.embed_tokens",
            "norm": "model.norm",
            "heads.lm.weight": "lm_head.weight",
            **within("model.layers.#.", "layers.#.", {**LAYER, **norms}),
        },
        forms={r".*\.self_attn\.[qk]_(proj|norm)\.(weight|bias)": HALVES},
        copies={"lm_head.weight": "model.embed_tokens.weight"},
        ignored=(r".*\.rotary_emb\.inv_freq",),
    )


def complete(checkpoint: Checkpoint) -> Changes:
    """Heads of keys and values, and rotary positions."""
    config, _, given, where = checkpoint
    # as many heads as queries have are no groups, and one matrix with the queries
    groups = given.get("num_key_value_heads") not in (None, config.num_heads)
    # the virtual row of our own presets belongs to no released model
    changes: Changes = {"num_virtual": 0, "max_positions": 0}
    changes["num_kv_heads"] = config.num_kv_heads if groups else 0
    return changes | rotary(given, given.get("rope_parameters") or {}, where)


def rotary(given: Mapping[str, Any], rope: Mapping[str, Any], where: object) -> Changes:
    """The settings of rotary positions; transformers 4 had them in other places."""
    rope = {**(given.get("rope_scaling") or {}), **checked(rope, dict, "rope_parameters", where)}

    def number(key: str) -> float:
        return float(checked(rope.get(key), float, key, where))

    kind = rope.get("rope_type", rope.get("type", ROPES[0]))
    if kind not in ROPES:
        raise CheckpointError(f"{where}: rope_type must be one of {', '.join(ROPES)}, got {kind!r}")
    rope.setdefault("rope_theta", given.get("rope_theta", 10000.0))
    changes: Changes = {"rotary_base": number("rope_theta")}
    if kind != "default":
        changes["rotary_factor"] = number("factor")
    if kind == "llama3":
        # what turns once within these numbers of positions keeps its angle, or is scaled
        length = number("original_max_position_embeddings")
        bounds = (number("high_freq_factor"), number("low_freq_factor"))
        if min(bounds) <= 0:
            raise CheckpointError(f"{where}: {kind} needs factors above 0, got {bounds}")
        changes["rotary_wavelengths"] = tuple(length / bound for bound in bounds)
    return changes


def about_rotary(config: ModelConfig, base: float | None = None) -> dict[str, Any]:
    """The entry `rope_parameters`, with another base if it is given."""
    found: dict[str, Any] = {"rope_type": "default", "rope_theta": base or config.rotary_base}
    if config.rotary_factor != 1:
        found |= {"rope_type": "linear", "factor": config.rotary_factor}
    if config.rotary_wavelengths:
        # only the quotients count: the lower bound is the length of the first training
        first, second = config.rotary_wavelengths
        found |= {"rope_type": "llama3", "original_max_position_embeddings": int(second)}
        found |= {"low_freq_factor": 1.0, "high_freq_factor": second / first}
    return found


def entries(config: ModelConfig) -> Changes:
    """What `KEYS` cannot express; `rope_theta` is where transformers 4 looks for it."""
    return {
        "max_position_embeddings": config.max_positions or LONGEST,
        "rope_parameters": about_rotary(config),
        "rope_theta": config.rotary_base,
    }


LLAMA: dict[str, Any] = {
    "root": "model.",
    "task": "lm",
    "layout": table(),
    "keys": KEYS,
    "complete": complete,
    "entries": entries,
    "fixed": {"attention_bias": False, "mlp_bias": False},
    "options": {"opening": "none"},
    "free": ("num_virtual", "rotary_base", "rotary_factor", "rotary_wavelengths"),
    "heads": {},
    "whole": "ForCausalLM",
    "both_ways": True,
    "fits": lambda config, arch: (
        config.positions == "rotary" and config.norm == "rms" and config.norm_first
    ),
}
"""What Llama and its descendants have in common."""
FIXED = LLAMA["fixed"]

register("model_type", "qwen3")(
    Family(
        **LLAMA | {"fixed": FIXED | {"use_sliding_window": False}},
        about="Qwen3",
        name="Qwen3",
        presets=("qwen3_tiny", "qwen3_mini", "qwen3_small", "qwen3_base", "qwen3_0.6b"),
    )
)
register("model_type", "llama")(
    Family(
        **LLAMA | {"options": {"opening": "cls"}},
        about="Llama, SmolLM2 and others of its kind",
        name="Llama",
        presets=("llama_tiny", "llama_135m", "llama_360m", "llama_1b"),
    )
)
register("model_type", "qwen2")(
    Family(
        **LLAMA | {"fixed": {"use_sliding_window": False}},
        about="Qwen2 and Qwen2.5",
        name="Qwen2",
        presets=("qwen2_0.5b",),
        tokenizer="Qwen2Tokenizer",
    )
)
