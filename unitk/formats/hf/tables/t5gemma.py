"""T5Gemma: an encoder and a decoder of Gemma 2's layers (Zhang et al. 2025, arXiv 2504.06225)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from unitk.errors import CheckpointError, require
from unitk.formats.hf.families import Changes, Checkpoint, Family
from unitk.formats.hf.layers import BASE, FULL, SLIDING, layer_types, rope_entries, ropes, rotary
from unitk.formats.hf.tables.llama import LAYER, LONGEST, ROTARY, head_groups
from unitk.formats.names import (
    HALVES,
    LESS_ONE,
    Layout,
    cross_layer,
    equal_tensors,
    layout_of_pair,
    prefix_names,
)
from unitk.formats.settings import check_value, keys, refuse
from unitk.models.config import ModelConfig
from unitk.registry import register

SIDES = ("encoder", "decoder")
DEPTH = "num_hidden_layers"
KEYS = keys(f"""
    num_layers={DEPTH} decoder_layers=decoder_{DEPTH} width=hidden_size
    num_heads=num_attention_heads num_kv_heads=num_key_value_heads head_width=head_dim
    ffn_width=intermediate_size norm_eps=rms_norm_eps activation=hidden_activation
    logit_cap=final_logit_softcapping dropout=dropout_rate attention_dropout=attention_dropout
    init_std=initializer_range
