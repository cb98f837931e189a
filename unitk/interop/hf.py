"""Hugging Face's folders: config.json, model.safetensors or pytorch_model.bin, a tokenizer.

BERT (and ERNIE, which is one), RoBERTa, ALBERT, GPT-2, GPT and BART, at any size. Read are whole
models and bare encoders, old spellings (gamma, beta) and sharded files. Written is a folder that
`transformers` opens with `from_pretrained`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from unitk import registry
from unitk.errors import CheckpointError, UsageError
from unitk.interop import names
from unitk.interop.convert import Found, Parts
from unitk.interop.files import find_file, read_json, read_tensors
from unitk.interop.layout import Layout, same
from unitk.interop.settings import (
    Keys,
    check_family,
    checked,
    preset_of,
    read_settings,
    refuse,
    write_settings,
)
from unitk.interop.vocabs import vocab_beside, write_vocab
from unitk.models.config import EncoderDecoderConfig, ModelConfig
from unitk.vocab import open_vocab

WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
BERT_KEYS: Keys = {
    "num_layers": ("num_hidden_layers",),
    "width": ("hidden_size",),
    "num_heads": ("num_attention_heads",),
    "ffn_width": ("intermediate_size",),
    "max_positions": ("max_position_embeddings",),
    "num_segments": ("type_vocab_size",),
    "norm_eps": ("layer_norm_eps", "layer_norm_epsilon"),
    "activation": ("hidden_act",),
    "dropout": ("hidden_dropout_prob",),
    "attention_dropout": ("attention_probs_dropout_prob",),
    "init_std": ("initializer_range",),
}
GPT_KEYS: Keys = {
    "num_layers": ("n_layer",),
    "width": ("n_embd",),
    "num_heads": ("n_head",),
    "max_positions": ("n_positions",),
    "norm_eps": ("layer_norm_epsilon",),
    "dropout": ("resid_pdrop",),
    "attention_dropout": ("attn_pdrop",),
    "init_std": ("initializer_range",),
}
GPT2_KEYS: Keys = {**GPT_KEYS, "activation": ("activation_function",), "ffn_width": ("n_inner",)}
BART_KEYS: Keys = {
    "num_layers": ("encoder_layers",),
    "decoder_layers": ("decoder_layers",),
    "width": ("d_model",),
    "num_heads": ("encoder_attention_heads",),
    "ffn_width": ("encoder_ffn_dim",),
    "max_positions": ("max_position_embeddings",),
    "activation": ("activation_function",),
    "embedding_scale": ("scale_embedding",),
    "dropout": ("dropout",),
    "attention_dropout": ("attention_dropout",),
    "activation_dropout": ("activation_dropout",),
    "init_std": ("init_std",),
}


Changes = dict[str, Any]
Told = tuple[ModelConfig, dict[str, Tensor], Mapping[str, Any], Path]
"""A configuration so far, the tensors, config.json and its path."""


def _whole_or_bare(tensors: Mapping[str, Tensor]) -> Changes:
    """A bare encoder has no output layer of its own."""
    whole = any(
        name.endswith(
            ("transform.dense.weight", "lm_head.dense.weight", "predictions.dense.weight")
        )
        for name in tensors
    )
    return {"head_transform": whole, "output_bias": whole}


def bert_changes(tensors: Mapping[str, Tensor]) -> Changes:
    """The output layers of a BERT, told by its tensors."""
    heads = ("nsp:2",) if "cls.seq_relationship.weight" in tensors else ()
    tied = _tied(names.BERT, tensors)
    return {**_whole_or_bare(tensors), "class_heads": heads, "tied": tied}


def _bert(told: Told) -> Changes:
    return bert_changes(told[1])


def _roberta(told: Told) -> Changes:
    config, tensors, given, where = told
    first = checked(given.get("pad_token_id", 1), int, "pad_token_id", where) + 1
    places = {"position_offset": first, "max_positions": config.max_positions - first}
    return {**_whole_or_bare(tensors), **places}


def _albert(told: Told) -> Changes:
    heads = ("sop:2",) if "sop_classifier.classifier.weight" in told[1] else ()
    return {**_whole_or_bare(told[1]), "class_heads": heads}


def _gpt2(told: Told) -> Changes:
    config, _, given, _ = told
    return {} if given.get("n_inner") else {"ffn_width": 4 * config.width}


def _bart(told: Told) -> Changes:
    _, tensors, given, where = told
    for part in ("attention_heads", "ffn_dim"):
        both = [given.get(f"{tower}_{part}") for tower in ("encoder", "decoder")]
        if both[0] != both[1]:
            raise CheckpointError(f"{where}: both towers need the same {part}, got {both}")
    bias = tensors.pop("final_logits_bias", torch.zeros(1))
    if not bias.any():
        return {}
    tensors["final_logits_bias"] = bias.flatten()
    return {"output_bias": True}


@dataclass(frozen=True)
class Family:
    """A kind of model there: its names, its settings, and what these cannot say."""

    kind: str
    """`model_type`"""
    presets: tuple[str, ...]
    """Our architectures of that kind."""
    task: str
    layout: Layout
    keys: Keys
    root: str
    """What the names of a bare model lack."""
    classes: tuple[str, str]
    """`architectures`: the whole model, and a bare one."""
    fixed: Mapping[str, Any]
    """Settings of which unitk computes one value only."""
    settle: Callable[[Told], Changes]
    free: tuple[str, ...] = ()
    """Fields beside `keys` that may differ from the preset's."""


