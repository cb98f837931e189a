"""Checkpoints that fairseq's trainer saved for a task of `unitk fairseq-plugin`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from unitk.data.corpus.folders import open_corpus
from unitk.formats.base import COMPONENTS, StoredModel
from unitk.formats.names import Layout
from unitk.options.config import NoOptions, resolve
from unitk.options.settings import Origin, gather_settings
from unitk.training.start import add_heads
from unitk.vocab.open import open_vocab

TASK, MODEL = "unitk_", "network."
"""Prefixes of the plug-in's tasks and of its tensors."""


def is_ours(cfg: Any) -> bool:
    """Whether a checkpoint was saved for a task of unitk in fairseq's trainer."""
    task = cfg.get("task") if isinstance(cfg, dict) else None
    return isinstance(task, dict) and str(task.get("_name")).startswith(TASK)


def read_ours(
    cfg: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path, vocab: Path | None
) -> StoredModel:
    """Read a model of `unitk fairseq-plugin`; its vocabulary is that of its data, or `vocab`.

    The names of labels, which the checkpoint lacks, come from its data.
    """
    origin = str(path)
    task = cfg["task"]
    options = [("task", task["_name"].removeprefix(TASK), origin)]
    if arch := dict(cfg.get("model") or {}).get("unitk_arch"):
        options.append(("arch", str(arch), origin))
    for word in str(task.get("unitk_options") or "").split():
        name, equals, text = word.partition("=")
        if name.partition(".")[0] in COMPONENTS:
            options.append((name.replace("-", "_"), text if equals else None, origin))
    recorded = gather_settings(options, Origin.CHECKPOINT)
    parsed = resolve(NoOptions, recorded, COMPONENTS)
    parts = parsed.components
    data = Path(str(task.get("data")))
    opened = open_vocab(vocab or data)
    objective = parts["task"].made_from(parts["task"].config, opened)
    if objective.predicts:
        labels = tuple(open_corpus(data / "train").manifest.get("labels", ()))
        objective = objective.with_trained(labels=labels)
        parts = add_heads(parsed, objective.heads).components
    return StoredModel(
        path,
        tensors,
        own_layout(tensors),
        (parts["arch"].name,),
        parts["arch"].config,
        parts["task"].name,
        opened,
        recorded.of("task").texts,
        labels=objective.trained.labels,
    )


def own_layout(tensors: Mapping[str, Tensor]) -> Layout:
    """The table of names of such a model: unitk's, after `MODEL`.

    Layers that share their weights are stored once.
    """
    # tensors of one memory are one weight under several names
    first_names: dict[int, str] = {}
    copies = {}
    for name, tensor in tensors.items():
        if (first := first_names.setdefault(tensor.data_ptr(), name)) != name:
            copies[name] = first
    # the first number in a name is the layer's
    kept = (re.sub(r"(?<=\.)\d+(?=\.)", "#", name, count=1) for name in tensors.keys() - copies)
    modules = {name.rpartition(".")[0] for name in kept}
    return Layout({name.removeprefix(MODEL): name for name in modules}, copies=copies)
