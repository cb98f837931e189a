"""XLNet as transformers has it: heads in an axis of their own."""

from __future__ import annotations

from torch import Tensor

from unitk.formats.hf.families import (
    CHOICES,
    PLACES,
    SIMPLE,
    SLOTS,
    TEXTS,
    WORDS,
    Changes,
    Checkpoint,
    Family,
)
from unitk.formats.names import Layout, Stored, prefix_names
from unitk.formats.settings import keys
from unitk.models.config import ModelConfig
from unitk.registry import register

XLNET_KEYS = keys("""
    num_layers=n_layer width=d_model num_heads=n_head ffn_width=d_inner activation=ff_activation
    memory_length=mem_len norm_eps=layer_norm_eps dropout=dropout attention_dropout=dropout
    init_std=initializer_range
""")


def split_heads(tensor: Tensor, config: ModelConfig) -> Tensor:
    """Heads in an axis of their own, [..., H, K], instead of side by side, [..., H * K]."""
    return tensor.reshape(*tensor.shape[:-1], config.num_heads, -1)


IN_FRONT = Stored(
    lambda stored, _: stored.flatten(-2).mT, lambda tensor, config: split_heads(tensor.mT, config)
)
"""Matrices that are stored as [D, H, K]: in front of what they are multiplied by."""
HEADS = Stored(lambda stored, _: stored.flatten(-2), split_heads)
QUERY = Stored(lambda stored, _: stored.flatten(0, 1), lambda tensor, _: tensor[None])
"""The vector that the query stream reads, which is stored as [1, 1, D]."""
XLNET = Layout(
    {
        "embed.tokens": "transformer.word_embedding",
        "embed.virtual.weight": "transformer.mask_emb",
        "heads.lm.weight": "lm_loss.weight",
        "heads.lm.bias": "lm_loss.bias",
        **prefix_names(
            "transformer.layer.#.",
            "layers.#.",
            {
                # transformers has parameters instead of modules: no ".weight"
                "attention.qkv.weight": tuple(f"rel_attn.{part}" for part in "qkv"),
                "attention.out.weight": "rel_attn.o",
                "attention_norm": "rel_attn.layer_norm",
                "ffn.up": "ff.layer_1",
                "ffn.down": "ff.layer_2",
                "ffn_norm": "ff.layer_norm",
                "attention.distances.weight": "rel_attn.r",
                "attention.segments.weight": "rel_attn.seg_embed",
                "attention.content_bias": "rel_attn.r_w_bias",
                "attention.position_bias": "rel_attn.r_r_bias",
                "attention.segment_bias": "rel_attn.r_s_bias",
            },
        ),
    },
    forms={
        r"transformer\.mask_emb": QUERY,
        r".*\.rel_attn\.[qkvr]": IN_FRONT,
        r".*\.rel_attn\.(o|seg_embed|r_[wrs]_bias)": HEADS,
    },
    copies={"lm_loss.weight": "transformer.word_embedding.weight"},
)


def _complete(checkpoint: Checkpoint) -> Changes:
    _, tensors, _, _ = checkpoint
    return {"output_bias": "lm_loss.bias" in tensors}


register("model_type", "xlnet")(
    Family(
        about="XLNet",
        name="XLNet",
        root="transformer.",
        presets=("xlnet_base", "xlnet_large"),
        task="xlnet",
        layout=XLNET,
        heads={
            **dict.fromkeys((TEXTS, CHOICES), ("sequence_summary.summary", "logits_proj")),
            WORDS: SLOTS[WORDS],
            SIMPLE: SLOTS[PLACES],
        },
        keys=XLNET_KEYS,
        fixed={
            "attn_type": "bi",
            "bi_data": False,
            "clamp_len": -1,
            "same_length": False,
            "summary_type": "last",
            "summary_use_proj": True,
            "summary_activation": "tanh",
        },
        usual={"ff_activation": "gelu", "mem_len": 512},
        complete=_complete,
        free=("output_bias",),
        ends=True,
    )
)
