"""GPT, GPT-2 and GPT-NeoX: decoders that continue texts."""

from __future__ import annotations

from unitk.errors import require
from unitk.formats.hf.families import (
    DOUBLE,
    SLOTS,
    TEXTS,
    Changes,
    Checkpoint,
    Family,
    ModelFolder,
)
from unitk.formats.hf.generation import ALONE, UNDELIMITED, decoder_opening
from unitk.formats.hf.layers import BASE, SHARE, rope_entries, ropes, rotary
from unitk.formats.names import BY_HEAD, TURNED, Layout, layer, prefix_names
from unitk.formats.settings import keys, refuse
from unitk.models.config import ModelConfig
from unitk.registry import register

GPT_KEYS = keys("""
    num_layers=n_layer width=n_embd num_heads=n_head max_positions=n_positions
    norm_eps=layer_norm_epsilon dropout=resid_pdrop attention_dropout=attn_pdrop
    init_std=initializer_range
""")
GPT2_KEYS = {**GPT_KEYS, **keys("activation=activation_function ffn_width=n_inner")}
GPT_LAYER = layer("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")
NEOX_KEYS = keys("""
    num_layers=num_hidden_layers width=hidden_size num_heads=num_attention_heads
    ffn_width=intermediate_size norm_eps=layer_norm_eps activation=hidden_act
    parallel_residual=use_parallel_residual attention_bias=attention_bias
    dropout=hidden_dropout attention_dropout=attention_dropout init_std=initializer_range
""")
NEOX_LAYER = layer(
    *("attention.query_key_value", "attention.dense", "input_layernorm"),
    *("mlp.dense_h_to_4h", "mlp.dense_4h_to_h", "post_attention_layernorm"),
)
MAPS = r"transformer\.h\.\d+\.(attn\.c_attn|attn\.c_proj|mlp\.c_fc|mlp\.c_proj)\.weight"
"""The maps of a layer, which are stored as [in, out]."""


def gpt(tokens: str, positions: str, ignored: tuple[str, ...], **norm: str) -> Layout:
    """The table of GPT or GPT-2, whose matrices are stored as [in, out]."""
    return Layout(
        {
            "embed.tokens": tokens,
            "embed.positions": positions,
            "heads.lm.weight": "lm_head.weight",
            **norm,
            **prefix_names("transformer.h.#.", "layers.#.", GPT_LAYER),
        },
        forms={MAPS: TURNED},
        copies={"lm_head.weight": f"{tokens}.weight"},
        ignored=ignored,
    )


GPT2_MASKS = r"transformer\.h\.\d+\.attn\.(masked_)?bias"
GPT2 = gpt("transformer.wte", "transformer.wpe", (GPT2_MASKS,), norm="transformer.ln_f")
GPT = gpt(
    *("transformer.tokens_embed", "transformer.positions_embed"),
    (GPT2_MASKS, r"transformer\.position_ids"),
)

NEOX = Layout(
    {
        "embed.tokens": "gpt_neox.embed_in",
        "norm": "gpt_neox.final_layer_norm",
        "heads.lm.weight": "embed_out.weight",
        **prefix_names("gpt_neox.layers.#.", "layers.#.", NEOX_LAYER),
    },
    forms={r".*\.query_key_value\.(weight|bias)": BY_HEAD},
    copies={
        "embed_out.weight": "gpt_neox.embed_in.weight",
        "lm_head.weight": "embed_out.weight",  # its name within transformers 5
    },
    ignored=(r".*\.attention\.((masked_)?bias|rotary_emb\.inv_freq)",),
)


def _gpt2(checkpoint: Checkpoint) -> Changes:
    config, _, declared, _ = checkpoint
    return {} if declared.get("n_inner") else {"ffn_width": 4 * config.width}


def _gpt_entries(config: ModelConfig) -> Changes:
    require(
        config.ffn_width == 4 * config.width,
        f"--to hf: transformers' GPT has --arch.ffn-width {4 * config.width}, but this model has "
        f"{config.ffn_width}",
    )
    return {"embd_pdrop": config.dropout}


def _neox(checkpoint: Checkpoint) -> Changes:
    """Rotary positions, of which transformers 4 has base and share under names of their own."""
    config, _, declared, where = checkpoint
    refuse(declared, {"head_dim": config.width // config.num_heads}, where)
    # an entry `rope_parameters` goes before both
    base = declared.get("rotary_emb_base", declared.get(BASE, 10000.0))
    share = declared.get("rotary_pct", declared.get(SHARE, 0.25))
    rope = rotary(ropes(declared, where), where, base, share)
    return rope | {"num_virtual": 0, "max_positions": 0}


def _neox_entries(config: ModelConfig) -> Changes:
    older = {"rotary_emb_base": config.rotary_base, "rotary_pct": config.rotary_share}
    length = {"max_position_embeddings": config.max_positions or 2048}
    return older | length | rope_entries(config)


def _gpt2_opening(model_folder: ModelFolder) -> dict[str, str]:
    """What a tokenizer of its own puts before a text; GPT-2's puts nothing there."""
    own = decoder_opening(model_folder)
    return {name: text for name, text in own.items() if text != "none"}


register("model_type", "gpt2")(
    Family(
        about="GPT-2",
        name="GPT2",
        root="transformer.",
        presets=("gpt2_small", "gpt2_medium", "gpt2_large", "gpt2_xl"),
        task="lm",
        layout=GPT2,
        heads=SLOTS | {TEXTS: ("", "score"), DOUBLE: ("", "multiple_choice_head.summary")},
        keys=GPT2_KEYS,
        fixed={
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "add_cross_attention": False,
        },
        complete=_gpt2,
        entries=lambda config: {"embd_pdrop": config.dropout},
        options={"opening": "sep"},
        laid=ALONE,
        folder_options=_gpt2_opening,
        fits=lambda config, arch: config.norm_first,
    )
)
register("model_type", "openai-gpt")(
    Family(
        about="GPT",
        name="OpenAIGPT",
        root="transformer.",
        presets=("gpt_base",),
        task="lm",
        layout=GPT,
        heads={TEXTS: ("", "score"), DOUBLE: ("", "multiple_choice_head.summary")},
        keys=GPT_KEYS,
        fixed={"afn": "gelu"},  # transformers means the tanh form by it
        complete=_gpt2,
        entries=_gpt_entries,
        options={"opening": "none", "ends": "off"},
        laid=ALONE,
        folder_options=decoder_opening,
        fits=lambda config, arch: (
            not (config.norm_first or config.embedding_norm or config.layer_groups)
        ),
    )
)
register("model_type", "gpt_neox")(
    Family(
        about="GPT-NeoX and Pythia",
        name="GPTNeoX",
        root="gpt_neox.",
        presets=tuple(f"pythia_{size}" for size in ("tiny", "14m", "31m", "70m", "160m", "410m")),
        task="lm",
        layout=NEOX,
        heads={TEXTS: ("", "score"), **SLOTS},
        laid=UNDELIMITED,
        folder_options=decoder_opening,
        keys=NEOX_KEYS,
        usual={"num_attention_heads": 64},
        complete=_neox,
        entries=_neox_entries,
        options={"opening": "none"},
        free=(
            "num_virtual",
            *(f"rotary_{setting}" for setting in ("base", "share", "factor", "wavelengths")),
        ),
        whole="ForCausalLM",
        both_ways=True,
        fits=lambda config, arch: config.positions == "rotary" and config.norm == "layer",
    )
)
