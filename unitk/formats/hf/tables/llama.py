"""Llama and what descends from it: rotary positions, RMSNorm and a gated feed-forward part.

A table says in what a model type differs from Llama. Most read from left to right; if config.json
says `"is_causal": false`, transformers lets the same classes see both sides.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from unitk.errors import CheckpointError, require
from unitk.formats.hf.families import (
    CAUSAL,
    GEMMA_TEXTS,
    PLACES,
    SLOTS,
    TEXTS,
    WORDS,
    Changes,
    Checkpoint,
    Family,
)
from unitk.formats.hf.generation import UNDELIMITED, decoder_opening
from unitk.formats.hf.layers import (
    BASE,
    FULL,
    SHARE,
    SLIDING,
    bases_of,
    bases_of_types,
    check_bases,
    check_windows,
    layer_types,
    read_windows,
    rope_entries,
    ropes,
    rotary,
    rotary_entries,
    rotary_of_types,
    window_entries,
)
from unitk.formats.names import HALVES, LESS_ONE, Layout, Stored, StoredNames, compose, prefix_names
from unitk.formats.settings import check_value, keys, refuse
from unitk.models.config import ModelConfig
from unitk.options.fields import render
from unitk.registry import register

KEYS = keys("""
    num_layers=num_hidden_layers width=hidden_size num_heads=num_attention_heads
    num_kv_heads=num_key_value_heads head_width=head_dim ffn_width=intermediate_size
    norm_eps=rms_norm_eps activation=hidden_act attention_dropout=attention_dropout
    init_std=initializer_range
""")
GEMMA_KEYS = {
    **KEYS,
    **keys("activation=hidden_activation|hidden_act logit_cap=final_logit_softcapping"),
}
LAYER: dict[str, StoredNames] = {
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
FOUR = {**NORMS, **AFTER, "ffn_norm": "pre_feedforward_layernorm"}
"""Norms of inputs as well (Gemma)."""
TURNING: dict[str, Stored] = {r".*\.self_attn\.[qk]_(proj|norm)\.(weight|bias)": HALVES}
GEMMA_NORMS: dict[str, Stored] = {
    r".*\.self_attn\.[qk]_norm\.weight": compose(LESS_ONE, HALVES),
    r".*norm\.weight": LESS_ONE,
}
LONGEST = 32_768  # positions, written for models without a limit
WINDOW = 4096  # of those that say no other
GEMMA_BASES = {FULL: ("rope_theta", 1e6), SLIDING: ("rope_local_base_freq", 1e4)}
"""Type of layer -> where transformers 4 has the base of its rotary positions, and the usual one."""
BIDIRECTIONAL = "use_bidirectional_attention"


def llama_layout(norms: Mapping[str, str] = NORMS, forms: Mapping[str, Stored] = TURNING) -> Layout:
    """The table of names, with these norms of a layer."""
    return Layout(
        {
            "embed.tokens": "model.embed_tokens",
            "norm": "model.norm",
            "heads.lm.weight": "lm_head.weight",
            **prefix_names("model.layers.#.", "layers.#.", {**LAYER, **norms}),
        },
        forms=forms,
        copies={"lm_head.weight": "model.embed_tokens.weight"},
        ignored=(r".*\.rotary_emb\.inv_freq",),
    )


def head_groups(checkpoint: Checkpoint) -> Changes:
    """Heads of keys and values, and what no released model has."""
    config, _, declared, _ = checkpoint
    # as many heads as queries have are no groups, and one matrix with the queries
    groups = declared.get("num_key_value_heads") not in (None, config.num_heads)
    # the virtual row of our own presets belongs to no released model
    changes: Changes = {"num_virtual": 0, "max_positions": 0}
    changes["num_kv_heads"] = config.num_kv_heads if groups else 0
    return changes


def complete_llama(checkpoint: Checkpoint) -> Changes:
    """Heads of keys and values, and rotary positions, the same in all layers."""
    _, _, declared, where = checkpoint
    rope = ropes(declared, where)
    refuse({**declared, **rope}, {SHARE: 1.0, "rope_interleaved": False}, where)
    return head_groups(checkpoint) | rotary(rope, where, declared.get(BASE, 10000.0))


def llama_entries(config: ModelConfig) -> Changes:
    """The entries that `KEYS` cannot express."""
    length = {"max_position_embeddings": config.max_positions or LONGEST}
    return length | rope_entries(config)


def opens(config: ModelConfig) -> Changes:
    """The entries with which a class sees both sides; a window leaves out the slot itself then."""
    window = window_entries(config, causal=False)["sliding_window"]
    return {CAUSAL: False} | ({"sliding_window": window} if window else {})


def _upper_windows(checkpoint: Checkpoint) -> Changes:
    """Qwen's windows, which only layers from a certain one on have, if any."""
    config, _, declared, where = checkpoint
    windows: tuple[int, ...] = ()
    types = layer_types(declared, [FULL] * config.num_layers, where)
    if declared.get("use_sliding_window"):
        first = check_value(declared.get("max_window_layers", 28), int, "max_window_layers", where)
        default = [SLIDING if n >= first else FULL for n in range(config.num_layers)]
        types = layer_types(declared, default, where)
        windows = read_windows({"sliding_window": WINDOW, **declared}, types, where)
    return complete_llama(checkpoint) | {"layer_windows": windows}


