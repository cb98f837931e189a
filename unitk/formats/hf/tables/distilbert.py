"""DistilBERT and MPNet: encoders that fill masks, without segments."""

from __future__ import annotations

from unitk.formats.hf.families import CHOICES, SLOTS, TEXTS, Changes, Checkpoint, Family
from unitk.formats.hf.tables.bert import (
    BERT_KEYS,
    ENCODER,
    bert_embeddings,
    bert_heads,
    is_bert,
    masked_changes,
    masked_lm_layout,
    same_ids,
)
from unitk.formats.names import Layout, layer, prefix_names
from unitk.formats.settings import keys
from unitk.models.config import ModelConfig
from unitk.registry import register

DISTILBERT_KEYS = keys("""
    num_layers=n_layers width=dim num_heads=n_heads ffn_width=hidden_dim
    max_positions=max_position_embeddings activation=activation dropout=dropout
    attention_dropout=attention_dropout init_std=initializer_range
""")
DISTILBERT_LAYER = layer(
    tuple(f"attention.{part}_lin" for part in "qkv"),
    *("attention.out_lin", "sa_layer_norm"),
    *("ffn.lin1", "ffn.lin2", "output_layer_norm"),
)
WORDS = {
    "transform.dense": "vocab_transform",
    "transform.norm": "vocab_layer_norm",
    "weight": "vocab_projector.weight",
    "bias": "vocab_projector.bias",
}
DISTILBERT = Layout(
    bert_embeddings("distilbert")
    | prefix_names("distilbert.transformer.layer.#.", "layers.#.", DISTILBERT_LAYER)
    | prefix_names("", "heads.lm.", WORDS),
    copies={"vocab_projector.weight": "distilbert.embeddings.word_embeddings.weight"},
    ignored=(r"distilbert\.embeddings\.position_ids",),
)
MPNET_KEYS = {
    option: their_keys for option, their_keys in BERT_KEYS.items() if option != "num_segments"
}
MPNET_LAYER = layer(
    tuple(f"attention.attn.{part}" for part in "qkv"),
    *("attention.attn.o", "attention.LayerNorm"),
    *("intermediate.dense", "output.dense", "output.LayerNorm"),
)
MPNET = masked_lm_layout(
    "mpnet",
    bert_embeddings("mpnet")
    | {"relative.table": "mpnet.encoder.relative_attention_bias"}
    | prefix_names("mpnet.encoder.layer.#.", "layers.#.", MPNET_LAYER),
    *("lm_head", "lm_head.dense", "lm_head.layer_norm"),
)


def _distilbert(checkpoint: Checkpoint) -> Changes:
    whole = "vocab_transform.weight" in checkpoint.tensors
    return {"head_transform": whole, "output_bias": whole}


def _mpnet(checkpoint: Checkpoint) -> Changes:
    # transformers counts from 2, whatever the pad's id is
    places = {"position_offset": 2, "max_positions": checkpoint.config.max_positions - 2}
    return masked_changes(checkpoint.tensors) | places


def _fits_mpnet(config: ModelConfig, arch: str) -> bool:
    return is_bert(config) and config.position_offset > 0 and config.relative_buckets > 0


register("model_type", "distilbert")(
    Family(
        **ENCODER | {"keys": DISTILBERT_KEYS, "complete": _distilbert},
        about="DistilBERT",
        name="DistilBert",
        root="distilbert.",
        presets=("distilbert_base",),
        layout=DISTILBERT,
        outputs=("vocab_transform.", "vocab_layer_norm.", "vocab_projector.", "pre_classifier."),
        heads=SLOTS | dict.fromkeys((TEXTS, CHOICES), ("pre_classifier", "classifier")),
        head_dense="relu",
        fits=lambda config, arch: (
            is_bert(config)
            and not config.num_segments
            and not config.position_offset
            and not config.relative_buckets
        ),
    )
)
register("model_type", "mpnet")(
    Family(
        **ENCODER | {"keys": MPNET_KEYS, "complete": _mpnet},
        about="MPNet",
        name="MPNet",
        root="mpnet.",
        presets=("mpnet_base",),
        layout=MPNET,
        separators=2,
        gelu_output=True,
        fixed={"relative_attention_num_buckets": 32},
        usual={"layer_norm_eps": 1e-12},
        heads=bert_heads("mpnet.pooler.dense")
        | {TEXTS: ("classifier.dense", "classifier.out_proj")},
        entries=lambda config: {
            "max_position_embeddings": config.max_positions + config.position_offset
        },
        offset=lambda pad: 2,
        folder_options=same_ids,
        fits=_fits_mpnet,
    )
)
