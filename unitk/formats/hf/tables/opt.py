"""OPT and GPT-Neo: decoders that continue texts, with learned positions as GPT-2 has them."""

from __future__ import annotations

from unitk.errors import CheckpointError, require
from unitk.formats.hf.families import PLACES, SLOTS, TEXTS, Changes, Checkpoint, Family
from unitk.formats.hf.generation import UNDELIMITED, decoder_opening
from unitk.formats.hf.layers import check_windows, period
from unitk.formats.names import Layout, layer, prefix_names
from unitk.formats.settings import check_value, keys
from unitk.models.config import ModelConfig
from unitk.registry import register

OPT_KEYS = keys("""
    num_layers=num_hidden_layers width=hidden_size num_heads=num_attention_heads ffn_width=ffn_dim
    max_positions=max_position_embeddings norm_first=do_layer_norm_before
    activation=activation_function bias=enable_bias dropout=dropout
    attention_dropout=attention_dropout init_std=init_std
""")
OPT_LAYER = layer(
    tuple(f"self_attn.{part}_proj" for part in "qkv"),
    *("self_attn.out_proj", "self_attn_layer_norm", "fc1", "fc2", "final_layer_norm"),
)
EMBED, OUTPUT = "model.decoder.embed_tokens.weight", "lm_head.weight"
OPT = Layout(
    {
        "embed.tokens": "model.decoder.embed_tokens",
        "embed.positions": "model.decoder.embed_positions",
        "norm": "model.decoder.final_layer_norm",
        "heads.lm.weight": OUTPUT,
        **prefix_names("model.decoder.layers.#.", "layers.#.", OPT_LAYER),
    },
    copies={OUTPUT: EMBED},
)
REMOVED = "_remove_final_layer_norm"
NEO_KEYS = keys("""
    num_layers=num_layers width=hidden_size num_heads=num_heads ffn_width=intermediate_size
    max_positions=max_position_embeddings norm_eps=layer_norm_epsilon
    activation=activation_function dropout=resid_dropout attention_dropout=attention_dropout
    init_std=initializer_range
""")
NEO_LAYER = layer(
    tuple(f"attn.attention.{part}_proj" for part in "qkv"),
    *("attn.attention.out_proj", "ln_1", "mlp.c_fc", "mlp.c_proj", "ln_2"),
)
NEO = Layout(
    {
        "embed.tokens": "transformer.wte",
        "embed.positions": "transformer.wpe",
        "norm": "transformer.ln_f",
        "heads.lm.weight": OUTPUT,
        **prefix_names("transformer.h.#.", "layers.#.", NEO_LAYER),
    },
    copies={OUTPUT: "transformer.wte.weight"},
    ignored=(r"transformer\.h\.\d+\.attn\.attention\.(masked_)?bias",),
)
GLOBAL, LOCAL = "global", "local"


def _opt(checkpoint: Checkpoint) -> Changes:
    """OPT's final norm, and narrow embeddings, which are multiplied by their map.

    OPT-350M maps embeddings before positions are added. The table and the output matrix that it
    makes are two, because there is a map on either side.
    """
    config, tensors, declared, where = checkpoint
    removed = check_value(declared.get(REMOVED, False), bool, REMOVED, where)
    maps = [f"model.decoder.project_{side}.weight" for side in ("in", "out")]
    changes: Changes = {"final_norm": config.norm_first and not removed}
    if not {*maps} <= tensors.keys():
        return changes
    # a map of its own would be between the table and the positions, which are wide
    before, after = (tensors.pop(name) for name in maps)
    narrow = tensors[EMBED]
    if not narrow.shape[1] == before.shape[1] == after.shape[0]:
        shapes = [list(matrix.shape) for matrix in (narrow, before, after)]
        raise CheckpointError(f"{where}: {', '.join([EMBED, *maps])} do not fit: {shapes}")
    tensors[OUTPUT] = tensors.get(OUTPUT, narrow) @ after
    tensors[EMBED] = narrow @ before.mT
    for head in ("score.weight", "qa_outputs.weight"):  # they read the narrow states
        if head in tensors:
            tensors[head] = tensors[head] @ after
    return changes | {"tied": False}


