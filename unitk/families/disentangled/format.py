"""DeBERTa v2 and v3 as transformers has them, and LTG-BERT as its release does."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from unitk.errors import CheckpointError
from unitk.formats.hf.families import BARE, CHOICES, SLOTS, TEXTS, Changes, Checkpoint, Family
from unitk.formats.hf.tables.bert import masked_changes
from unitk.formats.names import Layout, Names, Stored, layer, prefix_names
from unitk.formats.settings import check_value, keys
from unitk.models.config import ModelConfig
from unitk.registry import register

SIZES = """
    num_layers=num_hidden_layers width=hidden_size num_heads=num_attention_heads
    ffn_width=intermediate_size norm_eps=layer_norm_eps dropout=hidden_dropout_prob
    attention_dropout=attention_probs_dropout_prob
"""
KEYS = keys(
    f"{SIZES} num_segments=type_vocab_size activation=hidden_act init_std=initializer_range"
)
LTG_KEYS = keys(SIZES)
LAYER = layer(
    tuple(f"attention.self.{part}_proj" for part in ("query", "key", "value")),
    *("attention.output.dense", "attention.output.LayerNorm"),
    *("intermediate.dense", "output.dense", "output.LayerNorm"),
)
POSITIONS = "layers.#.attention.positions."
HEAD, V3_HEAD = "cls.predictions.", "lm_predictions.lm_head."
EMBED = "deberta.embeddings.word_embeddings.weight"
DEBERTA = Layout(
    {
        "embed.tokens": "deberta.embeddings.word_embeddings",
        "embed.positions": "deberta.embeddings.position_embeddings",
        "embed.segments": "deberta.embeddings.token_type_embeddings",
        "embed.norm": "deberta.embeddings.LayerNorm",
        f"{POSITIONS}table": "deberta.encoder.rel_embeddings",
        f"{POSITIONS}norm": "deberta.encoder.LayerNorm",
        **prefix_names("deberta.encoder.layer.#.", "layers.#.", LAYER),
        "heads.lm.transform.dense": f"{HEAD}transform.dense",
        "heads.lm.transform.norm": f"{HEAD}transform.LayerNorm",
        "heads.lm.weight": f"{HEAD}decoder.weight",
        "heads.lm.bias": f"{HEAD}bias",
    },
    copies={f"{HEAD}decoder.weight": EMBED, f"{HEAD}decoder.bias": f"{HEAD}bias"},
    # the discriminator of v3's pre-training, and positions that only a generator reads
    ignored=(r"mask_predictions\..*", r"deberta\.embeddings\.position_ids", r"pooler\..*"),
)
BIASED = "position_biased_input"
TYPES = {"c2p", "p2c"}
SWAPPED = Stored(
    lambda rows, _: torch.cat(rows.chunk(2)[::-1]), lambda rows, _: torch.cat(rows.chunk(2)[::-1])
)
"""Values before their gate, which stands first in unitk."""
LTG_LAYER: Names = {
    "attention.qkv": tuple(f"attention.in_proj_{part}" for part in "qkv"),
    "attention.out": "attention.out_proj",
    "attention_after": "attention.post_layer_norm",
    "ffn.up": "mlp.mlp.1",
    "ffn.down": "mlp.mlp.4",
}
LTG = Layout(
    {
        "embed.tokens": "embedding.word_embedding",
        f"{POSITIONS}table.weight": "embedding.relative_embedding",
        f"{POSITIONS}norm": "embedding.relative_layer_norm",
        **prefix_names("transformer.layers.#.", "layers.#.", LTG_LAYER),
        "heads.lm.transform.dense": "classifier.nonlinearity.1",
        "heads.lm.weight": "classifier.nonlinearity.5.weight",
        "heads.lm.bias": "classifier.nonlinearity.5.bias",
    },
    forms={r".*\.mlp\.mlp\.1\.weight": SWAPPED},
    copies={"classifier.nonlinearity.5.weight": "embedding.word_embedding.weight"},
    ignored=(r".*\.attention\.position_indices",),
)


def _deberta(checkpoint: Checkpoint) -> Changes:
    """The rows of distances, and the names that v3 gives the output layer."""
    _, tensors, given, where = checkpoint
    types = given.get("pos_att_type")
    types = types.split("|") if isinstance(types, str) else types
    if not isinstance(types, list) or {str(one).strip() for one in types} != TYPES:
        what = f"pos_att_type must have {' and '.join(sorted(TYPES))}"
        raise CheckpointError(f"{where}: {what}, got {given.get('pos_att_type')!r}")
    # the same layer as in older files
    for name in [name for name in tensors if name.startswith(V3_HEAD)]:
        part = name.removeprefix(V3_HEAD)
        own = part if part == "bias" else f"transform.{part}"
        tensors[HEAD + own] = tensors.pop(name)
    buckets = check_value(given.get("position_buckets", -1), int, "position_buckets", where)
    if buckets < 1:
        raise CheckpointError(f"{where}: position_buckets must be above 0, got {buckets}")
    far = check_value(given.get("max_relative_positions", -1), int, "max_relative_positions", where)
    longest = given.get("max_position_embeddings", 512)
    longest = check_value(longest, int, "max_position_embeddings", where)
    normed = str(given.get("norm_rel_ebd", "none"))
    biased = check_value(given.get(BIASED, True), bool, BIASED, where)
    changes: Changes = masked_changes(tensors) | {
        "position_rows": 2 * buckets,
        "relative_distance": far if far > 0 else longest,
        "position_norm": "layer_norm" in normed.lower(),
        "max_positions": longest * biased,
    }
    return changes


def _about_deberta(config: Any) -> Changes:
    return {
        "pos_att_type": ["p2c", "c2p"],
        "position_buckets": config.position_rows // 2,
        "max_relative_positions": config.relative_distance,
        "max_position_embeddings": config.max_positions or config.relative_distance,
        BIASED: config.max_positions > 0,
        "norm_rel_ebd": "layer_norm" if config.position_norm else "none",
    }


def _ltg(checkpoint: Checkpoint) -> Changes:
    """LTG-BERT's rows of distances; its maps of queries and keys are one in the file."""
    _, tensors, given, where = checkpoint
    for name in [name for name in tensors if ".attention.in_proj_qk." in name]:
        for part, rows in zip("qk", tensors.pop(name).chunk(2), strict=True):
            tensors[name.replace("in_proj_qk", f"in_proj_{part}")] = rows
    buckets = check_value(given.get("position_bucket_size", 32), int, "position_bucket_size", where)
    longest = given.get("max_position_embeddings", 512)
    longest = check_value(longest, int, "max_position_embeddings", where)
    # a bare model has no output layer
    whole = "classifier.nonlinearity.1.weight" in tensors
    changes: Changes = {"position_rows": 2 * buckets - 1, "relative_distance": longest}
    return changes | {"head_transform": whole, "output_bias": whole}


