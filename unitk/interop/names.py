"""What the tensors of Hugging Face's BERT, RoBERTa, ALBERT, GPT-2, GPT, BART and T5 are called.

UniLM, Optimus and fairseq use the same names, or parts of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from unitk.interop.layout import Layout

BERT_LAYER: dict[str, str | tuple[str, ...]] = {
    "attention.qkv": tuple(f"attention.self.{part}" for part in ("query", "key", "value")),
    "attention.out": "attention.output.dense",
    "attention_norm": "attention.output.LayerNorm",
    "ffn.up": "intermediate.dense",
    "ffn.down": "output.dense",
    "ffn_norm": "output.LayerNorm",
}


def within(prefix: str, ours: str, names: Mapping[str, str | tuple[str, ...]]) -> dict[str, Any]:
    """Names of a layer's parts, under those of the layer."""
    return {
        f"{ours}{key}": tuple(prefix + part for part in value)
        if isinstance(value, tuple)
        else prefix + value
        for key, value in names.items()
    }


def bert(root: str) -> dict[str, Any]:
    """An encoder whose names begin with `root`."""
    return {
        "embed.tokens": f"{root}.embeddings.word_embeddings",
        "embed.positions": f"{root}.embeddings.position_embeddings",
        "embed.segments": f"{root}.embeddings.token_type_embeddings",
        "embed.norm": f"{root}.embeddings.LayerNorm",
        **within(f"{root}.encoder.layer.#.", "layers.#.", BERT_LAYER),
    }


def bert_and_heads(root: str) -> Layout:
    """BERT and models of its shape, whose encoder has a name of its own."""
    return Layout(
        {
            **bert(root),
            "heads.class:nsp.dense": f"{root}.pooler.dense",
            "heads.class:nsp.out": "cls.seq_relationship",
            "heads.lm.transform.dense": "cls.predictions.transform.dense",
            "heads.lm.transform.norm": "cls.predictions.transform.LayerNorm",
            "heads.lm.weight": "cls.predictions.decoder.weight",
            "heads.lm.bias": "cls.predictions.bias",
        },
        copies={
            "cls.predictions.decoder.weight": f"{root}.embeddings.word_embeddings.weight",
            "cls.predictions.decoder.bias": "cls.predictions.bias",
        },
        # without an output over classes, the pooler leads nowhere
        ignored=(rf"{root}\.embeddings\.(position|token_type)_ids", rf"{root}\.pooler\..*"),
    )


