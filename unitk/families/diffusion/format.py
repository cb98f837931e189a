"""Masked diffusion models in their releases' format: MDLM and BD3-LM (a DiT), LLaDA (a LLaMA).

`model_type` in config.json is mdlm, bd3lm or llada. transformers opens such a folder with the code
of the release. A DiT scales and shifts its norms by the time of the noise. These models are trained
at time 0 only, so the result is constant and is folded into the weights.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import silu

from unitk import registry
from unitk.errors import CheckpointError, UsageError, require
from unitk.families.diffusion.bd3lm import BD3LM
from unitk.families.diffusion.mdlm import MDLM, Diffusion
from unitk.formats import settings
from unitk.formats.archive import (
    find_file,
    read_json,
    read_tensors,
    without_prefix,
    write_json,
    write_safetensors,
)
from unitk.formats.base import Format, StoredModel
from unitk.formats.hf.families import is_tied
from unitk.formats.hf.folder import WEIGHTS
from unitk.formats.hf.tokenizer import write_tokenizer
from unitk.formats.names import (
    HALVES,
    Layout,
    Stored,
    as_halves,
    as_neighbours,
    layer,
    prefix_names,
)
from unitk.formats.vocabs import vocab_beside
from unitk.models.config import ModelConfig
from unitk.registry import register
from unitk.training.saving.checkpoint import Loaded
from unitk.vocab.base import Vocab


def reorder_queries(
    order: Callable[[Tensor, ModelConfig], Tensor], joint: Tensor, config: ModelConfig
) -> Tensor:
    """Put the queries and keys of a joint matrix in another order; values keep theirs."""
    rotated, values = joint.split([len(joint) // 3 * 2, len(joint) // 3])
    return torch.cat([order(rotated, config), values])


EMBEDDING, OUTPUT = "backbone.vocab_embed", "backbone.output_layer."
SIGMA, MODULATION = "backbone.sigma_map.mlp.", "adaLN_modulation"
FREQUENCY = "backbone.rotary_emb.inv_freq"
WAVES, TIME_WIDTH = 256, 128  # of the embedding of a time, and of what is made of it
JOINT = Stored(partial(reorder_queries, as_neighbours), partial(reorder_queries, as_halves))
"""Queries, keys and values in one matrix; the rows of the first two are in halves."""
DIT = Layout(
    {
        "embed.tokens": EMBEDDING,
        "norm": f"{OUTPUT}norm_final",
        "heads.lm": f"{OUTPUT}linear",
        **prefix_names(
            "backbone.blocks.#.",
            "layers.#.",
            layer("attn_qkv", "attn_out", "norm1", "mlp.0", "mlp.2", "norm2"),
        ),
    },
    forms={r".*\.attn_qkv\.weight": JOINT},
    ignored=(FREQUENCY, r"sampling_eps_(min|max)"),
)
LLAMA_LAYER = layer(
    ("q_proj", "k_proj", "v_proj"), "attn_out", "attn_norm", "ff_proj", "ff_out", "ff_norm"
)
LLAMA = Layout(
    {
        "embed.tokens": "model.transformer.wte",
        "norm": "model.transformer.ln_f",
        "heads.lm.weight": "model.transformer.ff_out.weight",
        **prefix_names(
            "model.transformer.blocks.#.",
            "layers.#.",
            LLAMA_LAYER | {"ffn.up": ("ff_proj", "up_proj")},
        ),
    },
    forms={r".*\.[qk]_proj\.weight": HALVES},
    copies={"model.transformer.ff_out.weight": "model.transformer.wte.weight"},
)
DIT_KEYS = settings.keys("""
    num_layers=n_blocks width=hidden_dim num_heads=n_heads max_positions=model_length
    dropout=dropout
""")
LLAMA_KEYS = settings.keys("""
    num_layers=n_layers width=d_model num_heads=n_heads ffn_width=mlp_hidden_size
    max_positions=max_sequence_length norm_eps=rms_norm_eps rotary_base=rope_theta
    dropout=residual_dropout attention_dropout=attention_dropout init_std=init_std
    tied=weight_tying
