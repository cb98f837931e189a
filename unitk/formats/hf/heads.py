"""Heads of transformers' fine-tuned models: classes, numbers, tags, spans and choices."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from unitk import registry
from unitk.errors import CheckpointError, UsageError, require
from unitk.formats.hf.families import (
    CHOICES,
    CLASSES,
    DOUBLE,
    MODEL_TYPE,
    POOLED,
    TEXTS,
    Checkpoint,
    Family,
    ending_of,
    kind_of,
)
from unitk.formats.settings import KEPT, check_value, describe_training, refuse
from unitk.models.config import ModelConfig
from unitk.options.config import Parsed, flag
from unitk.options.fields import render
from unitk.registry import register
from unitk.tasks.base import Task

SUMMARY = {
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_proj_to_labels": True,
    "summary_activation": None,
}
"""How transformers scores a choice: a linear map of one slot, as in GPT."""
PROBLEMS = {"class": "single_label_classification", "regress": "regression"}
PROBLEMS["classes"] = "multi_label_classification"
PROBLEMS |= {kind: PROBLEMS[kind.partition("_")[0]] for kind in POOLED}
"""Kind of head -> what transformers' config.json says of its loss."""
POOLING = "classifier_pooling"
"""The key in config.json of how a class makes one state of a text."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Tuned:
    """The task that a checkpoint was trained for, its options, and its head if there is one."""

    task: str
    options: Mapping[str, str]  # of the task
    head: str = ""  # its kind, if it was fine-tuned with one
    labels: tuple[str, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)  # of the architecture


def detect_task(family: Family, checkpoint: Checkpoint, folder_options: Mapping[str, str]) -> Tuned:
    """The task and head of a checkpoint, from `architectures` in config.json and its tensors.

    `folder_options` are options of the task that the files of its folder say.
    """
    _, tensors, declared, where = checkpoint
    named = named_classes(declared, where)
    ending = named[0].removeprefix(family.name) if named else ""
    if ending not in {**family.heads, **CLASSES}:
        named = [family.name + _ending_by_tensors(family, checkpoint, named)]
        ending = named[0].removeprefix(family.name)
    options = {**family.options, **folder_options}
    if ending not in family.heads:
        if ending in CLASSES:
            raise CheckpointError(f"{where}: unitk has no model that reads texts as {named[0]}")
        return Tuned(family.task, options)
    pooler, out = family.heads[ending]
    matrix = tensors.get(f"{out}.weight")
    if matrix is None or matrix.dim() != 2:
        raise CheckpointError(f"{where}: {named[0]} needs a matrix {out}.weight")
    size = len(matrix)
    head = CLASSES[ending][0]
    if ending == DOUBLE:
        refuse(declared, SUMMARY, where)
    if head in PROBLEMS:
        head = head_of_problem(declared, named[0], size, where)
    task = {"class": "classify", "classes": "multi_label"}.get(head, head)
    labels = label_names(declared, size, where) if head in ("class", "classes", "tag") else ()
    # what a decoder's tokenizer puts around a text is read; what a seq2seq model begins with is not
    around_texts = folder_options if family.task == "lm" else {}
    laid = {**options, **family.laid, **around_texts}
    around = ",".join(f"{name}={text}" for name, text in laid.items())
    layout = f"{family.task}:{around}"
    options = {"layout": layout.rstrip(":"), "separators": str(family.separators)}
    if family.task == "lm" and ending != DOUBLE:
        options["lm_weight"] = "0"  # their loss is that of the head alone
    kept = check_value(declared.get(KEPT, {}), dict, KEPT, where)
    options |= {name: check_value(kept[name], str, name, where) for name in options if name in kept}
    if (pooling := pooling_of(family, ending, declared, where)) != "slot":
        if head == "classes":
            raise CheckpointError(
                f"{where}: unitk reads {named[0]} with problem_type {declared.get('problem_type')} "
                f"from one slot, not with {POOLING}"
            )
        options["pooling"] = pooling
        head = f"{head}_{pooling}"
    changes = {"heads": (f"{head}:label:{size}" if labels else f"{head}:label",)}
    return Tuned(task, options, head, labels, changes | head_layers(family, ending))


def _ending_by_tensors(family: Family, checkpoint: Checkpoint, named: list[str]) -> str:
    """The suffix of the class whose output map the tensors have, "" for a model without one.

    Raises `CheckpointError` if config.json has `named` another class, or if several have that map.
    """
    maps = {ending: f"{out}.weight" for ending, (_, out) in family.heads.items()}
    fitting = [ending for ending, name in maps.items() if name in checkpoint.tensors]
    if not fitting:
        return ""
    where, name = checkpoint.where, maps[fitting[0]]
    classes = [family.name + ending for ending in fitting]
    if named or len(classes) > 1:
        got = f", got {named[0]!r}" if named else ""
        raise CheckpointError(
            f"{where}: architectures must name the class that has {name}: {', '.join(classes)}{got}"
        )
    log.warning("%s has no architectures: by %s, it is a %s", where, name, classes[0])
    return fitting[0]


def head_of_problem(declared: Mapping[str, Any], name: str, size: int, where: Path) -> str:
    """The head of a class of transformers whose loss depends on config.json's problem_type."""
    problem = declared.get("problem_type")
    head = "regress" if size == 1 else "class"
    head = "classes" if problem == PROBLEMS["classes"] else head
    if problem not in (None, PROBLEMS[head]):
        raise CheckpointError(
            f"{where}: unitk reads {name} with {size} outputs as {PROBLEMS[head]} only, got "
            f"problem_type {problem!r}"
        )
    return head


