"""Models of unitk that fairseq's trainer saved, in its tasks of `unitk fairseq-plugin`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from unitk.config import Given, NoOptions, resolve
from unitk.interop.convert import KINDS, Found
from unitk.interop.names import Layout
from unitk.vocab.base import open_vocab

TASK, MODEL = "unitk_", "network."
"""How the names of its tasks and of its tensors begin."""


def is_ours(cfg: Any) -> bool:
    """Whether a checkpoint's settings are of a task of unitk."""
    task = cfg.get("task") if isinstance(cfg, dict) else None
    return isinstance(task, dict) and str(task.get("_name")).startswith(TASK)


def read_ours(
    cfg: Mapping[str, Any], tensors: Mapping[str, Tensor], path: Path, vocab: Path | None
) -> Found:
    """A model under its own names; its vocabulary is that of its data unless it is given."""
    origin, task = str(path), cfg["task"]
    given = [Given("task", task["_name"].removeprefix(TASK), origin)]
    if arch := dict(cfg.get("model") or {}).get("unitk_arch"):
        given.append(Given("arch", str(arch), origin))
    for word in str(task.get("unitk_options") or "").split():
        name, equals, text = word.partition("=")
        if name.partition(".")[0] in KINDS:
            given.append(Given(name.replace("-", "_"), text if equals else None, origin))
    parts = resolve(NoOptions, given, KINDS).components
    return Found(
        path,
        tensors,
        layout_of(tensors),
        (parts["arch"].name,),
        parts["arch"].config,
        parts["task"].name,
        open_vocab(vocab or Path(str(task.get("data")))),
        {one.key.removeprefix("task."): str(one.text) for one in given if "task." in one.key},
    )


def layout_of(tensors: Mapping[str, Tensor]) -> Layout:
    """Our names behind `MODEL`; layers that share their weights are stored once."""
    first: dict[int, str] = {}
    copies = {}
    for name, tensor in tensors.items():
        if (same := first.setdefault(tensor.data_ptr(), name)) != name:
            copies[name] = same
    kept = (re.sub(r"(?<=\.)\d+(?=\.)", "#", name, count=1) for name in tensors.keys() - copies)
    modules = {name.rpartition(".")[0] for name in kept}
    return Layout({name.removeprefix(MODEL): name for name in modules}, copies=copies)
