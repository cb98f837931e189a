"""BART, Pegasus, Marian and mBART: an encoder and a decoder, whose norms differ in their places."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from unitk.errors import CheckpointError
from unitk.formats.hf.families import CLASSIFIER, PLACES, SLOTS, TEXTS, Changes, Checkpoint, Family
from unitk.formats.hf.generation import bart_opening, mbart_options
from unitk.formats.hf.tables.t5 import t5_opening
from unitk.formats.names import POSITIONS, Layout, Stored, cross_layer, layer, prefix_names
from unitk.formats.settings import keys
from unitk.models.config import ModelConfig
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
ROW = Stored(lambda row, _: row.flatten(), lambda bias, _: bias[None])
"""A vector that is stored as a matrix of one row."""
EMBED, OUTPUT = "model.shared.weight", "lm_head.weight"
INNER = dict.fromkeys(
    (f"model.{tower}.embed_tokens.weight" for tower in ("encoder", "decoder")), EMBED
)
BART = Layout(
    {
        "embed.tokens": "model.shared",
        "embed.positions": "model.decoder.embed_positions",
        "embed.norm": "model.decoder.layernorm_embedding",
        "norm": "model.decoder.layer_norm",
        "encoder.embed.positions": "model.encoder.embed_positions",
        "encoder.embed.norm": "model.encoder.layernorm_embedding",
        "encoder.norm": "model.encoder.layer_norm",
        "heads.lm.weight": OUTPUT,
        "heads.lm.bias": BIAS,
        **prefix_names("model.decoder.layers.#.", "layers.#.", BART_LAYER | CROSS),
        **prefix_names("model.encoder.layers.#.", "encoder.layers.#.", BART_LAYER),
    },
    forms={BIAS: ROW},
    copies={**INNER, OUTPUT: EMBED},
)
UNTIED = replace(BART, twice=INNER)
"""transformers ties the towers' embeddings to nothing where the output has a matrix of its own."""


def _bart(checkpoint: Checkpoint) -> Changes:
    _, tensors, declared, where = checkpoint
    for part in ("attention_heads", "ffn_dim"):
        of_towers = [declared.get(f"{tower}_{part}") for tower in ("encoder", "decoder")]
        if of_towers[0] != of_towers[1]:
            raise CheckpointError(f"{where}: both towers need the same {part}, got {of_towers}")
    bias = tensors.pop(BIAS, torch.zeros(1))
    if not bias.any():
        return {}
    tensors[BIAS] = bias
    return {"output_bias": True}


def sinusoids(rows: int, width: int) -> Tensor:
    """The table of positions [rows, width] of Pegasus and Marian.

    Vaswani et al. 2017, arXiv 1706.03762, section 3.5, with all sines before all cosines.
    """
    # in doubles, as far positions would lose their differences
    speed = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
    angle = torch.arange(rows, dtype=torch.float64)[:, None] * speed
    return torch.cat([angle.sin(), angle[:, : width // 2].cos()], 1).float()


def _static(checkpoint: Checkpoint) -> Changes:
    """BART's settings, with tables of positions, which a file may leave out."""
    config, tensors, _, _ = checkpoint
    for name in POSITIONS:
        stored = f"{BART.names[name.removesuffix('.weight')]}.weight"
        if stored not in tensors:
            tensors[stored] = sinusoids(config.max_positions, config.width)
    return _bart(checkpoint)


def _places(*, norm_first: bool, embedding_norm: bool) -> dict[str, Any]:
    """What older files say of the places of norms, which are those of the class."""
    entries = {"normalize_before": norm_first, "add_final_layer_norm": norm_first}
    return entries | {"normalize_embedding": embedding_norm}


def _has_norms(config: ModelConfig, *, norm_first: bool, embedding_norm: bool) -> bool:
    same_norms = (config.norm_first, config.embedding_norm) == (norm_first, embedding_norm)
    return same_norms and config.norm != "rms"


ALIKE: dict[str, Any] = {
    "root": "model.",
    "task": "seq2seq",
    "layout": BART,
    "of_model": lambda config: BART if config.tied else UNTIED,
    "keys": BART_KEYS,
    "entries": lambda config: {
        "decoder_attention_heads": config.num_heads,
        "decoder_ffn_dim": config.ffn_width,
    },
    # a buffer of transformers
    "buffers": lambda rows: {BIAS: torch.zeros(1, rows)},
    "free": ("output_bias", "num_virtual"),
}
STATIC: dict[str, Any] = {
    **ALIKE,
    "heads": {},
    "complete": _static,
    "options": {"opening": "pad"},
    "folder_options": t5_opening,
    "usual": {"scale_embedding": False, "activation_function": "gelu"},
}
"""Pegasus and Marian: their positions are sinusoids, which are a table here."""
register("model_type", "bart")(
    Family(
        **ALIKE,
        about="BART",
        name="Bart",
        presets=("bart_base", "bart_large"),
        separators=2,
        heads={TEXTS: CLASSIFIER, PLACES: SLOTS[PLACES]},
        fixed={"normalize_before": False, "add_final_layer_norm": False},
        complete=_bart,
        options={"opening": "both"},
        laid={"opening": "both"},
        folder_options=lambda model_folder: {
            "opening": bart_opening(model_folder.declared, model_folder.path)
        },
        offset=lambda pad: 2,
        fits=lambda config, arch: _has_norms(config, norm_first=False, embedding_norm=True),
    )
)
register("model_type", "pegasus")(
    Family(
        **STATIC,
        about="Pegasus",
        name="Pegasus",
        presets=("pegasus_large",),
        fixed=_places(norm_first=True, embedding_norm=False),
        fits=lambda config, arch: _has_norms(config, norm_first=True, embedding_norm=False),
    )
)
register("model_type", "marian")(
    Family(
        **STATIC,
        about="Marian (OPUS-MT)",
        name="Marian",
        presets=("marian_base",),
        fixed={
            **_places(norm_first=False, embedding_norm=False),
            "share_encoder_decoder_embeddings": True,
        },
        whole="MTModel",
        fits=lambda config, arch: _has_norms(config, norm_first=False, embedding_norm=False),
    )
)
register("model_type", "mbart")(
    Family(
        **ALIKE | {"task": "mbart"},
        about="mBART and mBART-50",
        usual={"scale_embedding": False},
        name="MBart",
        whole="ForConditionalGeneration",
        presets=("mbart_large",),
        heads={},
        fixed=_places(norm_first=True, embedding_norm=True),
        complete=lambda checkpoint: {**_bart(checkpoint), "num_virtual": 0},
        options={"opening": "both"},
        folder_options=mbart_options,
        offset=lambda pad: 2,
        fits=lambda config, arch: _has_norms(config, norm_first=True, embedding_norm=True),
    )
)