""")
USUAL: dict[str, Any] = {
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 256,
    "rms_norm_eps": 1e-6,
    "hidden_activation": "gelu_pytorch_tanh",
    "rope_parameters": None,
    "rope_scaling": None,
    BASE: 10000.0,
    "attention_bias": False,
    "query_pre_attn_scalar": 256,
    "attn_logit_softcapping": 50.0,
}
"""Entries that both towers must have alike -> what transformers takes without them."""
WRITTEN = {*USUAL, DEPTH, "layer_types", "sliding_window", "final_logit_softcapping"}
WRITTEN |= {"max_position_embeddings", "initializer_range", "vocab_size"}
WRITTEN |= {"pad_token_id", "bos_token_id", "eos_token_id"}
"""Entries of a tower that are written."""
EMBED = "embed_tokens.weight"


def tower_names(side: str, prefix: str) -> dict[str, Any]:
    """The names of a tower."""
    # queries and keys have no norms of their own
    layer = {name: LAYER[name] for name in LAYER if not name.endswith("_norm")}
    norms = {"attention": "self_attn", "ffn": "feedforward"}
    if side == "decoder":
        # grouped or not, keys and values of the encoder are apart from the queries
        kv = ("cross_attn.k_proj", "cross_attn.v_proj")
        layer |= cross_layer("cross_attn.q_proj", kv, "cross_attn.o_proj", "")
        norms["cross"] = "cross_attn"
    for part, place in norms.items():
        layer[f"{part}_norm"] = f"pre_{place}_layernorm"
        layer[f"{part}_after"] = f"post_{place}_layernorm"
    return {
        f"{prefix}embed.tokens": f"model.{side}.embed_tokens",
        f"{prefix}norm": f"model.{side}.norm",
        **prefix_names(f"model.{side}.layers.#.", f"{prefix}layers.#.", layer),
    }


def towers_table(*, shared: bool) -> Layout:
    """The table of names; a `shared` embedding is stored for both towers."""
    shared_names = {f"model.encoder.{EMBED}": f"model.decoder.{EMBED}"}
    output = {"heads.lm.weight": "lm_head.out_proj.weight"}
    return Layout(
        {**tower_names("encoder", "encoder."), **tower_names("decoder", ""), **output},
        # nothing turns in cross-attention
        forms={r".*\.self_attn\.[qk]_proj\.weight": HALVES, r".*norm\.weight": LESS_ONE},
        copies={"lm_head.out_proj.weight": f"model.decoder.{EMBED}"},
        twice=shared_names if shared else {},
        ignored=(r".*\.rotary_emb\.inv_freq",),
    )


SHARED, APART = towers_table(shared=True), towers_table(shared=False)


def unpack_towers(declared: Changes, where: Path) -> Changes:
    """The entries of both towers side by side; they differ in their number of layers alone."""
    towers = {side: check_value(declared.get(side) or {}, dict, side, where) for side in SIDES}
    for key, usual in USUAL.items():
        encoder, decoder = (towers[side].get(key, usual) for side in SIDES)
        if encoder != decoder:
            raise CheckpointError(
                f"{where}: encoder and decoder must have the same {key}, got {encoder!r} and "
                f"{decoder!r}"
            )
    # what a file leaves out has transformers' default, not that of a preset
    flat = {DEPTH: 26, "final_logit_softcapping": 30.0, **USUAL, **towers["decoder"]}
    for side in SIDES:
        count = check_value(towers[side].get(DEPTH, 26), int, f"{side}.{DEPTH}", where)
        flat[{"encoder": DEPTH, "decoder": f"decoder_{DEPTH}"}[side]] = count
        # Gemma 2: a window in every other layer, unless the file says otherwise
        usually = [FULL if n % 2 else SLIDING for n in range(min(count, 1000))]
        types = layer_types(towers[side], usually, f"{where}: {side}")
        if SLIDING in types:
            raise CheckpointError(f"{where}: {side}: unitk reads only {FULL} in layer_types")
    # transformers reads these in the towers alone, wherever else they are
    taken = {*SIDES, DEPTH, "final_logit_softcapping", *USUAL}
    return {**flat, **{key: value for key, value in declared.items() if key not in taken}}


def pack_towers(entries: Changes) -> Changes:
    """The inverse of `unpack_towers`."""
    start = entries.get("decoder_start_token_id")
    require(
        start is None or start != entries["pad_token_id"],
        "--to hf: T5Gemma's decoder begins with no [PAD]: give --task.opening cls",
    )
    depth = entries.pop(f"decoder_{DEPTH}")
    shared = {key: entries[key] for key in sorted(WRITTEN & entries.keys())}
    # from labels, transformers makes what a decoder reads with its own entry
    begun = {} if start is None else {"bos_token_id": start}
    counts = {"encoder": entries[DEPTH], "decoder": depth}
    sides = {
        side: {**shared, **begun, DEPTH: counts[side], "layer_types": [FULL] * counts[side]}
        for side in SIDES
    }
    # these are in the towers and beside them
    kept = {"vocab_size", "initializer_range", *(key for key in shared if key.endswith("_id"))}
    return {key: entries[key] for key in entries if key not in shared.keys() - kept} | sides


def _t5gemma(checkpoint: Checkpoint) -> Changes:
    """Heads of keys and values, rotary positions, and whether the towers share an embedding."""
    config, tensors, declared, where = checkpoint
    refuse(declared, {"query_pre_attn_scalar": config.key_width}, where)
    # transformers ties the output to the decoder's embedding, and leaves the encoder's alone
    first, second = (tensors.get(f"model.{side}.{EMBED}") for side in SIDES)
    shared = first is None or second is None or equal_tensors(first, second)
    changes = head_groups(checkpoint) | rotary(ropes(declared, where), where, declared[BASE])
    return changes | {"shared_embeddings": shared}


def _t5gemma_entries(config: ModelConfig) -> Changes:
    return {
        "max_position_embeddings": config.max_positions or LONGEST,
        **rope_entries(config),
        "query_pre_attn_scalar": config.key_width,
        "final_logit_softcapping": config.logit_cap or None,
        "is_encoder_decoder": True,
    }


register("model_type", "t5gemma")(
    Family(
        about="T5Gemma",
        name="T5Gemma",
        root="model.",
        presets=("t5gemma_small", "t5gemma_mini", "t5gemma_tiny"),
        task="seq2seq",
        layout=APART,
        of_model=layout_of_pair(SHARED, APART),
        heads={},
        keys=KEYS,
        fixed={"attention_bias": False, "attn_logit_softcapping": None},
        unpack=unpack_towers,
        pack=pack_towers,
        complete=_t5gemma,
        entries=_t5gemma_entries,
        options={"opening": "cls"},
        free=(*ROTARY, "shared_embeddings"),
        fits=lambda config, arch: config.norm == "rms" and config.positions == "rotary",
    )
)
