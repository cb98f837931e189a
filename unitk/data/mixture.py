"""Several tasks in one run: the same texts, laid out by a task that is picked for each example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from unitk.config import Component
from unitk.data.batching import Examples
from unitk.errors import UsageError, require
from unitk.slots import Example, Ids
from unitk.tasks.base import Task


def check_alike(tasks: dict[str, Task], kind: str) -> None:
    """Mixed tasks have the same cut and static draws; what differs is named."""
    if len(tasks) == 1:
        return
    cuts = {name: task.cut or "--blocks" for name, task in tasks.items()}
    _require_same("cut texts differently", cuts if kind == "text" else {})
    _require_same("repeat their draws differently", {n: t.copies for n, t in tasks.items()})


def _require_same(what: str, values: dict[str, Any]) -> None:
    each = ", ".join(f"{name}: {value}" for name, value in values.items())
    first = next(iter(values.values()), None)
    same = all(value == first for value in values.values())
    require(same, f"--task: mixed tasks {what} ({each})")


def mixed(parts: dict[str, Examples], tasks: dict[str, Component]) -> Examples:
    """Examples of several tasks; each ask is called TASK.ASK."""

    def bounds(epoch: int) -> Ids:
        return reduce(np.maximum, [part.bounds(epoch) for part in parts.values()])

    def shares(step: int, total: int | None) -> dict[str, float]:
        found = {name: float(task.share(step, total)) for name, task in tasks.items()}
        if min(found.values()) < 0 or not sum(found.values()):
            told = ", ".join(f"{name} {share:g}" for name, share in found.items())
            raise UsageError(f"--task: shares must be 0 or more, not all 0; step {step}: {told}")
        return {name: share / sum(found.values()) for name, share in found.items()}

    first = next(iter(parts.values()))
    named = {name: replace(one, draw=_named(name, one.draw)) for name, one in parts.items()}
    asks = {f"{n}.{ask}": w for n, part in parts.items() for ask, w in part.asks.items()}
    return replace(first, bounds=bounds, parts=named, shares=shares, asks=asks)


def _named(name: str, draw: Callable[..., Example]) -> Callable[..., Example]:
    def renamed(epoch: int, index: int, rng: np.random.Generator) -> Example:
        example = draw(epoch, index, rng)
        asks = [replace(ask, name=f"{name}.{ask.name}") for ask in example.asks]
        return replace(example, asks=asks)

    return renamed