BERT, ERNIE = bert_and_heads("bert"), bert_and_heads("ernie")
ROBERTA = Layout(
    {
        **bert("roberta"),
        "heads.lm.transform.dense": "lm_head.dense",
        "heads.lm.transform.norm": "lm_head.layer_norm",
        "heads.lm.weight": "lm_head.decoder.weight",
        "heads.lm.bias": "lm_head.bias",
    },
    copies={
        "lm_head.decoder.weight": "roberta.embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    # the pooler of a masked language model was never trained
    ignored=(r"roberta\.embeddings\.(position|token_type)_ids", r"roberta\.pooler\..*"),
)
GPT_LAYER: dict[str, str | tuple[str, ...]] = {
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "attention_norm": "ln_1",
    "ffn.up": "mlp.c_fc",
    "ffn.down": "mlp.c_proj",
    "ffn_norm": "ln_2",
}
LINEAR = [f"layers.#.{part}" for part in ("attention.qkv", "attention.out", "ffn.up", "ffn.down")]
GPT2 = Layout(
    {
        "embed.tokens": "transformer.wte",
        "embed.positions": "transformer.wpe",
        "norm": "transformer.ln_f",
        "heads.lm.weight": "lm_head.weight",
        **within("transformer.h.#.", "layers.#.", GPT_LAYER),
    },
    transposed=LINEAR,
    copies={"lm_head.weight": "transformer.wte.weight"},
    ignored=(r"transformer\.h\.\d+\.attn\.(masked_)?bias",),
)
GPT = Layout(
    {
        "embed.tokens": "transformer.tokens_embed",
        "embed.positions": "transformer.positions_embed",
        "heads.lm.weight": "lm_head.weight",
        **within("transformer.h.#.", "layers.#.", GPT_LAYER),
    },
    transposed=LINEAR,
    copies={"lm_head.weight": "transformer.tokens_embed.weight"},
    ignored=(r"transformer\.h\.\d+\.attn\.bias", r"transformer\.position_ids"),
)
BART_LAYER: dict[str, str | tuple[str, ...]] = {
    "attention.qkv": tuple(f"self_attn.{part}_proj" for part in "qkv"),
    "attention.out": "self_attn.out_proj",
    "attention_norm": "self_attn_layer_norm",
    "ffn.up": "fc1",
    "ffn.down": "fc2",
    "ffn_norm": "final_layer_norm",
}
CROSS: dict[str, str | tuple[str, ...]] = {
    "cross_attention.query": "encoder_attn.q_proj",
    "cross_attention.kv": ("encoder_attn.k_proj", "encoder_attn.v_proj"),
    "cross_attention.out": "encoder_attn.out_proj",
    "cross_norm": "encoder_attn_layer_norm",
}
BART = Layout(
    {
        "embed.tokens": "model.shared",
        "embed.positions": "model.decoder.embed_positions",
        "embed.norm": "model.decoder.layernorm_embedding",
        "encoder.embed.positions": "model.encoder.embed_positions",
        "encoder.embed.norm": "model.encoder.layernorm_embedding",
        "heads.lm.weight": "lm_head.weight",
        "heads.lm.bias": "final_logits_bias",
        **within("model.decoder.layers.#.", "layers.#.", BART_LAYER | CROSS),
        **within("model.encoder.layers.#.", "encoder.layers.#.", BART_LAYER),
    },
    copies={
        "model.encoder.embed_tokens.weight": "model.shared.weight",
        "model.decoder.embed_tokens.weight": "model.shared.weight",
        "lm_head.weight": "model.shared.weight",
    },
)


def t5(side: str, ours: str, gated: bool) -> dict[str, Any]:
    """A tower of T5: the parts of a block are numbered, and so are the halves of a gated map."""
    up = tuple(f"DenseReluDense.wi_{half}" for half in "01") if gated else "DenseReluDense.wi"
    parts: list[dict[str, str | tuple[str, ...]]] = [
        {
            "attention_norm": "layer_norm",
            "attention.qkv": tuple(f"SelfAttention.{part}" for part in "qkv"),
            "attention.out": "SelfAttention.o",
        },
        {
            "cross_norm": "layer_norm",
            "cross_attention.query": "EncDecAttention.q",
            "cross_attention.kv": ("EncDecAttention.k", "EncDecAttention.v"),
            "cross_attention.out": "EncDecAttention.o",
        },
        {"ffn_norm": "layer_norm", "ffn.up": up, "ffn.down": "DenseReluDense.wo"},
    ]
    if side == "encoder":
        del parts[1]
    first = f"{side}.block.0.layer.0.SelfAttention"
    found = {
        f"{ours}relative.table": f"{first}.relative_attention_bias",
        f"{ours}norm": f"{side}.final_layer_norm",
    }
    for number, names in enumerate(parts):
        found |= within(f"{side}.block.#.layer.{number}.", f"{ours}layers.#.", names)
    return found


T5 = Layout(
    {
        "embed.tokens": "shared",
        "heads.lm.weight": "lm_head.weight",
        **t5("decoder", "", gated=False),
        **t5("encoder", "encoder.", gated=False),
    },
    copies={
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",
    },
    # of a table that was never used
    ignored=(r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight",),
)
T5_GATED = replace(
    T5,
    names={
        **T5.names,
        **t5("decoder", "", gated=True),
        **t5("encoder", "encoder.", gated=True),
    },
)
ALBERT_LAYER: dict[str, str | tuple[str, ...]] = {
    "attention.qkv": tuple(f"attention.{part}" for part in ("query", "key", "value")),
    "attention.out": "attention.dense",
    "attention_norm": "attention.LayerNorm",
    "ffn.up": "ffn",
    "ffn.down": "ffn_output",
    "ffn_norm": "full_layer_layer_norm",
}
ALBERT = Layout(
    {
        **{ours: theirs for ours, theirs in bert("albert").items() if "#" not in ours},
        "embed.map": "albert.encoder.embedding_hidden_mapping_in",
        **within(
            "albert.encoder.albert_layer_groups.#.albert_layers.0.", "layers.#.", ALBERT_LAYER
        ),
        "heads.class:sop.dense": "albert.pooler",
        "heads.class:sop.out": "sop_classifier.classifier",
        "heads.lm.transform.dense": "predictions.dense",
        "heads.lm.transform.norm": "predictions.LayerNorm",
        "heads.lm.weight": "predictions.decoder.weight",
        "heads.lm.bias": "predictions.bias",
    },
    copies={
        "predictions.decoder.weight": "albert.embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    ignored=(r"albert\.embeddings\.(position|token_type)_ids", r"albert\.pooler\..*"),
)
