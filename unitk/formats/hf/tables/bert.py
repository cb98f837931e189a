"""BERT, ERNIE, RoBERTa and ALBERT: encoders that fill masks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unitk.errors import CheckpointError
from unitk.formats.hf.families import (
    BARE,
    CHOICES,
    OUTPUTS,
    SLOTS,
    TEXTS,
    Changes,
    Checkpoint,
    Family,
    ModelFolder,
)
from unitk.formats.names import Layout, Names, class_head, layer, prefix_names
from unitk.formats.settings import check_value, keys, layers_of, sizes_of
from unitk.models.config import ModelConfig
from unitk.registry import register

log = logging.getLogger(__name__)

BERT_KEYS = keys("""
    num_layers=num_hidden_layers width=hidden_size num_heads=num_attention_heads
    ffn_width=intermediate_size max_positions=max_position_embeddings
    num_segments=type_vocab_size norm_eps=layer_norm_eps|layer_norm_epsilon
    activation=hidden_act dropout=hidden_dropout_prob
    attention_dropout=attention_probs_dropout_prob init_std=initializer_range
""")
BERT_LAYER = layer(
    tuple(f"attention.self.{part}" for part in ("query", "key", "value")),
    *("attention.output.dense", "attention.output.LayerNorm"),
    *("intermediate.dense", "output.dense", "output.LayerNorm"),
)
ALBERT_LAYER = layer(
    tuple(f"attention.{part}" for part in ("query", "key", "value")),
    *("attention.dense", "attention.LayerNorm"),
    *("ffn", "ffn_output", "full_layer_layer_norm"),
)


def bert_embeddings(root: str) -> dict[str, Any]:
    """The names of BERT's embeddings, where the names of the encoder begin with `root`."""
    parts = {"tokens": "word_embeddings", "positions": "position_embeddings"}
    parts |= {"segments": "token_type_embeddings", "norm": "LayerNorm"}
    parts |= {"tasks": "task_type_embeddings"}  # of ERNIE 2.0
    return prefix_names(f"{root}.embeddings.", "embed.", parts)


def bert(root: str) -> dict[str, Any]:
    """The names of BERT's encoder, which begin with `root`."""
    return bert_embeddings(root) | prefix_names(f"{root}.encoder.layer.#.", "layers.#.", BERT_LAYER)


def masked_lm_layout(root: str, names: Names, head: str, dense: str, norm: str) -> Layout:
    """The table of a masked language model; the output layer's names begin with `head`."""
    output = {"transform.dense": dense, "transform.norm": norm, "weight": f"{head}.decoder.weight"}
    return Layout(
        {**names, **prefix_names("", "heads.lm.", output | {"bias": f"{head}.bias"})},
        copies={
            f"{head}.decoder.weight": f"{root}.embeddings.word_embeddings.weight",
            f"{head}.decoder.bias": f"{head}.bias",
        },
        # without an output over classes, the pooler leads nowhere
        ignored=(rf"{root}\.embeddings\.(position|token_type)_ids", rf"{root}\.pooler\..*"),
    )


BERT, ERNIE = (
    masked_lm_layout(
        root,
        bert(root) | class_head("class:nsp", f"{root}.pooler.dense", "cls.seq_relationship"),
        "cls.predictions",
        *("cls.predictions.transform.dense", "cls.predictions.transform.LayerNorm"),
    )
    for root in ("bert", "ernie")
)
ROBERTA = masked_lm_layout(
    "roberta", bert("roberta"), "lm_head", "lm_head.dense", "lm_head.layer_norm"
)
ALBERT = masked_lm_layout(
    "albert",
    bert_embeddings("albert")
    | {"embed.map": "albert.encoder.embedding_hidden_mapping_in"}
    | prefix_names(
        "albert.encoder.albert_layer_groups.#.albert_layers.0.", "layers.#.", ALBERT_LAYER
    )
    | class_head("class:sop", "albert.pooler", "sop_classifier.classifier"),
    *("predictions", "predictions.dense", "predictions.LayerNorm"),
)


def masked_changes(tensors: Mapping[str, Tensor]) -> Changes:
    """Options of an encoder's output layers, found from its tensors; a bare encoder has none."""
    ends = ("transform.dense.weight", "lm_head.dense.weight", "predictions.dense.weight")
    whole = any(name.endswith(ends) for name in tensors)
    outputs = {"class:nsp:2": "cls.seq_relationship", "class:sop:2": "sop_classifier.classifier"}
    heads = tuple(head for head, name in outputs.items() if f"{name}.weight" in tensors)
    return {"head_transform": whole, "output_bias": whole, "heads": heads}


