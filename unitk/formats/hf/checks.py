"""Refuses what a config.json says that unitk does not compute, and values that are wrong.

A setting that a class of transformers does not read may be in its file all the same. What it
would change is refused by name, and so is a value that no such setting can have.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor

from unitk.errors import CheckpointError
from unitk.formats.hf.families import CAUSAL, Family
from unitk.formats.hf.heads import named_classes
from unitk.formats.settings import check_value, config_of_preset
from unitk.models.config import EncoderDecoderConfig, ModelConfig
from unitk.tasks.base import Task

log = logging.getLogger(__name__)

EXPERTS, SENSES = "a mixture of experts", "pictures or sound"
SCALED, CAPS = "scaled parts", "soft caps"
UNCOMPUTED = {
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), EXPERTS),
    **dict.fromkeys(("vision_config", "audio_config"), SENSES),
    **dict.fromkeys(("residual_multiplier", "embedding_multiplier"), SCALED),
    **dict.fromkeys(("attention_multiplier", "logits_scaling", "logit_scale"), SCALED),
    **dict.fromkeys(("attn_logit_softcapping", "final_logit_softcapping"), CAPS),
    "quantization_config": "quantized weights",
}
"""Key -> what a model with it has, which the stack does not compute or the reader does not read."""
TYPES: dict[str, type] = {
    **dict.fromkeys(("vocab_size", "max_position_embeddings", "sliding_window"), int),
    **dict.fromkeys(("num_hidden_layers", "head_dim", "max_window_layers"), int),
    **dict.fromkeys(
        ("rope_theta", "rotary_pct", "rotary_emb_base", "partial_rotary_factor"), float
    ),
    **dict.fromkeys(("tie_word_embeddings", "is_causal", "use_sliding_window"), bool),
    "use_bidirectional_attention": bool,
    "is_encoder_decoder": bool,
}
"""Key -> what its value is, in any file."""


def check_config(declared: Mapping[str, Any], family: Family, where: object) -> None:
    """Raise `CheckpointError` for parts that are not computed and for values of a wrong kind."""
    read = {*family.fixed, *(key for names in family.keys.values() for key in names)}
    for key, feature in UNCOMPUTED.items():
        value = declared.get(key)
        if key not in read and value not in (None, False, 0, 1, {}, []):
            text = repr(value) if isinstance(value, int | float | str) else "set"
            raise CheckpointError(
                f"{where}: unitk reads no model with {feature}, but {key} is {text}"
            )
    for key, kind in TYPES.items():
        if declared.get(key) is not None:
            check_value(declared[key], kind, key, where)
    if declared.get(CAUSAL) is False and family.task != "mlm" and not family.both_ways:
        raise CheckpointError(
            f"{where}: unitk reads no {family.name} whose {CAUSAL} is false, which sees both sides"
        )
    if isinstance(config_of_preset(family.presets[0]), EncoderDecoderConfig):
        check_towers(declared, family.name, where)


def check_towers(declared: Mapping[str, Any], name: str, where: Any) -> None:
    """Raise `CheckpointError` for one tower of a model that has an encoder and a decoder."""
    classes = (f"{name}EncoderModel", f"{name}ForCausalLM")
    alone = [one for one in named_classes(declared, where) if one in classes]
    if alone or declared.get("is_encoder_decoder") is False:
        said = f"architectures has {alone[0]}" if alone else "is_encoder_decoder is false"
        raise CheckpointError(f"{where}: unitk reads {name} with both towers only, but {said}")


def check_rows(
    declared: Mapping[str, Any], family: Family, tensors: Mapping[str, Tensor], where: object
) -> None:
    """Raise `CheckpointError` if `vocab_size` is not the number of rows that the table has."""
    name = str(family.layout.names["embed.tokens"]) + ".weight"
    rows = declared.get("vocab_size")
    if rows is not None and name in tensors and rows != len(tensors[name]):
        raise CheckpointError(
            f"{where}: vocab_size is {rows:,}, but {name} has {len(tensors[name]):,} rows"
        )


def check_ties(
    declared: Mapping[str, Any],
    family: Family,
    tensors: Mapping[str, Tensor],
    where: object,
    *,
    tied: bool,
) -> None:
    """Raise `CheckpointError` if `tie_word_embeddings` is true, but the two matrices differ.

    A warning says if it is false, but the file of a bare model has no output matrix.
    """
    # a T5 1.1 may say that it is tied and have two matrices all the same
    if family.task not in ("lm", "mlm"):
        return
    output = str(family.layout.names["heads.lm.weight"])
    says = declared.get("tie_word_embeddings")
    if says is True and not tied:
        raise CheckpointError(
            f"{where}: tie_word_embeddings is true, but "
            f"{output} differs from {family.layout.copies[output]}"
        )
    tuned = any(name.startswith(("classifier.", "score.", "qa_outputs.")) for name in tensors)
    if says is False and output not in tensors and not tuned:
        log.warning(
            "%s: %s %s; the embedding is used until it is trained",
            where,
            "tie_word_embeddings is false, but there is no",
            output,
        )


def check_word_output(
    config: ModelConfig, family: Family, declared: Mapping[str, Any], where: object
) -> None:
    """Raise `CheckpointError` if an output over words has another activation than the layers."""
    if family.gelu_output and config.head_transform and config.activation != "gelu":
        value = declared.get("hidden_act")
        raise CheckpointError(
            f"{where}: hidden_act must be 'gelu', got {value!r}: {family.name} has gelu in its "
            "output layer, whatever hidden_act says"
        )


def check_decoder_start(task: Task, declared: Mapping[str, Any], where: object) -> None:
    """Raise `CheckpointError` if the decoder of a fine-tuned model begins with another symbol."""
    begins = declared.get("decoder_start_token_id")
    if begins is None or task.protocol is not None or not task.head:
        return
    towers = task.lay_out_parts([np.zeros(2, np.int64)]).example.towers
    if "dec" in towers and (first := int(towers["dec"].token[0])) != begins:
        raise CheckpointError(
            f"{where}: decoder_start_token_id is {begins!r}, but a text of task {task.name} "
            f"begins with {first} in the decoder"
        )
