"""The mean of the weights of several checkpoints (as fairseq's `average_checkpoints`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from unitk.errors import CheckpointError
from unitk.files import copy, create, seal, sealed_files
from unitk.options.fields import flag
from unitk.training.saving.checkpoint import IMPORTED, check_finite
from unitk.training.saving.folder import OPTIMIZER, stored_files
from unitk.training.saving.snapshot import CARRY
from unitk.training.saving.state import read_state, recorded_options
from unitk.training.saving.weights import BASE, EMA, WEIGHTS, weights_of
from unitk.training.saving.weights import save_tensors as save

Read = Callable[[], Tensor]
"""Reads a tensor of a checkpoint."""


def average(checkpoints: Sequence[Path], folder: Path) -> None:
    """Fill an empty folder with a checkpoint whose weights are the mean of several checkpoints'.

    Everything else is copied from the last checkpoint, but no run can be resumed from it. Raises
    CheckpointError unless all have the same architecture, task and vocabulary.
    """
    states = [read_state(path) for path in checkpoints]
    for path, state in zip(checkpoints, states, strict=True):
        check_same_kind(checkpoints[0], states[0], path, state)
    more: dict[str, Any] = {"averaged": [str(path) for path in checkpoints]}
    untrained = all(IMPORTED in sealed_files(path) for path in checkpoints)
    rewrite(checkpoints[-1], folder, mean(checkpoints), more, untrained)


def rewrite(
    source: Path, folder: Path, tensors: dict[str, Tensor], more: dict[str, Any], untrained: bool
) -> None:
    """Fill an empty folder with a checkpoint of other weights, from which no run can be resumed.

    Everything else is copied from `source`; `more` is added to its state.json. With `untrained`,
    rows that an import added to the vocabulary stay without a probability.
    """
    save(tensors, folder / WEIGHTS)
    save({}, folder / OPTIMIZER)
    state = read_state(source) | {"optimizer": {}} | more
    if state.pop("base", None) is not None:  # an adapter was added to it
        del state["config"]["adapter"]
    text = json.dumps(state, indent=1, allow_nan=False, ensure_ascii=False)
    create(folder / "state.json", text)
    anew = {WEIGHTS, EMA, BASE, CARRY, OPTIMIZER, "state.json"}
    if not untrained:
        anew.add(IMPORTED)
    for name in stored_files(source):
        if name not in anew:
            (folder / name).parent.mkdir(exist_ok=True)
            copy(source / name, folder / name)
    seal(folder)


def check_same_kind(first: Path, state: dict[str, Any], path: Path, other: dict[str, Any]) -> None:
    """Raise CheckpointError unless two checkpoints have the same kind; dropout may differ."""
    fault = f"{path} cannot be averaged with {first}"
    for key, what in {"vocab": "vocabularies", "labels": "labels"}.items():
        if state.get(key) != other.get(key):
            raise CheckpointError(f"{fault}: their {what} differ")
    a, b = _kind(state), _kind(other)
    for key in [*a, *b]:
        if a.get(key) != b.get(key):
            here, there = b.get(key, "none"), a.get(key, "none")
            raise CheckpointError(f"{fault}: {flag(key)} is {here}, there {there}")


def _kind(state: dict[str, Any]) -> dict[str, str]:
    """The options that decide the meaning of weights: tasks, and architecture but dropout."""
    recorded = recorded_options(state)
    arch = recorded.of("arch").texts
    idle = ("dropout", "init_std", "scaled_init")  # change training alone, not what weights mean
    kept = {f"arch.{k}": v for k, v in arch.items() if not k.endswith(idle)}
    return {"task": " ".join(sorted(recorded.tasks()))} | kept


def mean(checkpoints: Sequence[Path]) -> dict[str, Tensor]:
    """The mean of each tensor, summed in float64. Integers count batches: the last ones are kept.

    Checkpoints that have moving averages (`--ema`) contribute these.
    """
    with ExitStack() as stack:
        files = [_open_weights(path, stack) for path in checkpoints]
        for path, tensors in zip(checkpoints, files, strict=True):
            if differing := tensors.keys() ^ files[0].keys():
                raise CheckpointError(f"{path} and {checkpoints[0]} differ in {min(differing)}")
        return {name: _mean(name, checkpoints, files) for name in sorted(files[0])}


def _open_weights(path: Path, stack: ExitStack) -> dict[str, Read]:
    """Open the weights of a checkpoint by name, so that one at a time is read if possible."""
    sealed = sealed_files(path)
    # the mean of an adapter's products is not the product of the means
    if WEIGHTS not in sealed or "base" in read_state(path):
        weights = weights_of(path, averages=True)
        return {name: partial(weights.__getitem__, name) for name in weights}
    readers = dict[str, Read]()
    # averages replace the weights, but statistics of batch normalization have none
    for file_name in (WEIGHTS, EMA):
        if file_name in sealed:
            file = stack.enter_context(safe_open(path / file_name, "pt"))
            readers |= {name: partial(file.get_tensor, name) for name in file.keys()}
    return readers


def _mean(name: str, checkpoints: Sequence[Path], files: Sequence[Mapping[str, Read]]) -> Tensor:
    """The mean of one tensor over checkpoints, in its own type."""
    parts = list[Tensor]()
    for path, own in zip(checkpoints, files, strict=True):
        parts.append(part := check_finite(own[name](), f"{path}: {name}"))
        if part.shape != parts[0].shape or part.dtype != parts[0].dtype:
            raise CheckpointError(f"{path} and {checkpoints[0]} differ in {name}")
    if not parts[0].is_floating_point():
        return parts[-1]
    total = torch.zeros(parts[0].shape, dtype=torch.float64)
    for part in parts:
        total += part
    return (total / len(parts)).to(parts[0].dtype)
