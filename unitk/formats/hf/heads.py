"""Heads of transformers' fine-tuned models: classes, numbers, tags, spans and choices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from unitk.errors import CheckpointError, require
from unitk.formats.hf.families import CHOICES, CLASSES, DOUBLE, TEXTS, WORDS, Family, ending_of
from unitk.formats.settings import checked, refuse
from unitk.models.config import ModelConfig
from unitk.tasks.base import Task

SUMMARY = {
    "summary_type": "cls_index",
    "summary_use_proj": True,
    "summary_proj_to_labels": True,
    "summary_activation": None,
}
"""How transformers scores a choice: a linear map of one slot, as in GPT."""
PROBLEMS = {"class": "single_label_classification", "regress": "regression"}
"""Kind of head -> what transformers' config.json says of its loss."""
KEPT = "unitk"
"""The key in config.json of the task's options, which only unitk reads."""


@dataclass(frozen=True)
class Tuned:
    """The task that a checkpoint was trained for, its options, and its head if there is one."""

    task: str
    options: Mapping[str, str]  # of the task
    head: str = ""  # its kind, if it was fine-tuned with one
    labels: tuple[str, ...] = ()
    changes: dict[str, Any] = field(default_factory=dict)  # of the architecture


def tuned(
    family: Family, tensors: Mapping[str, Tensor], given: Mapping[str, Any], where: Path
) -> Tuned:
    """The task and head of a checkpoint, from `architectures` in config.json and its tensors."""
    named = named_classes(given, where) or [""]
    ending = named[0].removeprefix(family.name)
    if ending not in family.heads:
        if ending in CLASSES.values():
            raise CheckpointError(f"{where}: unitk has no model that reads texts as {named[0]}")
        return Tuned(family.task, family.options)
    pooler, out = family.heads[ending]
    matrix = tensors.get(f"{out}.weight")
    if matrix is None or matrix.dim() != 2:
        raise CheckpointError(f"{where}: {named[0]} needs a matrix {out}.weight")
    size, problem = len(matrix), given.get("problem_type")
    head = next(kind for kind in CLASSES if ending_of(family, kind) == ending)
    if ending == DOUBLE:
        refuse(given, SUMMARY, where)
    if ending == TEXTS:
        head = "regress" if size == 1 else "class"
        if problem not in (None, PROBLEMS[head]):
            what = f"{named[0]} with {size} outputs as {PROBLEMS[head]} only"
            raise CheckpointError(f"{where}: unitk reads {what}, got problem_type {problem!r}")
    labels = label_names(given, size, where) if head in ("class", "tag") else ()
    # transformers' GPT-2 adds no symbols to a text and reads it at its last word
    around = {"opening": "none", "delimiter": "off"} if family.task == "lm" else family.options
    layout = f"{family.task}:" + ",".join(f"{a}={b}" for a, b in around.items())
    options = {"layout": layout.rstrip(":"), "separators": str(family.separators)}
    if family.task == "lm" and ending != DOUBLE:
        options["lm_weight"] = "0"  # their loss is that of the head alone
    kept = checked(given.get(KEPT, {}), dict, KEPT, where)
    options |= {name: checked(kept[name], str, name, where) for name in options if name in kept}
    heads = (f"{head}:label:{size}" if labels else f"{head}:label",)
    task = "classify" if head == "class" else head  # the others have the name of their head
    return Tuned(task, options, head, labels, {"heads": heads, "head_pooler": bool(pooler)})


def named_classes(given: Mapping[str, Any], where: Path) -> list[str]:
    """The classes of transformers that config.json names."""
    found = checked(given.get("architectures") or [], list, "architectures", where)
    return [checked(one, str, "architectures", where) for one in found]


def label_names(given: Mapping[str, Any], size: int, where: Path) -> tuple[str, ...]:
    """The names of the outputs in their order; by default transformers' LABEL_0, LABEL_1, ..."""
    if (by_id := given.get("id2label")) is None:
        return tuple(f"LABEL_{i}" for i in range(size))
    by_id = checked(by_id, dict, "id2label", where)
    names = tuple(by_id.get(str(i)) for i in range(size))
    if len(by_id) != size or not all(isinstance(name, str) and name for name in names):
        raise CheckpointError(f"{where}: id2label must name the {size} outputs 0 to {size - 1}")
    return names


def head_settings(task: Task, config: ModelConfig, family: Family) -> dict[str, Any]:
    """The entries of config.json for the head of a fine-tuned model.

    Raises `UsageError` if no class of transformers computes the same.
    """
    ending = ending_of(family, task.head)
    name = family.name + ending
    pooler, _ = family.heads[ending]
    wanted, has = ("on" if pools else "off" for pools in (pooler, config.head_pooler))
    if ending in (TEXTS, CHOICES, DOUBLE):
        ours = f"--to hf: {name} needs --arch.head-pooler {wanted}, but this model has it {has}"
        require(wanted == has, ours)
    twice = getattr(task.config, "both_orders", False)
    require(not twice, f"--to hf: {name} reads a pair in one order, not --task.both-orders")
    about: dict[str, Any] = {"architectures": [name]} | (SUMMARY if ending == DOUBLE else {})
    if ending in (TEXTS, WORDS):  # the others have a fixed number of outputs
        labels = task.trained.labels or ("LABEL_0",)
        about["id2label"] = dict(enumerate(labels))
        about["label2id"] = {label: i for i, label in enumerate(labels)}
    if task.head in PROBLEMS:
        about["problem_type"] = PROBLEMS[task.head]
    about[KEPT] = {name: str(getattr(task.config, name)) for name in ("layout", "separators")}
    towers = task.encoded([np.zeros(2, np.int64)]).example.towers
    if "dec" in towers:
        first, *rest = towers["dec"].token.tolist()
        same = rest == towers["enc"].token[:-1].tolist()
        what = f"{name} needs --task.layout seq2seq:opening=both (BART) or seq2seq:opening=pad (T5)"
        require(same, f"--to hf: {what}, got {task.config.layout}")
        about["decoder_start_token_id"] = first
    return about
