"""The families of transformers' models: tensor names, settings, and what settings cannot say."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unitk.errors import CheckpointError, UsageError, require
from unitk.families.xlnet.config import XLNetConfig
from unitk.formats import names
from unitk.formats.names import Layout, same
from unitk.formats.settings import Keys, check_family, checked, keys, layers_of, preset, sizes_of
from unitk.models.config import EncoderDecoderConfig, ModelConfig

BERT_KEYS = keys("""
    num_layers=num_hidden_layers width=hidden_size num_heads=num_attention_heads
    ffn_width=intermediate_size max_positions=max_position_embeddings
    num_segments=type_vocab_size norm_eps=layer_norm_eps|layer_norm_epsilon
    activation=hidden_act dropout=hidden_dropout_prob
    attention_dropout=attention_probs_dropout_prob init_std=initializer_range
""")
GPT_KEYS = keys("""
    num_layers=n_layer width=n_embd num_heads=n_head max_positions=n_positions
    norm_eps=layer_norm_epsilon dropout=resid_pdrop attention_dropout=attn_pdrop
    init_std=initializer_range
""")
GPT2_KEYS = {**GPT_KEYS, **keys("activation=activation_function ffn_width=n_inner")}
BART_KEYS = keys("""
    num_layers=encoder_layers decoder_layers=decoder_layers width=d_model
    num_heads=encoder_attention_heads ffn_width=encoder_ffn_dim
    max_positions=max_position_embeddings activation=activation_function
    embedding_scale=scale_embedding dropout=dropout attention_dropout=attention_dropout
    activation_dropout=activation_dropout init_std=init_std
""")
# T5 has one rate of dropout
T5_KEYS = keys("""
    num_layers=num_layers decoder_layers=num_decoder_layers width=d_model num_heads=num_heads
    head_width=d_kv ffn_width=d_ff relative_buckets=relative_attention_num_buckets
    relative_distance=relative_attention_max_distance norm_eps=layer_norm_epsilon
    attention_dropout=dropout_rate activation_dropout=dropout_rate dropout=dropout_rate
    init_std=initializer_factor
""")
XLNET_KEYS = keys("""
    num_layers=n_layer width=d_model num_heads=n_head ffn_width=d_inner activation=ff_activation
    memory_length=mem_len norm_eps=layer_norm_eps dropout=dropout attention_dropout=dropout
    init_std=initializer_range
""")
PROJECTIONS = {
    "relu": (False, "relu"),
    "gated-gelu": (True, "gelu_tanh"),
    "gated-silu": (True, "silu"),  # UL2
}
"""T5's `feed_forward_proj` -> whether there is a gate, and the activation."""

IN_FRONT, BARE_QUERY = ("q", "k", "v", "r"), "transformer.mask_emb"
"""XLNet: matrices that are stored [in, out]; the vector that the query stream reads."""

Changes = dict[str, Any]
Checkpoint = tuple[ModelConfig, dict[str, Tensor], Mapping[str, Any], Path]
"""A configuration so far, the tensors, config.json and its path."""


def masked_changes(tensors: Mapping[str, Tensor]) -> Changes:
    """Options of an encoder's output layers, found from its tensors; a bare encoder has none."""
    ends = ("transform.dense.weight", "lm_head.dense.weight", "predictions.dense.weight")
    whole = any(name.endswith(ends) for name in tensors)
    outputs = {"class:nsp:2": "cls.seq_relationship", "class:sop:2": "sop_classifier.classifier"}
    heads = tuple(head for head, name in outputs.items() if f"{name}.weight" in tensors)
    return {"head_transform": whole, "output_bias": whole, "heads": heads}


