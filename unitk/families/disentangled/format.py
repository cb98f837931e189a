"""DeBERTa v2 and v3 as transformers has them; LTG-BERT and GPT-BERT as their releases do."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unitk.errors import CheckpointError, require
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
"""Values before their gate, which is first in unitk."""
LTG_LAYER: Names = {
    "attention.qkv": tuple(f"attention.in_proj_{part}" for part in "qkv"),
    "attention.out": "attention.out_proj",
    "attention_after": "attention.post_layer_norm",
    "ffn.up": "mlp.mlp.1",
    "ffn.down": "mlp.mlp.4",
}
GPT_BERT_HEAD = "lm_head.nonlinearity."
GPT_BERT_LAYER: Names = {
    "attention.qkv": tuple(f"attention_layers.#.in_proj_{part}" for part in "qkv"),
    "attention.channels": "attention_layers.#.in_proj_g",
    "attention.out": "attention_layers.#.out_proj",
    "attention_sum": "attention_layers.#.alphas",
    "ffn.up": "mlp_layers.#.mlp.1",
    "ffn.down": "mlp_layers.#.mlp.4",
    "ffn_sum": "mlp_layers.#.alphas",
}
GPT_BERT = Layout(
    {
        "embed.tokens": "model.embedding.word_embedding",
        f"{POSITIONS}table.weight": "model.embedding.relative_embedding",
        f"{POSITIONS}norm": "model.embedding.relative_layer_norm",
        **prefix_names("model.", "layers.#.", GPT_BERT_LAYER),
        "heads.lm.transform.dense": f"{GPT_BERT_HEAD}1",
        "heads.lm.weight": f"{GPT_BERT_HEAD}5.weight",
        "heads.lm.bias": f"{GPT_BERT_HEAD}5.bias",
    },
    forms={r".*\.mlp\.1\.weight": SWAPPED},
    copies={f"{GPT_BERT_HEAD}5.weight": "model.embedding.word_embedding.weight"},
    ignored=(r".*\.position_indices",),
)
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
    _, tensors, declared, where = checkpoint
    types = declared.get("pos_att_type")
    types = types.split("|") if isinstance(types, str) else types
    if not isinstance(types, list) or {str(term).strip() for term in types} != TYPES:
        raise CheckpointError(
            f"{where}: pos_att_type must have {' and '.join(sorted(TYPES))}, got "
            f"{declared.get('pos_att_type')!r}"
        )
    # the same layer as in older files
    for name in [name for name in tensors if name.startswith(V3_HEAD)]:
        leaf = name.removeprefix(V3_HEAD)
        entry = leaf if leaf == "bias" else f"transform.{leaf}"
        tensors[HEAD + entry] = tensors.pop(name)
    buckets = check_value(declared.get("position_buckets", -1), int, "position_buckets", where)
    if buckets < 1:
        raise CheckpointError(f"{where}: position_buckets must be above 0, got {buckets}")
    far = check_value(
        declared.get("max_relative_positions", -1), int, "max_relative_positions", where
    )
    longest = declared.get("max_position_embeddings", 512)
    longest = check_value(longest, int, "max_position_embeddings", where)
    normed = str(declared.get("norm_rel_ebd", "none"))
    biased = check_value(declared.get(BIASED, True), bool, BIASED, where)
    changes: Changes = masked_changes(tensors) | {
        "position_rows": 2 * buckets,
        "relative_distance": far if far > 0 else longest,
        "position_norm": "layer_norm" in normed.lower(),
        "max_positions": longest * biased,
    }
    return changes


def _deberta_entries(config: Any) -> Changes:
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
    _, tensors, declared, where = checkpoint
    if any(".dwa_modules." in name for name in tensors):
        raise CheckpointError(f"{where}: these are tensors of GPT-BERT: set model_type to gpt_bert")
    part_maps(tensors, "qk")
    # a bare model has no output layer
    whole = "classifier.nonlinearity.1.weight" in tensors
    return {**_rows(declared, where), "head_transform": whole, "output_bias": whole}


def _rows(declared: Mapping[str, Any], where: Path) -> Changes:
    """The rows of distances in LTG-BERT and GPT-BERT."""
    buckets = check_value(
        declared.get("position_bucket_size", 32), int, "position_bucket_size", where
    )
    longest = declared.get("max_position_embeddings", 512)
    longest = check_value(longest, int, "max_position_embeddings", where)
    return {"position_rows": 2 * buckets - 1, "relative_distance": longest}


def _gpt_bert(checkpoint: Checkpoint) -> Changes:
    """GPT-BERT's tensors, of either release, by the names in the table."""
    _, tensors, declared, where = checkpoint
    for name in [*tensors]:
        # the release of 2024 has another word for the output layer
        new_name = re.sub(r"^classifier\.", "lm_head.", name)
        if sum_weights := re.fullmatch(r"model\.dwa_modules\.alphas\.(\d+)", name):
            new_name = _sums(int(sum_weights[1]))
        tensors[new_name] = tensors.pop(name)
    part_maps(tensors, "qk", "vg")
    whole = f"{GPT_BERT_HEAD}1.weight" in tensors
    return {**_rows(declared, where), "head_transform": whole, "output_bias": whole}