def draw_word_output(checkpoint: Checkpoint, names: Mapping[str, str], table: str) -> None:
    """Give a bare model whose `table` of words is narrow an untrained output layer, and say so.

    Its states are too wide for the table. `names` has the names of that layer by unitk's.
    """
    config, tensors, _, where = checkpoint
    has_output = any(name.startswith(tuple(OUTPUTS)) for name in tensors)
    if not config.embedding_width or has_output or table not in tensors:
        return
    rows, narrow = tensors[table].shape
    drawn = torch.randn(narrow, config.width, generator=torch.Generator().manual_seed(1))
    dense, norm = (names[f"heads.lm.transform.{part}"] for part in ("dense", "norm"))
    tensors[f"{dense}.weight"] = config.init_std * drawn
    tensors[f"{norm}.weight"] = torch.ones(narrow)
    for name in (dense, norm):
        tensors[f"{name}.bias"] = torch.zeros(narrow)
    tensors[names["heads.lm.bias"]] = torch.zeros(rows)
    log.warning("%s: the model has no output over words; the one added is untrained", where)


def _albert(checkpoint: Checkpoint) -> Changes:
    names = {unitk: str(name) for unitk, name in ALBERT.names.items()}
    draw_word_output(checkpoint, names, "albert.embeddings.word_embeddings.weight")
    return masked_changes(checkpoint.tensors)


