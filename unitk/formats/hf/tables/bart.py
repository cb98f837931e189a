"""BART: an encoder and a decoder, with norms of sums."""

from __future__ import annotations

import torch

from unitk.errors import CheckpointError
from unitk.formats.hf.families import CLASSIFIER, PLACES, SLOTS, TEXTS, Changes, Checkpoint, Family
from unitk.formats.hf.generation import bart_opening
from unitk.formats.names import Form, Layout, cross_layer, layer, prefix_names
from unitk.formats.settings import keys
from unitk.registry import register

BART_KEYS = keys("""
    num_layers=encoder_layers decoder_layers=decoder_layers width=d_model
    num_heads=encoder_attention_heads ffn_width=encoder_ffn_dim
    max_positions=max_position_embeddings activation=activation_function
    embedding_scale=scale_embedding dropout=dropout attention_dropout=attention_dropout
    activation_dropout=activation_dropout init_std=init_std
""")
BART_LAYER = layer(
    tuple(f"self_attn.{part}_proj" for part in "qkv"),
    *("self_attn.out_proj", "self_attn_layer_norm", "fc1", "fc2", "final_layer_norm"),
)
CROSS = cross_layer(
    "encoder_attn.q_proj",
    ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    *("encoder_attn.out_proj", "encoder_attn_layer_norm"),
)
BIAS = "final_logits_bias"
ROW = Form(lambda row, _: row.flatten(), lambda bias, _: bias[None])
"""A vector that is stored as a matrix of one row."""
BART = Layout(
    {
        "embed.tokens": "model.shared",
        "embed.positions": "model.decoder.embed_positions",
        "embed.norm": "model.decoder.layernorm_embedding",
        "encoder.embed.positions": "model.encoder.embed_positions",
        "encoder.embed.norm": "model.encoder.layernorm_embedding",
        "heads.lm.weight": "lm_head.weight",
        "heads.lm.bias": BIAS,
        **prefix_names("model.decoder.layers.#.", "layers.#.", BART_LAYER | CROSS),
        **prefix_names("model.encoder.layers.#.", "encoder.layers.#.", BART_LAYER),
    },
    forms={BIAS: ROW},
    copies=dict.fromkeys(
        (
            "model.encoder.embed_tokens.weight",
            "model.decoder.embed_tokens.weight",
            "lm_head.weight",
        ),
        "model.shared.weight",
    ),
)


def _bart(checkpoint: Checkpoint) -> Changes:
    _, tensors, given, where = checkpoint
    for part in ("attention_heads", "ffn_dim"):
        both = [given.get(f"{tower}_{part}") for tower in ("encoder", "decoder")]
        if both[0] != both[1]:
            raise CheckpointError(f"{where}: both towers need the same {part}, got {both}")
    bias = tensors.pop(BIAS, torch.zeros(1))
    if not bias.any():
        return {}
    tensors[BIAS] = bias
    return {"output_bias": True}


register("model_type", "bart")(
    Family(
        about="BART",
        name="Bart",
        root="model.",
        presets=("bart_base", "bart_large"),
        task="seq2seq",
        layout=BART,
        separators=2,
        heads={TEXTS: CLASSIFIER, PLACES: SLOTS[PLACES]},
        keys=BART_KEYS,
        fixed={"normalize_before": False, "add_final_layer_norm": False},
        complete=_bart,
        entries=lambda config: {
            "decoder_attention_heads": config.num_heads,
            "decoder_ffn_dim": config.ffn_width,
        },
        options={"opening": "both"},
        laid={"opening": "both"},
        told=lambda told: {"opening": bart_opening(told.given, told.folder)},
        # a buffer of transformers
        buffers=lambda rows: {"final_logits_bias": torch.zeros(1, rows)},
        offset=lambda pad: 2,
        free=("output_bias",),
        fits=lambda config, arch: config.norm != "rms",
    )
)