def _sums(number: int) -> str:
    """The name in the table of the weights that are alphas.NUMBER in a file."""
    layer, part = divmod(number, 2)
    return f"model.{('attention', 'mlp')[part]}_layers.{layer}.alphas"


def part_maps(tensors: dict[str, Tensor], *pairs: str) -> None:
    """Make two maps of each that is stored as one, such as that of queries and keys (qk)."""
    for pair in pairs:
        for name in [name for name in tensors if f".in_proj_{pair}." in name]:
            for part, rows in zip(pair, tensors.pop(name).chunk(2), strict=True):
                tensors[name.replace(f"in_proj_{pair}", f"in_proj_{part}")] = rows


def join_maps(tensors: dict[str, Tensor], *pairs: str) -> dict[str, Tensor]:
    """Maps of queries and keys (and of values and gates) as one, as the releases store them."""
    joined = dict(tensors)
    for pair in pairs or ("qk",):
        first, second = pair[0], pair[1]
        for name in [name for name in tensors if f".in_proj_{first}." in name]:
            # the second map goes after the first
            other = name.replace(f"in_proj_{first}", f"in_proj_{second}")
            rows = torch.cat([joined.pop(name), joined.pop(other)])
            joined[name.replace(f"in_proj_{first}", f"in_proj_{first}{second}")] = rows
    return joined


def _join_gpt_bert(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """GPT-BERT's maps as one, and its weighted sums with one number for all parts."""
    joined = join_maps(tensors, "qk", "vg")
    for number in range(sum(name.endswith(".alphas") for name in tensors)):
        joined[f"model.dwa_modules.alphas.{number}"] = joined.pop(_sums(number))
    return joined


def _ltg_entries(config: Any) -> Changes:
    return {
        "position_bucket_size": (config.position_rows + 1) // 2,
        "max_position_embeddings": config.relative_distance,
    }


FREE = (*BARE, "position_rows", "relative_distance", "position_norm")


def _check_rows(odd: bool, config: Any) -> None:
    """Refuse a number of distances that the class cannot have: of 2 n buckets, or of 2 n - 1."""
    kind = "an odd" if odd else "an even"
    require(
        config.position_rows % 2 == odd,
        f"--to hf: the class has {kind} number of distances, but --arch.position-rows is "
        f"{config.position_rows}",
    )


def _is_ltg(config: ModelConfig, arch: str) -> bool:
    return config.norm_first


FIXED = {
    "relative_attention": True,
    "share_att_key": True,
    "conv_kernel_size": 0,
    "pooler_hidden_act": "gelu",
}

register("model_type", "deberta-v2")(
    Family(
        about="DeBERTa v2 and v3",
        name="DebertaV2",
        root="deberta.",
        presets=("deberta_v3_base", "deberta_v3_xsmall", "deberta_v3_large"),
        task="mlm",
        layout=DEBERTA,
        keys=KEYS,
        fixed=FIXED,
        usual={"relative_attention": False, "share_att_key": False},
        complete=_deberta,
        entries=_deberta_entries,
        free=FREE,
        heads=SLOTS | dict.fromkeys((TEXTS, CHOICES), ("pooler.dense", "classifier")),
        head_dense="gelu",
        outputs=("lm_predictions.", "mask_predictions.", "pooler."),
        check=partial(_check_rows, False),
        fits=lambda config, arch: not _is_ltg(config, arch),
    )
)
register("model_type", "ltgbert")(
    Family(
        about="LTG-BERT, by the code of its release",
        name="LtgBert",
        released=True,
        root="",
        presets=("ltg_bert_base", "ltg_bert_small"),
        task="mlm",
        layout=LTG,
        keys=LTG_KEYS,
        complete=_ltg,
        entries=_ltg_entries,
        free=FREE,
        heads={},
        join=join_maps,
        check=partial(_check_rows, True),
        fits=_is_ltg,
    )
)
register("model_type", "gpt_bert")(
    Family(
        about="GPT-BERT, by the code of its release",
        name="GPTBERT",
        released=True,
        root="model.",
        presets=("gpt_bert_base", "gpt_bert_small"),
        task="mlm",
        layout=GPT_BERT,
        keys=LTG_KEYS,
        complete=_gpt_bert,
        entries=lambda config: {**_ltg_entries(config), "num_layers": config.num_layers},
        free=FREE,
        heads={},
        # a hidden token is predicted at the slot before it
        options={"shift": "on"},
        # names of 2024, of which the output layer's begin with another word, too
        roots={"Encoder": "transformer."},
        outputs=("classifier.nonlinearity.",),
        join=_join_gpt_bert,
        check=partial(_check_rows, True),
    )
)