def bert_sizes(root: str, tensors: Mapping[str, Tensor], path: Path) -> dict[str, int]:
    """A BERT's sizes from its shapes, under the names of config.json; heads of 64 are assumed."""
    places = {
        "hidden_size": ("embeddings.word_embeddings", 1),
        "max_position_embeddings": ("embeddings.position_embeddings", 0),
        "type_vocab_size": ("embeddings.token_type_embeddings", 0),
        "intermediate_size": ("encoder.layer.0.intermediate.dense", 0),
    }
    stored_places = {key: (f"{root}{name}.weight", axis) for key, (name, axis) in places.items()}
    sizes = sizes_of(tensors, stored_places, path)
    sizes["num_hidden_layers"] = layers_of(tensors, f"{root}encoder.layer.")
    return sizes | {"num_attention_heads": max(sizes["hidden_size"] // 64, 1)}


def _ernie(checkpoint: Checkpoint) -> Changes:
    _, tensors, declared, where = checkpoint
    numbered = check_value(declared.get("use_task_id", False), bool, "use_task_id", where)
    rows = check_value(declared.get("task_type_vocab_size", 3), int, "task_type_vocab_size", where)
    return masked_changes(tensors) | {"num_tasks": rows * numbered}


def _roberta(checkpoint: Checkpoint) -> Changes:
    config, tensors, declared, where = checkpoint
    # positions are counted from the pad's id
    first = check_value(declared.get("pad_token_id", 1), int, "pad_token_id", where) + 1
    places = {"position_offset": first, "max_positions": config.max_positions - first}
    return masked_changes(tensors) | places


def bert_heads(pooler: str) -> dict[str, tuple[str, str]]:
    """The heads of a BERT, whose classes of texts read its pooler."""
    return SLOTS | dict.fromkeys((TEXTS, CHOICES), (pooler, "classifier"))


def with_missing(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors and, where a model lacks them, a row of segments and ALBERT's map of embeddings,
    which every model of the class has; they change nothing."""
    [(name, tokens)] = ((n, t) for n, t in tensors.items() if n.endswith(".word_embeddings.weight"))
    width = tokens.shape[1]
    completed = dict(tensors)
    completed.setdefault(name.replace("word_", "token_type_"), torch.zeros(1, width))
    if name.startswith("albert."):
        mapping = "albert.encoder.embedding_hidden_mapping_in"
        completed.setdefault(f"{mapping}.weight", torch.eye(width))
        completed.setdefault(f"{mapping}.bias", torch.zeros(width))
    return completed


def segment_rows(config: ModelConfig) -> Changes:
    """The number of rows of segments, of which each class has one at least."""
    return {"type_vocab_size": max(config.num_segments, 1)}


ENCODER: dict[str, Any] = {
    "task": "mlm",
    "keys": BERT_KEYS,
    "complete": lambda checkpoint: masked_changes(checkpoint[1]),
    "free": BARE,
}
"""The entries that BERT and its relatives share."""
ABSOLUTE = {"position_embedding_type": "absolute", "add_cross_attention": False}
ENCODES = {**ABSOLUTE, "is_decoder": False}


def is_ernie(config: ModelConfig, arch: str) -> bool:
    """Whether a model of BERT's shape is an ERNIE."""
    return arch.startswith("ernie") or config.num_tasks > 0


def is_bert(config: ModelConfig) -> bool:
    """Whether a model has BERT's shape: norms of sums, and one of the embeddings."""
    return not config.norm_first and config.embedding_norm and not config.layer_groups


KIN = {"xlmr": "xlm-roberta", "camembert": "camembert"}
"""Architectures with RoBERTa's layers and names, by the beginning of their name -> model type."""


def like_roberta(kind: str) -> Callable[[ModelConfig, str], bool]:
    """Whether a model has RoBERTa's shape, and leaves as this model type."""

    def fits(config: ModelConfig, arch: str) -> bool:
        same_kind = KIN.get(arch.partition("_")[0], "roberta") == kind
        shaped = config.position_offset > 0 and not config.relative_buckets
        return same_kind and is_bert(config) and not is_ernie(config, arch) and shaped

    return fits


def same_ids(model_folder: ModelFolder) -> dict[str, str]:
    """Refuse a vocabulary that numbers the symbols otherwise than the model.

    Files of sentencepiece pieces have other numbers than models of fairseq; their tokenizer.json
    has the model's.
    """
    first = model_folder.declared.get("bos_token_id")
    if (
        model_folder.vocab is not None
        and isinstance(first, int)
        and model_folder.vocab.cls != first
    ):
        raise CheckpointError(
            f"{model_folder.path}: bos_token_id is {first}, but the vocabulary has "
            f"{model_folder.vocab.cls} for it: save a tokenizer.json with transformers' "
            "AutoTokenizer (save_pretrained)"
        )
    return {}


register("model_type", "bert")(
    Family(
        **ENCODER,
        about="BERT",
        name="Bert",
        root="bert.",
        presets=("bert_base", "bert_large"),
        layout=BERT,
        heads=bert_heads("bert.pooler.dense"),
        fixed={**ENCODES, "use_task_id": False},
        fits=lambda config, arch: (
            is_bert(config)
            and not is_ernie(config, arch)
            and not config.position_offset
            and config.num_segments > 0
        ),
    )
)
register("model_type", "ernie")(
    Family(
        **ENCODER | {"complete": _ernie, "free": (*BARE, "num_tasks")},
        about="ERNIE and ERNIE 2.0",
        name="Ernie",
        root="ernie.",
        presets=("ernie_base", "ernie2_base", "ernie2_large"),
        layout=ERNIE,
        heads=bert_heads("ernie.pooler.dense"),
        usual={"hidden_act": "gelu"},
        fixed=ENCODES,
        join=with_missing,
        entries=lambda config: {
            **segment_rows(config),
            "use_task_id": config.num_tasks > 0,
            "task_type_vocab_size": max(config.num_tasks, 1),
        },
        fits=lambda config, arch: is_bert(config) and is_ernie(config, arch),
    )
)
LIKE_ROBERTA: dict[str, Any] = {
    **ENCODER | {"complete": _roberta},
    "root": "roberta.",
    "layout": ROBERTA,
    "separators": 2,
    "gelu_output": True,
    "usual": {"layer_norm_eps": 1e-12},
    "heads": bert_heads("roberta.pooler.dense")
    | {TEXTS: ("classifier.dense", "classifier.out_proj")},
    "fixed": ENCODES,
    # its size includes the rows before position 0
    "join": with_missing,
    "entries": lambda config: {
        **segment_rows(config),
        "max_position_embeddings": config.max_positions + config.position_offset,
    },
    "offset": lambda pad: pad + 1,
}
register("model_type", "roberta")(
    Family(
        **LIKE_ROBERTA,
        about="RoBERTa",
        name="Roberta",
        presets=("roberta_base", "roberta_large"),
        fits=like_roberta("roberta"),
    )
)
register("model_type", "xlm-roberta")(
    Family(
        **LIKE_ROBERTA,
        about="XLM-R",
        name="XLMRoberta",
        presets=("xlmr_base", "xlmr_large"),
        fits=like_roberta("xlm-roberta"),
        folder_options=same_ids,
    )
)
register("model_type", "camembert")(
    Family(
        **LIKE_ROBERTA,
        about="CamemBERT",
        name="Camembert",
        presets=("camembert_base",),
        fits=like_roberta("camembert"),
        folder_options=same_ids,
    )
)
register("model_type", "albert")(
    Family(
        **ENCODER
        | {
            "complete": _albert,
            "keys": {**BERT_KEYS, **keys("embedding_width=embedding_size")},
            "free": ("heads",),
        },
        about="ALBERT",
        name="Albert",
        root="albert.",
        presets=("albert_base", "albert_large", "albert_xlarge", "albert_xxlarge"),
        layout=ALBERT,
        heads=bert_heads("albert.pooler"),
        fixed={**ABSOLUTE, "num_hidden_groups": 1, "inner_group_num": 1},
        join=with_missing,
        entries=lambda config: {
            **segment_rows(config),
            "embedding_size": config.embedding_width or config.width,
        },
        fits=lambda config, arch: not config.norm_first and config.layer_groups > 0,
    )
)