def bert_sizes(root: str, tensors: Mapping[str, Tensor], path: Path) -> dict[str, int]:
    """A BERT's sizes from its shapes, under the names of config.json; heads of 64 are assumed."""
    places = {
        "hidden_size": ("embeddings.word_embeddings", 1),
        "max_position_embeddings": ("embeddings.position_embeddings", 0),
        "type_vocab_size": ("embeddings.token_type_embeddings", 0),
        "intermediate_size": ("encoder.layer.0.intermediate.dense", 0),
    }
    there = {key: (f"{root}{name}.weight", axis) for key, (name, axis) in places.items()}
    found = sizes_of(tensors, there, path)
    found["num_hidden_layers"] = layers_of(tensors, f"{root}encoder.layer.")
    return found | {"num_attention_heads": max(found["hidden_size"] // 64, 1)}


def _ernie(checkpoint: Checkpoint) -> Changes:
    _, tensors, given, where = checkpoint
    numbered = checked(given.get("use_task_id", False), bool, "use_task_id", where)
    rows = checked(given.get("task_type_vocab_size", 3), int, "task_type_vocab_size", where)
    return masked_changes(tensors) | {"num_tasks": rows * numbered}


def _roberta(checkpoint: Checkpoint) -> Changes:
    config, tensors, given, where = checkpoint
    # positions are counted from the pad's id
    first = checked(given.get("pad_token_id", 1), int, "pad_token_id", where) + 1
    places = {"position_offset": first, "max_positions": config.max_positions - first}
    return masked_changes(tensors) | places


def _gpt2(checkpoint: Checkpoint) -> Changes:
    config, _, given, _ = checkpoint
    return {} if given.get("n_inner") else {"ffn_width": 4 * config.width}


def _bart(checkpoint: Checkpoint) -> Changes:
    _, tensors, given, where = checkpoint
    for part in ("attention_heads", "ffn_dim"):
        both = [given.get(f"{tower}_{part}") for tower in ("encoder", "decoder")]
        if both[0] != both[1]:
            raise CheckpointError(f"{where}: both towers need the same {part}, got {both}")
    bias = tensors.pop("final_logits_bias", torch.zeros(1))
    if not bias.any():
        return {}
    tensors["final_logits_bias"] = bias.flatten()
    return {"output_bias": True}


def _t5(checkpoint: Checkpoint) -> Changes:
    _, _, given, where = checkpoint
    key = "feed_forward_proj"
    projection = checked(given.get(key, "relu"), str, key, where)
    if projection not in PROJECTIONS:
        known = " or ".join(PROJECTIONS)
        raise CheckpointError(f"{where}: feed_forward_proj must be {known}, got {projection!r}")
    gate, activation = PROJECTIONS[projection]
    # before it had a name of its own, the scale went by whether the output matrix was tied
    scaled = given.get("scale_decoder_outputs", given.get("tie_word_embeddings") is not False)
    scaled = checked(scaled, bool, "scale_decoder_outputs", where)
    return {"ffn_gate": gate, "activation": activation, "output_scale": scaled}


def _xlnet(checkpoint: Checkpoint) -> Changes:
    """Reshape XLNet's attention tensors in place to unitk's tables, heads side by side.

    transformers stores matrices as [D, H, K], biases as [H, K] and the segments' as [2, H, K].
    """
    config, tensors, _, _ = checkpoint
    if BARE_QUERY in tensors:
        tensors[BARE_QUERY] = tensors[BARE_QUERY].flatten(0, 1)
    for name, tensor in tensors.items():
        if ".rel_attn." in name and "layer_norm" not in name:
            # heads side by side, as the rows of our maps have them
            kept = tensor.flatten(-2)
            turned = name.rpartition(".")[2] in IN_FRONT
            tensors[name] = kept.mT if turned and kept.dim() == 2 else kept
    return {"output_bias": "lm_loss.bias" in tensors}


def _as_xlnet(name: str, tensor: Tensor, config: ModelConfig) -> Tensor:
    """Reshape a tensor to the shape that transformers' XLNet has for `name`."""
    last = name.rpartition(".")[2]
    if name == BARE_QUERY:
        return tensor[None]
    if ".rel_attn." not in name or "layer_norm" in name:
        return tensor
    kept = (tensor.mT if last in IN_FRONT else tensor).contiguous()
    return kept.reshape(*kept.shape[:-1], config.num_heads, -1)


def _about_t5(config: ModelConfig) -> Changes:
    ours = (config.ffn_gate, config.activation)
    projection = next((theirs for theirs, one in PROJECTIONS.items() if one == ours), None)
    if projection is None:
        raise UsageError(f"--to hf: T5 has no feed-forward layer with {ours[1]} and gate {ours[0]}")
    return {"feed_forward_proj": projection, "scale_decoder_outputs": config.output_scale}


def _about_gpt(config: ModelConfig) -> Changes:
    what = f"--to hf: transformers' GPT has --arch.ffn-width {4 * config.width}"
    require(config.ffn_width == 4 * config.width, f"{what}, but this model has {config.ffn_width}")
    return {"embd_pdrop": config.dropout}


@dataclass(frozen=True, kw_only=True)
class Family:
    """A family of transformers' models: tensor names, settings, and what settings cannot say."""

    name: str  # prefix of its classes
    root: str  # prefix of tensor names that a bare model lacks
    presets: tuple[str, ...]
    """unitk's architectures of that family; the first one gives the defaults."""
    task: str
    layout: Layout
    keys: Keys
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Settings of which unitk computes one value only."""
    complete: Callable[[Checkpoint], Changes]
    """For reading: settings that `keys` cannot express, from tensors and config.json."""
    about: Callable[[ModelConfig], Changes] = lambda config: {}
    """For writing: entries of config.json that `keys` cannot express."""
    options: Mapping[str, str] = field(default_factory=dict)  # of the task
    free: tuple[str, ...] = ()  # fields beside `keys` that may differ from the preset's
    heads: Mapping[str, tuple[str, str]]
    """Suffix of a fine-tuned class -> names of its pooler ("" without one) and of its map."""
    separators: int = 1  # between two texts
    shaped: Callable[[str, Tensor, ModelConfig], Tensor] = lambda name, tensor, config: tensor
    """For writing: reshape a tensor, given transformers' name of it."""
    wrapped: str = ""  # prefix of all names but the head's, in models that classify texts


OUTPUTS = (
    *("cls.", "lm_head.", "final_logits_bias", "predictions.", "sop_classifier.", "lm_loss."),
    *("sequence_summary.", "logits_proj."),
    *("classifier.", "qa_outputs.", "score.", "classification_head.", "multiple_choice_head."),
)
"""Prefixes of output layers, whose names have no root before them."""
WRITES = {"mlm": "ForMaskedLM", "seq2seq": "ForConditionalGeneration"}
WRITES |= dict.fromkeys(("lm", "xlnet"), "LMHeadModel")
"""Task -> suffix of transformers' class."""
TEXTS, CHOICES = "ForSequenceClassification", "ForMultipleChoice"
WORDS, PLACES = "ForTokenClassification", "ForQuestionAnswering"
CLASSES = {"class": TEXTS, "regress": TEXTS, "tag": WORDS, "span": PLACES, "choice": CHOICES}
"""Kind of head -> suffix of the fine-tuned class."""
DOUBLE = "DoubleHeadsModel"
"""GPT's class for choices, which also has the output layer over words."""
SIMPLE = f"{PLACES}Simple"
"""XLNet's class for spans; the one without "Simple" searches with a beam."""
SLOTS = {WORDS: ("", "classifier"), PLACES: ("", "qa_outputs")}
CLASSIFIER = ("classification_head.dense", "classification_head.out_proj")


def bert_heads(pooler: str) -> dict[str, tuple[str, str]]:
    """The heads of a BERT, whose classes of texts read its pooler."""
    return SLOTS | dict.fromkeys((TEXTS, CHOICES), (pooler, "classifier"))


BARE = ("head_transform", "output_bias", "heads")
ENCODER: dict[str, Any] = {
    "task": "mlm",
    "keys": BERT_KEYS,
    "complete": lambda found: masked_changes(found[1]),
    "free": BARE,
}
"""What BERT and its kin have in common."""
ABSOLUTE = {"position_embedding_type": "absolute", "add_cross_attention": False}
ENCODES = {**ABSOLUTE, "is_decoder": False}
FAMILIES = {
    "bert": Family(
        **ENCODER,
        name="Bert",
        root="bert.",
        presets=("bert_base", "bert_large"),
        layout=names.BERT,
        heads=bert_heads("bert.pooler.dense"),
        fixed={**ENCODES, "use_task_id": False},
    ),
    "ernie": Family(
        **ENCODER | {"complete": _ernie, "free": (*BARE, "num_tasks")},
        name="Ernie",
        root="ernie.",
        presets=("ernie_base", "ernie2_base", "ernie2_large"),
        layout=names.ERNIE,
        heads=bert_heads("ernie.pooler.dense"),
        fixed=ENCODES,
        about=lambda config: {
            "use_task_id": config.num_tasks > 0,
            "task_type_vocab_size": max(config.num_tasks, 1),
        },
    ),
    "roberta": Family(
        **ENCODER | {"complete": _roberta},
        name="Roberta",
        root="roberta.",
        presets=("roberta_base", "roberta_large"),
        layout=names.ROBERTA,
        separators=2,
        heads=bert_heads("roberta.pooler.dense")
        | {TEXTS: ("classifier.dense", "classifier.out_proj")},
        fixed=ENCODES,
    ),
    "albert": Family(
        **ENCODER
        | {
            "keys": {**BERT_KEYS, **keys("embedding_width=embedding_size")},
            "free": ("heads",),
        },
        name="Albert",
        root="albert.",
        presets=("albert_base", "albert_large", "albert_xlarge", "albert_xxlarge"),
        layout=names.ALBERT,
        heads=bert_heads("albert.pooler"),
        fixed={**ABSOLUTE, "num_hidden_groups": 1, "inner_group_num": 1},
    ),
    "gpt2": Family(
        name="GPT2",
        root="transformer.",
        presets=("gpt2_small", "gpt2_medium", "gpt2_large", "gpt2_xl"),
        task="lm",
        layout=names.GPT2,
        heads=SLOTS | {TEXTS: ("", "score"), DOUBLE: ("", "multiple_choice_head.summary")},
        keys=GPT2_KEYS,
        fixed={
            "scale_attn_weights": True,
            "scale_attn_by_inverse_layer_idx": False,
            "add_cross_attention": False,
        },
        complete=_gpt2,
        about=lambda config: {"embd_pdrop": config.dropout},
        options={"opening": "sep"},
    ),
    "openai-gpt": Family(
        name="OpenAIGPT",
        root="transformer.",
        presets=("gpt_base",),
        task="lm",
        layout=names.GPT,
        heads={TEXTS: ("", "score"), DOUBLE: ("", "multiple_choice_head.summary")},
        keys=GPT_KEYS,
        fixed={"afn": "gelu"},  # transformers means the tanh form by it
        complete=_gpt2,
        about=_about_gpt,
        options={"opening": "none", "ends": "off"},
    ),
    "bart": Family(
        name="Bart",
        root="model.",
        presets=("bart_base", "bart_large"),
        task="seq2seq",
        layout=names.BART,
        separators=2,
        heads={TEXTS: CLASSIFIER, PLACES: SLOTS[PLACES]},
        keys=BART_KEYS,
        fixed={"normalize_before": False, "add_final_layer_norm": False},
        complete=_bart,
        about=lambda config: {
            "decoder_attention_heads": config.num_heads,
            "decoder_ffn_dim": config.ffn_width,
        },
        options={"opening": "both"},
        free=("output_bias",),
    ),
    "t5": Family(
        name="T5",
        root="",
        presets=("t5_small", "t5_base", "t5_large", "t5_v1_1_small", "t5_v1_1_base", "ul2_20b"),
        task="seq2seq",
        layout=names.T5,
        heads={TEXTS: CLASSIFIER, PLACES: SLOTS[PLACES]},
        wrapped="transformer.",
        keys=T5_KEYS,
        complete=_t5,
        about=_about_t5,
        options={"opening": "pad"},
        free=("ffn_gate", "activation", "output_scale"),
    ),
    "xlnet": Family(
        name="XLNet",
        root="transformer.",
        presets=("xlnet_base", "xlnet_large"),
        task="xlnet",
        layout=names.XLNET,
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
        complete=_xlnet,
        shaped=_as_xlnet,
        free=("output_bias",),
    ),
}
"""`model_type` in config.json -> family."""


def kind_of(config: ModelConfig, arch: str = "", head: str = "") -> str:
    """The name in `FAMILIES` that a model fits; `arch` decides between families of one shape.

    Raises `UsageError` with the first setting that no family has. A model that is fine-tuned with a
    `head` has no other output layers in transformers.
    """
    if isinstance(config, EncoderDecoderConfig):
        kind = "t5" if config.norm == "rms" else "bart"
    elif isinstance(config, XLNetConfig):
        kind = "xlnet"
    elif config.norm_first:
        kind = "gpt2"
    elif config.layer_groups:
        kind = "albert"
    elif not config.embedding_norm:
        kind = "openai-gpt"
    elif arch.startswith("ernie") or config.num_tasks:
        kind = "ernie"
    else:
        kind = "roberta" if config.position_offset else "bert"
    family = FAMILIES[kind]
    free = {*family.keys, *family.free, "tied", "position_offset", "head_pooler"}
    free |= {*BARE} if head else set()
    check_family(
        config, family.presets[0], free, f"--to hf: no class of transformers fits: a {kind} model"
    )
    return kind


def layout_of(family: Family, config: ModelConfig, head: str = "") -> Layout:
    """The family's table of names, with those of `head`; T5's gated maps are stored in halves."""
    layout = names.T5_GATED if config.ffn_gate else family.layout
    if not head:
        return layout
    ending = ending_of(family, head)
    name = f"{family.name}{ending}"
    require(ending in family.heads, f"--to hf: transformers has no {name} that unitk can match")
    own = names.classes(f"{head}:label", *family.heads[ending])
    # its bias adds the same to every choice
    ignored = (*layout.ignored, r"multiple_choice_head\.summary\.bias")
    return replace(layout, names={**layout.names, **own}, ignored=ignored)


def ending_of(family: Family, head: str) -> str:
    """The suffix of the family's class with this kind of head, such as ForTokenClassification."""
    lacks = f"--to hf: transformers has no class with head {head}; use --task.pooling slot"
    require(head in CLASSES, lacks)
    own = {"choice": DOUBLE, "span": SIMPLE}.get(head, "")
    return own if own in family.heads else CLASSES[head]


def class_of(family: Family, config: ModelConfig) -> str:
    """The class of transformers that a model fits, for `architectures` in config.json."""
    if config.head_sizes.keys() & {"class:nsp", "class:sop"}:
        return f"{family.name}ForPreTraining"
    bare = preset(family.presets[0]).head_transform and not config.head_transform
    return family.name + ("Model" if bare else WRITES[family.task])


def tied(layout: Layout, tensors: Mapping[str, Tensor]) -> bool:
    """Whether a checkpoint's output matrix is its token embedding."""
    output = layout.names["heads.lm.weight"]
    first = layout.copies[str(output)]
    return output not in tensors or first in tensors and same(tensors[str(output)], tensors[first])
