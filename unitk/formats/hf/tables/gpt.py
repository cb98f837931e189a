"""GPT and GPT-2: decoders that continue texts."""

from __future__ import annotations

from unitk.errors import require
from unitk.formats.hf.families import DOUBLE, SLOTS, TEXTS, Changes, Checkpoint, Family
from unitk.formats.names import TURNED, Layout, layer, within
from unitk.formats.settings import keys
from unitk.models.config import ModelConfig
from unitk.registry import register

GPT_KEYS = keys("""
    num_layers=n_layer width=n_embd num_heads=n_head max_positions=n_positions
    norm_eps=layer_norm_epsilon dropout=resid_pdrop attention_dropout=attn_pdrop
    init_std=initializer_range
""")
GPT2_KEYS = {**GPT_KEYS, **keys("activation=activation_function ffn_width=n_inner")}
GPT_LAYER = layer("attn.c_attn", "attn.c_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2")
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
            **within("transformer.h.#.", "layers.#.", GPT_LAYER),
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


def _gpt2(checkpoint: Checkpoint) -> Changes:
    config, _, given, _ = checkpoint
    return {} if given.get("n_inner") else {"ffn_width": 4 * config.width}


def _about_gpt(config: ModelConfig) -> Changes:
    what = f"--to hf: transformers' GPT has --arch.ffn-width {4 * config.width}"
    require(config.ffn_width == 4 * config.width, f"{what}, but this model has {config.ffn_width}")
    return {"embd_pdrop": config.dropout}


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
        entries=_about_gpt,
        options={"opening": "none", "ends": "off"},
        fits=lambda config, arch: (
            not (config.norm_first or config.embedding_norm or config.layer_groups)
        ),
    )
)