""")
BRANCH_ENDS = (("norm1", "attn_out"), ("norm2", "mlp.2"))
"""A block's norms, each scaled and shifted, and the maps whose outputs are scaled."""
NORM_BIAS = r"\.norm(1|2|_final)\.bias$"
LENGTH = 1024  # written for models without a limit; the released ones were trained with it


@dataclass(frozen=True)
class Kind:
    """A kind of model by `model_type`: names, settings, task, and class in the release's code."""

    layout: Layout
    preset: str
    keys: settings.Keys
    task: type[Diffusion]
    name: str
    classes: tuple[str, ...]  # of transformers that open it
    fixed: Mapping[str, Any]
    """Settings of which unitk computes one value only."""


MASKED = ("AutoModelForMaskedLM",)
TIMELESS = {"time_conditioning": False}
MODELS = {
    "mdlm": Kind(DIT, "mdlm_base", DIT_KEYS, MDLM, "MDLM", MASKED, TIMELESS),
    "bd3lm": Kind(
        DIT, "mdlm_base", DIT_KEYS, BD3LM, "BD3LM", MASKED, {**TIMELESS, "causal": False}
    ),
    "llada": Kind(
        LLAMA,
        "llada_8b",
        LLAMA_KEYS,
        MDLM,
        "LLaDAModelLM",
        ("AutoModel", "AutoModelForCausalLM"),
        {
            "block_type": "llama",
            "layer_norm_type": "rms",
            "activation_type": "silu",
            "rope": True,
            "layer_norm_with_affine": True,
            "block_group_size": 1,
            **dict.fromkeys(("alibi", "include_bias", "include_qkv_bias"), False),
            **dict.fromkeys(("bias_for_layer_norm", "attention_layer_norm"), False),
            **dict.fromkeys(("input_emb_norm", "scale_logits"), False),
        },
    ),
}


def find(path: Path, vocab: Path | None) -> StoredModel:
    """Read config.json and weights from a folder; the tokenizer is in it or given as `vocab`."""
    weights = find_file(path, WEIGHTS, "model")
    where = weights.parent / "config.json"
    declared = read_json(where)
    name = declared.get("model_type")
    if not isinstance(name, str) or name not in MODELS:
        known = ", ".join(MODELS)
        raise CheckpointError(f"{where}: model_type must be one of {known}, got {name!r}")
    kind = MODELS[name]
    tensors = without_prefix(read_tensors(weights), ("backbone", "model"), weights)
    # grouped-query attention is not supported
    settings.refuse(declared, {**kind.fixed, "n_kv_heads": declared.get("n_heads")}, where)
    config = settings.read(settings.config_of_preset(kind.preset), kind.keys, declared, where)
    beside = vocab_beside(weights, vocab)
    options = {}
    if kind.layout is DIT:
        tensors = fold_norms(tensors, weights)
        config = settings.with_values(config, where, output_bias=True, ffn_width=4 * config.width)
        if beside and beside.cls >= beside.model.size:  # as GPT-2's, whose one symbol parts texts
            options["opening"] = "sep"
    else:
        config = settings.with_values(config, where, tied=is_tied(LLAMA, tensors))
    if kind.task is BD3LM:
        length = settings.check_value(declared.get("block_size", 1), int, "block_size", where)
        options["block_length"] = str(length)
    return StoredModel(
        weights,
        tensors,
        kind.layout,
        (kind.preset,),
        config,
        vocab=beside,
        **settings.read_task(declared, where, registry.name_of("task", kind.task), options),
        symbols={} if beside is None else symbols_of(beside, declared, where),
    )


