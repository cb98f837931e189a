"""ModernBERT, which fills masks, and the decoder of the same layers (Ettin)."""

from __future__ import annotations

from functools import partial
from typing import Any

from unitk.errors import CheckpointError, require
from unitk.formats.hf.families import (
    BARE,
    CHOICES,
    PLACES,
    TEXTS,
    WORDS,
    Changes,
    Checkpoint,
    Family,
)
from unitk.formats.hf.generation import ALONE, decoder_opening
from unitk.formats.hf.layers import (
    FULL,
    SLIDING,
    bases_of_types,
    check_bases,
    check_windows,
    layer_types,
    period,
    rotary_entries,
    rotary_of_types,
    window_entries,
)
from unitk.formats.hf.tables.llama import LONGEST, WINDOWS
from unitk.formats.names import FUSED, HALVES, Layout, Stored, StoredNames, prefix_names
from unitk.formats.settings import check_value, keys, refuse, write
from unitk.models.config import ModelConfig
from unitk.registry import register

KEYS = keys("""
    num_layers=num_hidden_layers width=hidden_size num_heads=num_attention_heads
    ffn_width=intermediate_size norm_eps=norm_eps norm_bias=norm_bias activation=hidden_activation
    output_bias=decoder_bias dropout=embedding_dropout attention_dropout=attention_dropout
    activation_dropout=mlp_dropout init_std=initializer_range
""")
BASES = {FULL: ("global_rope_theta", 160000.0), SLIDING: ("local_rope_theta", 10000.0)}
"""Type of layer -> where transformers 4 has the base of its rotary positions, and the usual one."""
ACTIVATION = "classifier_activation"


def modernbert_layout(head: str, qkv: StoredNames, form: dict[str, Stored]) -> Layout:
    """The table of names; those of the layer before the output begin with `head`."""
    layer: dict[str, StoredNames] = {
        # the first layer has no attention_norm
        "attention.qkv": qkv,
        "attention.out": "attn.Wo",
        "attention_norm": "attn_norm",
        "ffn.up": "mlp.Wi",
        "ffn.down": "mlp.Wo",
        "ffn_norm": "mlp_norm",
    }
    return Layout(
        {
            "embed.tokens": "model.embeddings.tok_embeddings",
            "embed.norm": "model.embeddings.norm",
            "norm": "model.final_norm",
            "heads.lm.transform.dense": f"{head}.dense",
            "heads.lm.transform.norm": f"{head}.norm",
            "heads.lm.weight": "decoder.weight",
            "heads.lm.bias": "decoder.bias",
            **prefix_names("model.layers.#.", "layers.#.", layer),
        },
        forms=form,
        copies={"decoder.weight": "model.embeddings.tok_embeddings.weight"},
        ignored=(r".*\.rotary_emb\..*inv_freq",),
    )


def complete(checkpoint: Checkpoint, head: str, itself: int) -> Changes:
    """Windows, rotary positions by type of layer, and whether there is an output over words.

    A window is on either side, of which transformers' causal one counts the slot `itself`, too.
    A key of its own goes before the window of both sides together.
    """
    config, tensors, declared, where = checkpoint
    act = declared.get("hidden_activation", "gelu")
    key = "local_attention"
    refuse({ACTIVATION: "gelu", **declared}, {ACTIVATION: act, "rope_scaling": None}, where)
    # the number of layers from one that sees everything to the next
    every = declared.get("global_attn_every_n_layers", 3)
    every = check_value(every, int, "global_attn_every_n_layers", where)
    usual = [SLIDING if every and n % every else FULL for n in range(config.num_layers)]
    types = layer_types(declared, usual, where)
    reach = check_value(declared.get(key, 128), int, key, where) // 2 - itself
    if declared.get("sliding_window") is not None:
        key = "sliding_window"
        reach = check_value(declared[key], int, key, where) - itself
    if reach < 1 and SLIDING in types:
        raise CheckpointError(f"{where}: {key} must show another slot, got {declared[key]}")
    bases = {kind: declared.get(name, base) for kind, (name, base) in BASES.items()}
    # classes of labels have the layer before the output, too, but no words
    whole = f"{head}.dense.weight" in tensors and "classifier.weight" not in tensors
    return rotary_of_types(declared, bases, types, where) | {
        "layer_windows": period([reach if kind == SLIDING else 0 for kind in types]),
        "num_virtual": 0,
        "max_positions": 0,
        "head_transform": whole,
        "output_bias": whole and config.output_bias,
    }