def _upper_windows_entries(config: ModelConfig) -> Changes:
    used = {"use_sliding_window": any(config.layer_windows)}
    return llama_entries(config) | window_entries(config) | used


def one_window(checkpoint: Checkpoint) -> Changes:
    """Mistral's layers have one window, or none, unless a file says more of each."""
    declared = {"sliding_window": WINDOW, **checkpoint.declared}
    usual = [FULL if declared["sliding_window"] is None else SLIDING] * checkpoint.config.num_layers
    types = layer_types(declared, usual, checkpoint.where)
    return complete_llama(checkpoint) | {
        "layer_windows": read_windows(declared, types, checkpoint.where)
    }


def one_window_entries(config: ModelConfig) -> Changes:
    return llama_entries(config) | {"sliding_window": window_entries(config)["sliding_window"]}


def _smollm3(checkpoint: Checkpoint) -> Changes:
    """SmolLM3's layers without rotary positions, by default every fourth one."""
    config, _, declared, where = checkpoint
    count = config.num_layers
    key = "no_rope_layers"
    interval = check_value(
        declared.get(f"{key[:-1]}_interval", 4), int, f"{key[:-1]}_interval", where
    )
    usual = [int(interval < 1 or (n + 1) % interval > 0) for n in range(count)]
    turns = check_value(usual if declared.get(key) is None else declared[key], list, key, where)[
        :count
    ]
    if len(turns) < count or not {*map(repr, turns)} <= {"0", "1"}:
        raise CheckpointError(
            f"{where}: {key} must have 0 or 1 for each of {count} layers, got {turns!r}"
        )
    changes = complete_llama(checkpoint)
    used = declared.get("use_sliding_window") and declared.get("sliding_window") is not None
    # the flag counts only where no list says more: transformers makes the masks by the list
    types = layer_types(
        declared, [SLIDING if used and not turning else FULL for turning in turns], where
    )
    return (
        changes
        | bases_of([changes["rotary_base"] * turning for turning in turns])
        | {"layer_windows": read_windows(declared, types, where)}
    )


def _smollm3_entries(config: ModelConfig) -> Changes:
    bases = [base for _, base in config.layer_kinds]
    # 0 stands for a layer without positions, which is told by `no_rope_layers`
    base = max(bases) or config.rotary_base
    rope = rope_entries(config, base)
    return (
        _upper_windows_entries(config)
        | rope
        | {"no_rope_layers": [int(base > 0) for base in bases]}
    )