OUTPUTS = ("cls.", "lm_head.", "final_logits_bias", "predictions.", "sop_classifier.")
"""How the names of output layers begin, which a root never stands before."""
ABSOLUTE = {"position_embedding_type": "absolute", "add_cross_attention": False}
BARE = ("head_transform", "output_bias", "class_heads")
FAMILIES = {
    family.kind: family
    for family in (
        Family(
            kind="bert",
            presets=("bert_base", "bert_large"),
            task="mlm",
            layout=names.BERT,
            keys=BERT_KEYS,
            root="bert.",
            classes=("BertForMaskedLM", "BertModel"),
            fixed={**ABSOLUTE, "is_decoder": False, "use_task_id": False},
            settle=_bert,
            free=BARE,
        ),
        Family(
            kind="roberta",
            presets=("roberta_base", "roberta_large"),
            task="mlm",
            layout=names.ROBERTA,
            keys=BERT_KEYS,
            root="roberta.",
            classes=("RobertaForMaskedLM", "RobertaModel"),
            fixed={**ABSOLUTE, "is_decoder": False},
            settle=_roberta,
            free=BARE,
        ),
        Family(
            kind="albert",
            presets=("albert_base", "albert_large", "albert_xlarge", "albert_xxlarge"),
            task="mlm",
            layout=names.ALBERT,
            keys={**BERT_KEYS, "embedding_width": ("embedding_size",)},
            root="albert.",
            classes=("AlbertForMaskedLM", "AlbertModel"),
            fixed={**ABSOLUTE, "num_hidden_groups": 1, "inner_group_num": 1},
            settle=_albert,
            free=("class_heads",),
        ),
        Family(
            kind="gpt2",
            presets=("gpt2_small", "gpt2_medium"),
            task="lm",
            layout=names.GPT2,
            keys=GPT2_KEYS,
            root="transformer.",
            classes=("GPT2LMHeadModel", "GPT2Model"),
            fixed={
                "scale_attn_weights": True,
                "scale_attn_by_inverse_layer_idx": False,
                "add_cross_attention": False,
            },
            settle=_gpt2,
        ),
        Family(
            kind="openai-gpt",
            presets=("gpt_base",),
            task="lm",
            layout=names.GPT,
            keys=GPT_KEYS,
            root="transformer.",
            classes=("OpenAIGPTLMHeadModel", "OpenAIGPTModel"),
            fixed={"afn": "gelu"},  # the tanh form, there
            settle=_gpt2,
        ),
        Family(
            kind="bart",
            presets=("bart_base", "bart_large"),
            task="seq2seq",
            layout=names.BART,
            keys=BART_KEYS,
            root="model.",
            classes=("BartForConditionalGeneration", "BartModel"),
            fixed={"normalize_before": False, "add_final_layer_norm": False},
            settle=_bart,
            free=("output_bias",),
        ),
    )
}


def read(path: Path, vocab: Path | None) -> Found:
    """A folder with config.json and weights, or its file of weights."""
    weights = find_file(path, WEIGHTS, "model")
    where = weights.parent / "config.json"
    given = read_json(where)
    kind = "bert" if given.get("model_type") == "ernie" else given.get("model_type")
    if kind not in FAMILIES:
        known = ", ".join(["ernie", *FAMILIES])
        raise CheckpointError(f"{where}: model_type must be one of {known}, got {kind!r}")
    family = FAMILIES[kind]
    refuse(given, family.fixed, where)
    tensors = modern(read_tensors(weights), family.root)
    config = read_settings(_preset(family), family.keys, given, where)
    try:
        changes = family.settle((config, tensors, given, where))
        config = replace(config, **{"tied": _tied(family.layout, tensors), **changes})
    except UsageError as error:
        raise CheckpointError(f"{where}: {error}") from error
    arch = preset_of(family.presets, config)
    own = open_vocab(vocab) if vocab else vocab_beside(weights)
    options = {"opening": "both"} if kind == "bart" else {}
    return Found(weights, tensors, family.layout, arch, config, family.task, own, options)