def entries(config: ModelConfig, itself: int) -> Changes:
    """The entries that `KEYS` cannot express, also under the names of transformers 4."""
    reach = max(config.layer_windows, default=0)
    changes: Changes = {"rope_parameters": {}}
    for kind, bases in bases_of_types(config).items():
        name, usual = BASES[kind]
        changes[name] = next(iter(bases), usual)
        changes["rope_parameters"][kind] = rotary_entries(config, changes[name])
    return changes | {
        "max_position_embeddings": config.max_positions or LONGEST,
        "layer_types": window_entries(config)["layer_types"],
        # both sides together
        "local_attention": 2 * (reach + itself) if reach else 128,
        **write(config, {"activation": (ACTIVATION,)}),
    }


def check_layers(config: ModelConfig) -> None:
    """Refuse layers with several windows or bases, and those without rotary positions."""
    turns = all(base for _, base in config.layer_kinds)
    require(turns, "--to hf: every layer of a ModernBERT has rotary positions")
    check_windows(config)
    check_bases(config, bases_of_types(config).values())


MODERNBERT: dict[str, Any] = {
    "root": "model.",
    "presets": (
        *("modernbert_base", "modernbert_large", "modernbert_tiny"),
        *("modernbert_17m", "modernbert_32m", "modernbert_68m", "modernbert_1b"),
    ),
    "keys": KEYS,
    "fixed": {"attention_bias": False, "mlp_bias": False, "classifier_bias": False},
    "free": (*WINDOWS, *BARE, "layer_rotary_bases"),
    "head_dense": "transform",
    "check": check_layers,
    # transformers would take the ids of ModernBERT's own vocabulary
    "pack": lambda entries: {
        "cls_token_id": entries["bos_token_id"],
        "sep_token_id": entries["eos_token_id"],
        **entries,
    },
    "fits": lambda config, arch: (
        config.positions == "rotary" and config.norm == "layer" and config.embedding_norm
    ),
}
"""The entries that encoder and decoder share."""

register("model_type", "modernbert")(
    Family(
        **MODERNBERT,
        about="ModernBERT",
        name="ModernBert",
        task="mlm",
        layout=modernbert_layout("head", "attn.Wqkv", {r".*\.attn\.Wqkv\.weight": FUSED}),
        complete=partial(complete, head="head", itself=0),
        entries=partial(entries, itself=0),
        outputs=("head.", "decoder."),
        heads=dict.fromkeys((TEXTS, WORDS, PLACES, CHOICES), ("head", "classifier")),
        poolings={"cls": "slot", "mean": "mean"},
    )
)
register("model_type", "modernbert-decoder")(
    Family(
        **MODERNBERT,
        about="ModernBERT's decoder (Ettin)",
        name="ModernBertDecoder",
        task="lm",
        whole="ForCausalLM",
        layout=modernbert_layout(
            "lm_head",
            ("attn.q_proj", "attn.k_proj", "attn.v_proj"),
            {r".*\.attn\.[qk]_proj\.weight": HALVES},
        ),
        options={"opening": "cls"},
        laid=ALONE,
        folder_options=decoder_opening,
        complete=partial(complete, head="lm_head", itself=1),
        entries=partial(entries, itself=1),
        outputs=("head.", "decoder."),
        heads={TEXTS: ("head", "classifier")},
    )
)