def join_maps(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The maps of queries and keys as one, as LTG-BERT stores them."""
    found = {}
    for name, tensor in tensors.items():
        # the keys' map goes behind that of the queries
        if ".attention.in_proj_q." in name:
            both = tensor, tensors[name.replace("in_proj_q", "in_proj_k")]
            found[name.replace("in_proj_q", "in_proj_qk")] = torch.cat(both)
        elif ".attention.in_proj_k." not in name:
            found[name] = tensor
    return found


def _about_ltg(config: Any) -> Changes:
    return {
        "position_bucket_size": (config.position_rows + 1) // 2,
        "max_position_embeddings": config.relative_distance,
    }


FREE = (*BARE, "position_rows", "relative_distance", "position_norm")


def _is_ltg(config: ModelConfig, arch: str) -> bool:
    return config.norm_first


register("model_type", "deberta-v2")(
    Family(
        about="DeBERTa v2 and v3",
        name="DebertaV2",
        root="deberta.",
        presets=("deberta_v3_base", "deberta_v3_xsmall", "deberta_v3_large"),
        task="mlm",
        layout=DEBERTA,
        keys=KEYS,
        fixed={"relative_attention": True, "share_att_key": True, "conv_kernel_size": 0},
        usual={"relative_attention": False, "share_att_key": False},
        complete=_deberta,
        entries=_about_deberta,
        free=FREE,
        heads=SLOTS | dict.fromkeys((TEXTS, CHOICES), ("pooler.dense", "classifier")),
        head_dense="gelu",
        outputs=("lm_predictions.", "mask_predictions.", "pooler."),
        fits=lambda config, arch: not _is_ltg(config, arch),
    )
)
register("model_type", "ltgbert")(
    Family(
        about="LTG-BERT, by the code of its release",
        name="LtgBert",
        root="",
        presets=("ltg_bert_base", "ltg_bert_small"),
        task="mlm",
        layout=LTG,
        keys=LTG_KEYS,
        complete=_ltg,
        entries=_about_ltg,
        free=FREE,
        heads={},
        join=join_maps,
        fits=_is_ltg,
    )
)