def _check_opt(config: ModelConfig) -> None:
    normed = not config.final_norm or config.norm_first
    require(
        normed,
        "--to hf: transformers' OPT has --arch.final-norm on with --arch.norm-first alone, but "
        "this model has it without",
    )


def _neo(checkpoint: Checkpoint) -> Changes:
    """GPT-Neo's windows: local layers see `window_size` slots, of which one is the query's own."""
    config, _, declared, where = checkpoint
    key = "attention_layers"
    kinds = declared.get(key)
    if kinds is None:
        kinds = []
        key = "attention_types"
        try:
            for names, times in declared.get(key) or [[[GLOBAL, LOCAL], config.num_layers // 2]]:
                kinds += list(names) * times
        except (TypeError, ValueError):
            kinds = None
    if (
        not isinstance(kinds, list)
        or len(kinds) != config.num_layers
        or not ({*map(str, kinds)} <= {GLOBAL, LOCAL})
    ):
        raise CheckpointError(
            f"{where}: {key} must have {GLOBAL} or {LOCAL} for each of {config.num_layers} "
            f"layers, got {declared.get(key)!r}"
        )
    window = check_value(declared.get("window_size", 256), int, "window_size", where)
    if LOCAL in kinds and window < 2:
        raise CheckpointError(f"{where}: window_size must show another slot, got {window}")
    # a layer sees itself, too
    windows = period([window - 1 if kind == LOCAL else 0 for kind in kinds])
    width = {} if declared.get("intermediate_size") else {"ffn_width": 4 * config.width}
    return {"layer_windows": windows if any(windows) else (), **width}


def _neo_entries(config: ModelConfig) -> Changes:
    kinds = [LOCAL if reach else GLOBAL for reach, _ in config.layer_kinds]
    return {
        "attention_types": [[kinds, 1]],
        "attention_layers": kinds,
        "window_size": max(config.layer_windows, default=255) + 1 or 256,
        "embed_dropout": config.dropout,
    }


register("model_type", "opt")(
    Family(
        about="OPT",
        name="OPT",
        root="model.",
        presets=("opt_125m", "opt_1.3b"),
        task="lm",
        layout=OPT,
        heads={TEXTS: ("", "score"), PLACES: SLOTS[PLACES]},
        laid=UNDELIMITED,
        folder_options=decoder_opening,
        keys=OPT_KEYS,
        fixed={"layer_norm_elementwise_affine": True},
        usual={"attention_dropout": 0.0},
        complete=_opt,
        entries=lambda config: {
            "word_embed_proj_dim": config.width,
            REMOVED: config.norm_first and not config.final_norm,
        },
        options={"opening": "sep"},
        free=("final_norm",),
        check=_check_opt,
        offset=lambda pad: 2,
        whole="ForCausalLM",
        fits=lambda config, arch: (
            config.position_offset > 0 and not (config.embedding_norm or config.layer_groups)
        ),
    )
)
register("model_type", "gpt_neo")(
    Family(
        about="GPT-Neo",
        name="GPTNeo",
        root="transformer.",
        presets=("gpt_neo_125m", "gpt_neo_1.3b"),
        task="lm",
        layout=NEO,
        heads={TEXTS: ("", "score"), **SLOTS},
        laid=UNDELIMITED,
        folder_options=decoder_opening,
        keys=NEO_KEYS,
        usual={"resid_dropout": 0.0, "attention_dropout": 0.0},
        complete=_neo,
        entries=_neo_entries,
        options={"opening": "sep"},
        free=("layer_windows",),
        check=check_windows,
        whole="ForCausalLM",
        fits=lambda config, arch: config.norm_first and not config.score_scale,
    )
)
