"""Snapshots of a run: taken while training goes on, written as a checkpoint, and restored.

`take_snapshot` copies weights, averages, the optimizers' state and what rows carry into host
memory; `write` puts them into a folder, in the files that checkpoint.py lists; `restore` is what
`--resume` reads.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unitk.errors import CheckpointError
from unitk.files import VERSION, create
from unitk.tasks.base import Task
from unitk.training.ema import Average
from unitk.training.parallel import Ranks
from unitk.training.saving import weights
from unitk.training.saving.checkpoint import check_finite, tensors_of
from unitk.training.saving.folder import OPTIMIZER, RunFolder, stored_files
from unitk.training.saving.state import SOURCE_VOCAB, Identity, Progress, read_state

CARRY = "carry.safetensors"


@dataclass(frozen=True)
class Snapshot:
    """Everything a checkpoint holds, in host memory; training may go on."""

    step: int
    files: dict[str, dict[str, Tensor]]  # tensors by file and name
    state: str
    task: Task
    base: weights.Base | None
    metadata: dict[str, dict[str, str]] = field(default_factory=dict)  # of files that are shards
    publish: Callable[[RunFolder, Snapshot], bool] | None = None
    """How a part of one is written; returns whether the checkpoint is there then."""


def take_snapshot(
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    progress: Progress,
    identity: Identity,
    task: Task,
    *,
    copy: Callable[[Tensor], Tensor],
    averages: dict[str, Tensor] | None = None,
    carry: dict[str, Tensor] | None = None,
    base: weights.Base | None = None,
) -> Snapshot:
    """Copy everything that a checkpoint holds; `copy` brings a tensor to host memory.

    `averages` are those of `--ema` or `--average-last`, `carry` what stateful rows carry on. The
    weights of a `base`, which an adapter adapts, are left out.
    """
    versions = {
        "unitk": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "threads": torch.get_num_threads(),
    }
    tensors: dict[str, Tensor] = {}
    numbers: dict[str, dict[str, Any]] = {}  # whatever of its state is no tensor
    for optimizer in optimizers:
        for name, parameter in _named_parameters(optimizer):
            for part, value in optimizer.state.get(parameter, {}).items():
                if isinstance(value, Tensor):
                    tensors[f"{name}/{part}"] = value
                else:
                    numbers.setdefault(name, {})[part] = value
    state = asdict(progress) | asdict(identity) | {"optimizer": numbers, "versions": versions}
    kept = base.tensors if base is not None else {}
    if base is not None:
        state["base"] = base.about
    trained = {name: tensor for name, tensor in tensors_of(model).items() if name not in kept}
    tables = {weights.WEIGHTS: trained, OPTIMIZER: tensors}
    if averages is not None:
        tables[weights.EMA] = averages
    files = {
        file: {name: copy(tensor) for name, tensor in table.items()}
        for file, table in tables.items()
    }
    if carry:
        files[CARRY] = carry
    text = json.dumps(state, indent=1, allow_nan=False, ensure_ascii=False)
    return Snapshot(progress.step, files, text, task, base)


def write(folder: Path, snapshot: Snapshot) -> None:
    """Write a snapshot into an existing folder. Raises OSError if the disk does."""
    for name, tensors in snapshot.files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        weights.save_tensors(tensors, folder / name, snapshot.metadata.get(name))
    if snapshot.base is not None:
        snapshot.base.write(folder)
    create(folder / "state.json", snapshot.state)
    write_files(folder, snapshot.task)


def write_files(folder: Path, task: Task) -> None:
    """Copy vocabularies and the task's files into a checkpoint."""
    task.vocab.save(folder / "vocab")
    if task.source_vocab is not task.vocab:
        task.source_vocab.save(folder / SOURCE_VOCAB)
    for name, text in task.files.items():
        create(folder / name, text)


def is_as_stored(model: nn.Module, folder: Path) -> bool:
    """Whether a checkpoint has exactly the tensors of a model, so that ranks can read their parts.

    Those of an adapter or of an older version may lack some, or have them in another shape.
    """
    stored_tensors = weights.open_tensors(folder / weights.WEIGHTS)
    stored_shapes = {name: kept.shape for name, kept in stored_tensors.items()}
    return stored_shapes == {name: tensor.shape for name, tensor in tensors_of(model).items()}


@torch.no_grad()
def read_parts(model: nn.Module, folder: Path, ranks: Ranks) -> None:
    """Read the weights of a checkpoint into a model that is divided among ranks, each its part."""
    stored = weights.open_tensors(folder / weights.WEIGHTS)
    for name, tensor in tensors_of(model).items():
        local, before = ranks.own_rows(tensor)
        rows = stored[name].read(before, len(local) if tensor.dim() else 0)
        local.copy_(check_finite(rows, f"{folder}: {name}"))


def restore(
    folder: Path,
    model: nn.Module,
    optimizers: Sequence[torch.optim.Optimizer],
    average: Average | None,
    ranks: Ranks,
) -> Progress:
    """Restore the optimizers' state and the moving averages of a checkpoint for `--resume`; returns
    the progress of the run."""
    state = read_state(folder)
    parameters = dict(model.named_parameters())
    if OPTIMIZER not in stored_files(folder):
        raise CheckpointError(
            f"--resume: {folder} was kept without the optimizer's state (--save-at-words); "
            "--init-from takes its weights"
        )
    by_name: dict[str, dict[str, Any]] = {
        name: dict(numbers) for name, numbers in state["optimizer"].items()
    }
    for key, stored_tensor in weights.open_tensors(folder / OPTIMIZER).items():
        name, _, part = key.rpartition("/")
        by_name.setdefault(name, {})[part] = read_as(parameters[name], stored_tensor, ranks)
    for optimizer in optimizers:
        names = [name for name, _ in _named_parameters(optimizer)]
        packed = {i: by_name[name] for i, name in enumerate(names) if name in by_name}
        groups = optimizer.state_dict()["param_groups"]  # today's options, the checkpoint's state
        optimizer.load_state_dict({"state": packed, "param_groups": groups})
    if average is not None and weights.EMA in stored_files(folder):
        average.restore(weights.load_tensors(folder / weights.EMA))
    return Progress.of(state)


def read_as(parameter: Tensor, kept: weights.KeptTensor, ranks: Ranks) -> Tensor:
    """A tensor of an optimizer, divided among ranks as its parameter is: each reads its part."""
    if kept.shape != parameter.shape or not parameter.dim():
        return kept.read()
    local, before = ranks.own_rows(parameter)
    rows = kept.read(before, len(local))
    tensor = torch.empty_like(parameter, dtype=rows.dtype, requires_grad=False)
    ranks.own_rows(tensor)[0].copy_(rows)
    return tensor


def _named_parameters(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, nn.Parameter]]:
    """The optimizer's parameters, in its order, with their names in the model."""
    for group in optimizer.param_groups:
        yield from zip(group["param_names"], group["params"], strict=True)


def load_carry(folder: Path | None, device: torch.device) -> dict[str, Tensor]:
    """The carried states of a resumed run's stateful rows."""
    if folder is None or CARRY not in stored_files(folder):
        return {}
    return {name: table.to(device) for name, table in weights.load_tensors(folder / CARRY).items()}