def _gemma3(checkpoint: Checkpoint) -> Changes:
    """Gemma 3's layers with a window and those without have bases of their own."""
    config, _, declared, where = checkpoint
    if declared.get("query_pre_attn_scalar", 256) != config.key_width:
        scalar = declared.get("query_pre_attn_scalar", 256)
        raise CheckpointError(
            f"{where}: unitk reads only query_pre_attn_scalar equal to head_dim "
            f"{config.key_width}, got {scalar!r}"
        )
    interval = check_value(
        declared.get("sliding_window_pattern", 6), int, "sliding_window_pattern", where
    )
    usual = [
        FULL if interval > 0 and (n + 1) % interval == 0 else SLIDING
        for n in range(config.num_layers)
    ]
    types = layer_types(declared, usual, where)
    bases = {kind: declared.get(key, base) for kind, (key, base) in GEMMA_BASES.items()}
    # its own flag halves the window, as both sides share it; the other one adds the slot itself
    seen = {"sliding_window": WINDOW, **declared}
    if declared.get(BIDIRECTIONAL) and SLIDING in types:
        window = check_value(seen["sliding_window"], int, "sliding_window", where)
        seen |= {CAUSAL: False, "sliding_window": window // 2 + (declared.get(CAUSAL) is False)}
    changes = head_groups(checkpoint) | rotary_of_types(declared, bases, types, where)
    return changes | {"layer_windows": read_windows(seen, types, where)}


def _gemma3_entries(config: ModelConfig) -> Changes:
    changes: Changes = {"rope_parameters": {}}
    for kind, bases in bases_of_types(config).items():
        key, usual = GEMMA_BASES[kind]
        changes[key] = next(iter(bases), usual)
        changes["rope_parameters"][kind] = rotary_entries(config, changes[key])
    return (
        llama_entries(config)
        | window_entries(config)
        | changes
        | {
            "query_pre_attn_scalar": config.key_width,
            "final_logit_softcapping": config.logit_cap or None,
        }
    )


def _opens_gemma3(config: ModelConfig) -> Changes:
    # half of its window lies on either side
    return {
        BIDIRECTIONAL: True,
        "sliding_window": 2 * max(config.layer_windows, default=0) or WINDOW,
    }


def check_one_window(config: ModelConfig) -> None:
    windows = {*config.layer_windows}
    require(
        len(windows) <= 1,
        "--to hf: all layers of transformers' class have one window, but --arch.layer-windows is "
        f"{render(config.layer_windows)}",
    )


def _check_smollm3(config: ModelConfig) -> None:
    check_windows(config)
    check_bases(config, [{base for _, base in config.layer_kinds} - {0}])


def _check_gemma3(config: ModelConfig) -> None:
    check_windows(config)
    check_bases(config, bases_of_types(config).values())
    turns = all(base for _, base in config.layer_kinds)
    require(turns, "--to hf: every layer of a gemma3_text model has rotary positions")


def _fits(config: ModelConfig, arch: str) -> bool:
    return config.positions == "rotary" and config.norm == "rms"


ROTARY = ("num_virtual", "rotary_base", "rotary_factor", "rotary_wavelengths")
LLAMA: dict[str, Any] = {
    "root": "model.",
    "task": "lm",
    "layout": llama_layout(),
    "keys": KEYS,
    "complete": complete_llama,
    "entries": llama_entries,
    "fixed": {"attention_bias": False, "mlp_bias": False},
    "options": {"opening": "none"},
    "free": ROTARY,
    "heads": {TEXTS: ("", "score"), WORDS: ("", "score"), PLACES: SLOTS[PLACES]},
    "roots": {PLACES: "transformer."},
    "laid": UNDELIMITED,
    "folder_options": decoder_opening,
    "whole": "ForCausalLM",
    "both_ways": True,
    "opens": opens,
    "fits": _fits,
}
"""The entries that Llama and its descendants share."""
WINDOWS = (*ROTARY, "layer_windows")
UPPER: dict[str, Any] = {
    "complete": _upper_windows,
    "entries": _upper_windows_entries,
    "check": check_windows,
    "free": WINDOWS,
}


def descendant(**entries: Any) -> Family:
    """A table that differs from Llama's in these entries."""
    return Family(**LLAMA | entries)


register("model_type", "qwen3")(
    descendant(
        about="Qwen3",
        name="Qwen3",
        presets=("qwen3_tiny", "qwen3_mini", "qwen3_small", "qwen3_base", "qwen3_0.6b"),
        **UPPER,
    )
)
register("model_type", "llama")(
    descendant(
        about="Llama, SmolLM2 and others of its kind",
        name="Llama",
        presets=("llama_tiny", "llama_135m", "llama_360m", "llama_1b"),
        options={"opening": "cls"},
        usual={"rms_norm_eps": 1e-6},
    )
)
register("model_type", "qwen2")(
    descendant(
        about="Qwen2 and Qwen2.5",
        name="Qwen2",
        presets=("qwen2_0.5b",),
        fixed={},
        tokenizer="Qwen2Tokenizer",
        **UPPER,
    )
)
register("model_type", "mistral")(
    descendant(
        about="Mistral",
        name="Mistral",
        presets=("mistral_7b",),
        options={"opening": "cls"},
        roots={},
        fixed={},
        usual={"rms_norm_eps": 1e-6},
        complete=one_window,
        entries=one_window_entries,
        check=check_one_window,
        free=WINDOWS,
    )
)
register("model_type", "smollm3")(
    descendant(
        about="SmolLM3",
        name="SmolLM3",
        presets=("smollm3_3b",),
        usual={BASE: 2e6},
        complete=_smollm3,
        entries=_smollm3_entries,
        free=(*WINDOWS, "layer_rotary_bases"),
        check=_check_smollm3,
    )
)
register("model_type", "olmo2")(
    descendant(
        about="OLMo 2",
        name="Olmo2",
        presets=("olmo2_1b",),
        layout=llama_layout(AFTER),
        usual={"rms_norm_eps": 1e-5},
        heads={TEXTS: ("", "score")},
        fixed={"attention_bias": False},
    )
)
register("model_type", "ernie4_5")(
    descendant(
        about="ERNIE 4.5 without experts",
        name="Ernie4_5",
        presets=("ernie4_5_0.3b",),
        layout=llama_layout(forms={}),  # channels that turn together are neighbours here, too
        usual={BASE: 5e5},
        options={"opening": "cls"},
        roots={},
        heads={},
        fixed={"use_bias": False},
        # nothing but its name tells it from a Llama
        fits=lambda config, arch: _fits(config, arch) and arch.startswith("ernie4_5"),
    )
)
register("model_type", "eurobert")(
    descendant(
        about="EuroBERT: Llama's layers that see both sides",
        name="EuroBert",
        task="mlm",
        presets=("eurobert_210m",),
        options={},
        whole="",
        both_ways=False,
        roots={},
        laid={},
        folder_options=lambda model_folder: {},
        outputs=("dense.",),
        heads={TEXTS: ("dense", "classifier"), WORDS: ("", "classifier")},
        head_dense="gelu",
        poolings={"late": "late", "bos": "slot", "mean": "mean"},
        free=(*ROTARY, "heads"),
        fits=lambda config, arch: _fits(config, arch) and arch.startswith("eurobert"),
    )
)
register("model_type", "gemma3_text")(
    descendant(
        about="Gemma 3 without pictures, and EmbeddingGemma's Transformer",
        name="Gemma3",
        presets=("gemma3_tiny", "gemma3_270m", "gemma3_1b"),
        heads={GEMMA_TEXTS: ("", "score")},
        layout=llama_layout(FOUR, {**GEMMA_NORMS, **TURNING}),
        keys=GEMMA_KEYS,
        options={"opening": "cls"},
        fixed={"attention_bias": False, "attn_logit_softcapping": None},
        complete=_gemma3,
        entries=_gemma3_entries,
        opens=_opens_gemma3,
        is_open=lambda declared: (
            declared.get(CAUSAL) is False or declared.get(BIDIRECTIONAL) is True
        ),
        free=(*WINDOWS, "layer_rotary_bases"),
        check=_check_gemma3,
    )
)
