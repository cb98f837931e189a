"""T5, T5 1.1 and UL2: an encoder and a decoder, with relative positions."""

from __future__ import annotations

from typing import Any

from unitk.errors import CheckpointError, UsageError, require
from unitk.formats.hf.families import (
    CLASSIFIER,
    PLACES,
    SLOTS,
    TEXTS,
    Changes,
    Checkpoint,
    Family,
    ModelFolder,
)
from unitk.formats.names import Layout, cross_layer, layer, prefix_names
from unitk.formats.settings import ACTIVATIONS, check_value, keys
from unitk.formats.vocabs import extra_ids
from unitk.models.config import ModelConfig
from unitk.registry import register

# T5 has one rate of dropout
T5_KEYS = keys("""
    num_layers=num_layers decoder_layers=num_decoder_layers width=d_model num_heads=num_heads
    head_width=d_kv ffn_width=d_ff relative_buckets=relative_attention_num_buckets
    relative_distance=relative_attention_max_distance norm_eps=layer_norm_epsilon
    attention_dropout=dropout_rate activation_dropout=dropout_rate dropout=dropout_rate
    init_std=initializer_factor
""")
PROJECTIONS = {
    "relu": (False, "relu"),
    "gated-gelu": (True, "gelu_tanh"),
    "gated-silu": (True, "silu"),  # UL2
}
"""T5's `feed_forward_proj` -> whether there is a gate, and the activation."""


def t5(side: str, prefix: str, halves: tuple[str, ...]) -> dict[str, Any]:
    """The names of a tower of T5, whose parts of a block and halves of a gated map are numbered."""
    # a decoder's block has cross-attention as its part 1
    ffn = "2" if side == "decoder" else "1"
    parts = layer(
        tuple(f"0.SelfAttention.{part}" for part in "qkv"),
        *("0.SelfAttention.o", "0.layer_norm"),
        tuple(f"{ffn}.DenseReluDense.wi{half}" for half in halves),
        f"{ffn}.DenseReluDense.wo",
        f"{ffn}.layer_norm",
    )
    if side == "decoder":
        kv = ("1.EncDecAttention.k", "1.EncDecAttention.v")
        parts |= cross_layer("1.EncDecAttention.q", kv, "1.EncDecAttention.o", "1.layer_norm")
    first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias"
    return {
        f"{prefix}relative.table": first,
        f"{prefix}norm": f"{side}.final_layer_norm",
        **prefix_names(f"{side}.block.#.layer.", f"{prefix}layers.#.", parts),
    }


T5, T5_GATED = (
    Layout(
        {
            "embed.tokens": "shared",
            "heads.lm.weight": "lm_head.weight",
            **t5("decoder", "", halves),
            **t5("encoder", "encoder.", halves),
        },
        copies=dict.fromkeys(
            ("encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight"),
            "shared.weight",
        ),
        # of a table that was never used
        ignored=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
    )
    for halves in (("",), ("_0", "_1"))
)


def _t5(checkpoint: Checkpoint) -> Changes:
    _, _, declared, where = checkpoint
    key = "feed_forward_proj"
    projection = check_value(declared.get(key, "relu"), str, key, where)
    if projection not in PROJECTIONS:
        known = " or ".join(PROJECTIONS)
        raise CheckpointError(f"{where}: feed_forward_proj must be {known}, got {projection!r}")
    gate, activation = PROJECTIONS[projection]
    for other, expected in (("dense_act_fn", activation), ("is_gated_act", gate)):
        # what transformers derives and writes, too, counts there
        if (stated := declared.get(other)) is not None and ACTIVATIONS.get(
            str(stated), stated
        ) != expected:
            raise CheckpointError(f"{where}: {key} is {projection!r}, but {other} is {stated!r}")
    # before it had a name of its own, the scale went by whether the output matrix was tied
    scaled = declared.get("scale_decoder_outputs", declared.get("tie_word_embeddings") is not False)
    scaled = check_value(scaled, bool, "scale_decoder_outputs", where)
    return {"ffn_gate": gate, "activation": activation, "output_scale": scaled}


def _t5_entries(config: ModelConfig) -> Changes:
    kind = (config.ffn_gate, config.activation)
    projection = next((value for value, name in PROJECTIONS.items() if name == kind), None)
    if projection is None:
        raise UsageError(f"--to hf: T5 has no feed-forward layer with {kind[1]} and gate {kind[0]}")
    return {"feed_forward_proj": projection, "scale_decoder_outputs": config.output_scale}


def _check_t5(config: ModelConfig) -> None:
    require(
        config.relative_buckets > 0,
        "--to hf: T5 has a bias of distances, but --arch.relative-buckets is 0",
    )


def t5_opening(model_folder: ModelFolder) -> dict[str, str]:
    """`--task.opening sep` where the decoder begins with the end of a text, not with [PAD]."""
    begins = model_folder.declared.get("decoder_start_token_id")
    return {"opening": "sep"} if model_folder.vocab and begins == model_folder.vocab.sep else {}


ALIKE: dict[str, Any] = {
    "root": "",
    "task": "seq2seq",
    "layout": T5,
    "of_model": lambda config: T5_GATED if config.ffn_gate else T5,
    "heads": {TEXTS: CLASSIFIER, PLACES: SLOTS[PLACES]},
    "roots": {TEXTS: "transformer."},
    "spelled": extra_ids,
    "folder_options": t5_opening,
    "keys": T5_KEYS,
    "complete": _t5,
    "entries": _t5_entries,
    "check": _check_t5,
    "options": {"opening": "pad"},
    "free": ("ffn_gate", "activation", "output_scale"),
}


def _fits(config: ModelConfig, multilingual: bool) -> bool:
    return config.norm == "rms" and config.positions != "rotary" and not multilingual


register("model_type", "t5")(
    Family(
        **ALIKE,
        about="T5, T5 1.1 and UL2",
        name="T5",
        presets=("t5_small", "t5_base", "t5_large", "t5_v1_1_small", "t5_v1_1_base", "ul2_20b"),
        fits=lambda config, arch: _fits(config, arch.startswith("mt5")),
    )
)
register("model_type", "mt5")(
    Family(
        **ALIKE
        | {
            "complete": lambda checkpoint: _t5(checkpoint) | {"output_scale": False},
            "free": ("ffn_gate", "activation"),
        },
        usual={"feed_forward_proj": "gated-gelu"},
        about="mT5",
        name="MT5",
        presets=("mt5_small", "mt5_base"),
        fits=lambda config, arch: _fits(config, not arch.startswith("mt5")),
    )
)