def modern(tensors: Mapping[str, Tensor], root: str) -> dict[str, Tensor]:
    """The tensors under the names of today, and of a whole model."""
    found = {}
    for name, tensor in tensors.items():
        name = re.sub(r"^ernie\.", "bert.", name)
        name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", name)
        name = re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name)
        if not name.startswith((root, *OUTPUTS)):
            name = root + name
        found[name] = tensor
    return found


def write(parts: Parts, folder: Path) -> None:
    """A folder for `from_pretrained`; it exists and is empty."""
    config, vocab, tensors = parts.model.config, parts.task.vocab, parts.tensors()
    family = _family_of(config)
    rows = len(tensors["embed.tokens.weight"])
    # where a table has rows before that of position 0, their number is fixed there
    offset = {"roberta": vocab.pad + 1, "bart": 2}.get(family.kind, 0)
    for name in ("embed.positions.weight", "encoder.embed.positions.weight"):
        if name in tensors:
            tensors[name] = moved(tensors[name], config.position_offset, offset)
    theirs = family.layout.to_theirs(tensors)
    about: dict[str, Any] = {
        "model_type": family.kind,
        "architectures": [_class_of(family, config)],
    }
    about |= {**family.fixed, **write_settings(config, family.keys)}
    about |= {"vocab_size": rows, "tie_word_embeddings": config.tied}
    ids = {"pad": vocab.pad, "bos": vocab.cls, "eos": vocab.sep}
    if family.kind == "roberta":
        about["max_position_embeddings"] += offset
    if isinstance(config, EncoderDecoderConfig):
        about["decoder_layers"] = config.decoder_layers or config.num_layers
        about["decoder_attention_heads"] = config.num_heads
        about["decoder_ffn_dim"] = config.ffn_width
        about |= {"forced_bos_token_id": None, "forced_eos_token_id": None}
        prompt = parts.task.prompt([np.zeros(1, np.int64)]).towers["dec"]
        ids["decoder_start"] = int(prompt.token[0])
        bias = theirs.pop("final_logits_bias", torch.zeros(rows))
        theirs["final_logits_bias"] = bias[None]
    elif family.task == "lm":
        about |= {name: config.dropout for name in ("embd_pdrop",)}
    about |= {f"{name}_token_id": index if index < rows else None for name, index in ids.items()}
    save_file(theirs, folder / "model.safetensors", {"format": "pt"})
    text = json.dumps(about, indent=2)
    (folder / "config.json").write_text(text + "\n", encoding="utf-8")
    write_vocab(vocab, folder, rows)


def moved(table: Tensor, have: int, want: int) -> Tensor:
    """A position table with `want` rows before that of position 0, which nothing looks up."""
    return (
        table if have == want else torch.cat([table.new_zeros(want, table.shape[1]), table[have:]])
    )


def _family_of(config: ModelConfig) -> Family:
    """What a model is there; an error names the first setting that stands in the way."""
    if isinstance(config, EncoderDecoderConfig):
        kind = "bart"
    elif config.norm_first:
        kind = "gpt2"
    elif config.layer_groups:
        kind = "albert"
    elif not config.embedding_norm:
        kind = "openai-gpt"
    else:
        kind = "roberta" if config.position_offset else "bert"
    family = FAMILIES[kind]
    free = {*family.keys, *family.free, "tied", "position_offset", "ffn_width"}
    check_family(config, _preset(family), free, f"--to hf: a {kind} model")
    return family


def _class_of(family: Family, config: ModelConfig) -> str:
    if "nsp" in config.classes:
        return "BertForPreTraining"
    if "sop" in config.classes:
        return "AlbertForPreTraining"
    bare = _preset(family).head_transform and not config.head_transform
    return family.classes[bare]


def _preset(family: Family) -> ModelConfig:
    preset: ModelConfig = registry.get("arch", family.presets[0])()
    return preset


def _tied(layout: Layout, tensors: Mapping[str, Tensor]) -> bool:
    output = layout.names["heads.lm.weight"]
    first = layout.copies[str(output)]
    return output not in tensors or first in tensors and same(tensors[str(output)], tensors[first])