def symbols_of(vocab: Vocab, declared: Mapping[str, Any], where: Path) -> dict[str, int]:
    """The ids of symbols: those in config.json, else those that the release's code assumes."""
    named = {"mask": "mask_token_id", "sep": "eos_token_id"}
    symbols = {
        name: settings.check_value(declared[key], int, key, where)
        for name, key in named.items()
        if declared.get(key) is not None
    }
    if "mask" not in symbols and vocab.mask >= vocab.model.size:
        # MDLM's and BD3-LM's code appends it to a vocabulary that lacks it
        symbols["mask"] = (
            settings.check_value(declared.get("vocab_size"), int, "vocab_size", where) - 1
        )
    opening = vocab.model.find("<|startoftext|>")  # LLaDA's
    return symbols if opening is None else symbols | {"cls": opening}


def fold_norms(stored: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """Fold a DiT's adaptive norms at time 0 into its norms and output maps.

    Scale and shift become weight and bias of a norm. The gate is multiplied into the map that ends
    a part of a block (Peebles 2023, arXiv 2212.09748, section 3.2).
    """
    folded = {name: tensor for name, tensor in stored.items() if not name.startswith(SIGMA)}
    if f"{EMBEDDING}.embedding" in folded:
        folded[f"{EMBEDDING}.weight"] = folded.pop(f"{EMBEDDING}.embedding")
    blocks = [name.removesuffix("norm1.weight") for name in stored if ".norm1." in name]
    try:
        for block in [*blocks, OUTPUT]:
            parts = (("norm_final", ""),) if block == OUTPUT else BRANCH_ENDS
            width = len(stored[f"{block}{parts[0][0]}.weight"])
            values = iter(_modulation(stored, block, width).split(width))
            for norm, end in parts:
                scale = f"{block}{norm}.weight"
                shift = next(values)
                folded[scale] = (stored[scale].double() * (1 + next(values))).float()
                folded[f"{block}{norm}.bias"] = shift.float()
                gate = next(values) if end else shift
                for name in {f"{block}{end}.weight", f"{block}{end}.bias"} & stored.keys():
                    wide = stored[name].double()
                    folded[name] = (wide * gate.view(-1, *[1] * (wide.dim() - 1))).float()
            for leaf in ("weight", "bias"):
                folded.pop(f"{block}{MODULATION}.{leaf}", None)
    except KeyError as error:
        raise CheckpointError(f"{path} has no {error.args[0]}, which the model needs") from error
    except (RuntimeError, StopIteration) as error:
        raise CheckpointError(f"{path}: {block}{MODULATION} does not fit the model") from error
    return folded


def _modulation(stored: Mapping[str, Tensor], block: str, width: int) -> Tensor:
    """Shift, scale and gate of both parts of a block at time 0, each of `width`, as one vector.

    For the last norm they are shift and scale. Without adaptive norms (`adaln` off) they are the
    values that change nothing: 0, 0 and 1.
    """
    if f"{block}{MODULATION}.weight" not in stored:
        still = torch.zeros(3, width, dtype=torch.float64)
        still[2] = 1
        return still.repeat(2, 1).flatten()
    # cosines and sines of 0
    state = torch.tensor([1.0, 0.0], dtype=torch.float64).repeat_interleave(WAVES // 2)
    for name in (f"{SIGMA}0", f"{SIGMA}2", f"{block}{MODULATION}"):
        weight, bias = (stored[f"{name}.{leaf}"].double() for leaf in ("weight", "bias"))
        state = weight @ (state if name == f"{SIGMA}0" else silu(state)) + bias
    return state


def unfold_norms(tensors: Mapping[str, Tensor], config: ModelConfig) -> dict[str, Tensor]:
    """A DiT's tensors whose adaptive norms give the biases of unitk's norms at every time."""
    unfolded = {name: tensor for name, tensor in tensors.items() if not re.search(NORM_BIAS, name)}
    unfolded[f"{EMBEDDING}.embedding"] = unfolded.pop(f"{EMBEDDING}.weight")
    still = torch.zeros(config.width)  # a scale or shift that changes nothing
    for name in [name for name in tensors if name.endswith(".norm1.bias")]:
        block = name.removesuffix("norm1.bias")
        values = [[tensors[f"{block}{norm}.bias"], still, still + 1] for norm, _ in BRANCH_ENDS]
        unfolded[f"{block}{MODULATION}.bias"] = torch.cat(values[0] + values[1])
    unfolded[f"{OUTPUT}{MODULATION}.bias"] = torch.cat([tensors[f"{OUTPUT}norm_final.bias"], still])
    for name in [name for name in unfolded if name.endswith(f"{MODULATION}.bias")]:
        unfolded[name.replace("bias", "weight")] = torch.zeros(len(unfolded[name]), TIME_WIDTH)
    for number, inputs in ((0, WAVES), (2, TIME_WIDTH)):
        unfolded[f"{SIGMA}{number}.weight"] = torch.zeros(TIME_WIDTH, inputs)
        unfolded[f"{SIGMA}{number}.bias"] = torch.zeros(TIME_WIDTH)
    # a model that began here may have no bias in its outputs
    unfolded.setdefault(f"{OUTPUT}linear.bias", torch.zeros(len(tensors[f"{OUTPUT}linear.weight"])))
    exponents = torch.arange(0, config.key_width, 2) / config.key_width
    unfolded[FREQUENCY] = config.rotary_base**-exponents
    return unfolded


def write(parts: Loaded, folder: Path) -> None:
    """Write config.json, weights and tokenizer into an empty folder, for the code of a release."""
    config = parts.model.config
    task = parts.task
    vocab = parts.task.vocab
    name = kind_of(parts)
    kind = MODELS[name]
    tensors = parts.tensors()
    rows = len(tensors["embed.tokens.weight"])
    stored = kind.layout.to_stored(tensors, config)
    code = f"modeling_{name}.{kind.name}"
    settled = f"configuration_{name}.{kind.name.removesuffix('ModelLM')}Config"
    entries: dict[str, Any] = {"model_type": name, "architectures": [kind.name]}
    entries["auto_map"] = {"AutoConfig": settled, **dict.fromkeys(kind.classes, code)}
    entries |= {**kind.fixed, **settings.write(config, kind.keys), "vocab_size": rows}
    end = vocab.sep if vocab.sep < rows else None  # an import may have added it
    entries |= {"mask_token_id": vocab.mask, "eos_token_id": end, "pad_token_id": end}
    entries[kind.keys["max_positions"][0]] = config.max_positions or LENGTH
    if kind.layout is DIT:
        stored = unfold_norms(stored, config)
        entries["cond_dim"] = TIME_WIDTH
    else:
        entries |= {"n_kv_heads": config.num_heads, "embedding_size": rows}
    if isinstance(task, BD3LM):
        entries |= {"block_size": task.config.block_length, "adaln": True, "cross_attn": True}
        entries |= {"attn_backend": "sdpa", "var_min": False}
    entries[settings.KEPT] = settings.describe_task(task)
    write_safetensors(stored, folder / "model.safetensors")
    write_json(entries, folder / "config.json")
    write_tokenizer(task, folder, rows, {})


def kind_of(parts: Loaded) -> str:
    """The entry of `MODELS` that the model fits; otherwise `UsageError` with the first obstacle."""
    config = parts.model.config
    task = parts.task
    llama = config.norm == "rms"
    for name, kind in MODELS.items():
        if type(task) is kind.task and llama == (kind.layout is LLAMA):
            compared = f"--to diffusion: a model of kind {name}"
            require(not task.shift, f"{compared} has --task.shift off, but this model has it on")
            free = {*kind.keys, "output_bias"} if not llama else {*kind.keys}
            settings.check_family(config, kind.preset, free, compared)
            wide = 4 * config.width
            require(
                llama or config.ffn_width == wide,
                f"{compared} has --arch.ffn-width {wide}, but this model has {config.ffn_width}",
            )
            return name
    raise UsageError(
        "--to diffusion takes the tasks mdlm with layer or rms, bd3lm with layer, not "
        f"{registry.name_of('task', type(task))} with --arch.norm {config.norm}"
    )


register("format", "diffusion")(
    Format(
        about="MDLM, BD3-LM and LLaDA: a folder for the code of their releases.",
        find=find,
        write=write,
    )
)