def pooling_of(family: Family, ending: str, declared: Mapping[str, Any], where: Path) -> str:
    """The `--task.pooling` of a class of that name."""
    if not family.poolings or ending not in (TEXTS, CHOICES):
        return "slot"
    default = next(iter(family.poolings))
    pooling = check_value(declared.get(POOLING, default), str, POOLING, where)
    # a choice is scored by one slot of each text
    known = {a: b for a, b in family.poolings.items() if b == "slot" or ending == TEXTS}
    if pooling not in known:
        raise CheckpointError(
            f"{where}: {POOLING} of {family.name}{ending} must be {' or '.join(known)}, got "
            f"{pooling!r}"
        )
    return known[pooling]


def head_layers(family: Family, ending: str) -> dict[str, Any]:
    """The settings of the layers that a class of that name has after its states."""
    pooler, _ = family.heads[ending]
    # maps of classes that read from left to right have no bias
    bias = bool(pooler) and family.task != "lm"
    return {"head_pooler": bias, "head_dense": family.head_dense if pooler else "tanh"}


def named_classes(declared: Mapping[str, Any], where: Path) -> list[str]:
    """The classes of transformers that config.json names."""
    names = check_value(declared.get("architectures") or [], list, "architectures", where)
    return [check_value(name, str, "architectures", where) for name in names]


def label_names(declared: Mapping[str, Any], size: int, where: Path) -> tuple[str, ...]:
    """The names of the outputs in their order; by default transformers' LABEL_0, LABEL_1, ..."""
    if (by_id := declared.get("id2label")) is None:
        return tuple(f"LABEL_{i}" for i in range(size))
    by_id = check_value(by_id, dict, "id2label", where)
    # numbers, as those of stars, are the names that `unitk preprocess` makes of them
    named = {key: str(name) if type(name) is int else name for key, name in by_id.items()}
    names = tuple(named.get(str(i), "") for i in range(size))
    if len(by_id) != size or not all(isinstance(name, str) and name for name in names):
        raise CheckpointError(f"{where}: id2label must name the {size} outputs 0 to {size - 1}")
    if twins := [name for name in names if names.count(name) > 1]:
        raise CheckpointError(
            f"{where}: id2label must have a name for each output, but several are {twins[0]!r}"
        )
    return names


def head_settings(task: Task, config: ModelConfig, family: Family) -> dict[str, Any]:
    """The entries of config.json for the head of a fine-tuned model.

    Raises `UsageError` if no class of transformers computes the same.
    """
    ending = ending_of(family, task.head)
    name = family.name + ending
    check_head_layers(task, config, family, ending)
    pooling = task.head.partition("_")[2] or "slot"
    pools = {"slot"} if ending != TEXTS else {"slot", *family.poolings.values()}
    require(pooling in pools, f"--to hf: {name} reads one slot, not --task.pooling {pooling}")
    twice = getattr(task.config, "both_orders", False)
    require(not twice, f"--to hf: {name} reads a pair in one order, not --task.both-orders")
    entries: dict[str, Any] = {"architectures": [name]} | (SUMMARY if ending == DOUBLE else {})
    keys = {pooling: keys for keys, pooling in family.poolings.items()}
    if keys and ending in (TEXTS, CHOICES):
        entries[POOLING] = keys[pooling]
    if task.head in (*PROBLEMS, "tag"):  # the others have a fixed number of outputs
        labels = task.trained.labels or ("LABEL_0",)
        entries["id2label"] = dict(enumerate(labels))
        entries["label2id"] = {label: i for i, label in enumerate(labels)}
    if task.head in PROBLEMS:
        entries["problem_type"] = PROBLEMS[task.head]
    laid = {key: str(getattr(task.config, key)) for key in ("layout", "separators")}
    entries[KEPT] = laid | describe_training(task)
    return entries | decoder_start(task, name)


def check_head_layers(task: Task, config: ModelConfig, family: Family, ending: str) -> None:
    """Refuse layers before an output layer that a class of that name has not."""
    layers = head_layers(family, ending)
    if task.head not in (*PROBLEMS, "choice"):
        # over slots, the only layer before the map that a class has is a transform
        del layers["head_pooler"]
        if "transform" not in (config.head_dense, family.head_dense):
            del layers["head_dense"]
    for option, needed in layers.items():
        has = getattr(config, option)
        require(
            needed == has,
            f"--to hf: {family.name}{ending} needs {flag(f'arch.{option}')} {render(needed)}, but "
            f"this model has it {render(has)}",
        )


@register("measure", "head_layers")
def warn_of_layers(task: Task, parsed: Parsed) -> Iterator[str]:
    """Warn if transformers' class for a model has other layers before its task's output layer.

    By default, heads have BERT's."""
    arch = parsed.components["arch"]
    if parsed.settings.given("arch.head_pooler"):
        return
    with suppress(UsageError):  # the model itself fits no class
        family: Family = registry.get(MODEL_TYPE, kind_of(arch.config, arch.name, task.head))
        ending = ending_of(family, task.head)
        try:
            if ending in family.heads:
                check_head_layers(task, arch.config, family, ending)
        except UsageError as error:
            yield from (f"`unitk convert` {text}" for text in error.args)


def decoder_start(task: Task, name: str) -> dict[str, int]:
    """The entry of config.json for the symbol that a decoder's copy of a text begins with."""
    towers = task.lay_out_parts([np.zeros(2, np.int64)]).example.towers
    if "dec" not in towers:
        return {}
    first, *rest = towers["dec"].token.tolist()
    require(
        rest == towers["enc"].token[:-1].tolist(),
        f"--to hf: {name} needs --task.layout seq2seq:opening=both (BART) or seq2seq:opening=pad "
        f"(T5), got {task.config.layout}",
    )
    return {"decoder_start_token_id": first}
