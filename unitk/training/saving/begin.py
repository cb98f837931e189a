"""What parts of a model begin as: towers of other checkpoints, and tables that a task brings."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unitk.errors import CheckpointError, require
from unitk.models.model import Model
from unitk.training.saving.checkpoint import POSITIONS, tensors_of, weights_of

log = logging.getLogger(__name__)

SHARED = ("embed.tokens.weight", "embed.virtual.weight")
"""What an encoder may share with its decoder."""


def begin(model: Model, tables: Mapping[str, Any], towers: Mapping[str, Path]) -> None:
    """Copy the tables of a task, and weights of checkpoints for single towers, into a model."""
    fill_tables(model, tables)
    for tower, folder in towers.items():
        load_tower(model, tower, folder)


def fill_tables(model: Model, tables: Mapping[str, Any]) -> None:
    """Copy the tables that a task brings, arrays by the names of tensors, into a model."""
    for name, rows in tables.items():
        tensor = model.get_parameter(name)
        wide, own = rows.shape[1], tensor.shape[1]
        fault = f"--task.entities: vectors of {wide} numbers need --arch.entity-width {wide}"
        require(rows.shape == tensor.shape, f"{fault}, got {own}")
        with torch.no_grad():
            tensor.copy_(torch.from_numpy(rows))


def load_tower(model: Model, tower: str, folder: Path) -> None:
    """Copy a checkpoint's weights into the encoder and its pooler, or into the decoder.

    If the checkpoint has two towers, the one with the same name is used. What connects a decoder to
    its encoder may be initialised anew. This is logged, and so is everything that has no place
    here.
    """
    both = weights_of(folder, averages=True), tensors_of(model)
    there, here = (_tower(tensors, tower, model.between) for tensors in both)
    name = f"--init-{tower} {folder}"
    new = [one for one in here if one not in there]
    for one in new:
        between = one.partition(".")[0] in model.between
        if not between and not re.match(r"layers\.\d+\.cross_", one):
            raise CheckpointError(f"{name} has no tensor {one}")
    left = [one for one in there if one not in here]
    for what, names in (("initialised", new), ("left out", left)):
        if names:
            short = dict.fromkeys(re.sub(r"(?<=^layers)\.\d+|\.\w+$", "", one) for one in names)
            log.info("%s: %s: %s", name, what, ", ".join(short))
    stack = model.reader if tower == "encoder" else model.decoder
    for one, tensor in here.items():
        if one in there:
            found = there[one]
            if one == f"embed{POSITIONS}":
                found = stack.embed.resized(one, found)
            if found.shape != tensor.shape:
                a, b = list(found.shape), list(tensor.shape)
                raise CheckpointError(f"{name}: {one} has shape {a}, here it is {b}")
            with torch.no_grad():
                tensor.copy_(found)


def _tower(tensors: dict[str, Tensor], tower: str, between: Mapping[str, str]) -> dict[str, Tensor]:
    """The tensors of a tower under their names within it, or all tensors of a single tower.

    The parts `between` the towers are included.
    """
    inner = {name for name in tensors if name.startswith("encoder.")}  # two towers
    if tower == "decoder":
        own = {name for name in tensors if between.get(name.partition(".")[0], tower) == tower}
        return {name: tensors[name] for name in tensors if name in own - inner}
    if inner:
        shared = {name: tensors[name] for name in SHARED if name in tensors}
        part = {name.removeprefix("encoder."): tensors[name] for name in inner}
        pool = {n: t for n, t in tensors.items() if between.get(n.partition(".")[0]) == tower}
        return (part if "embed.tokens.weight" in part else shared | part) | pool
    # BERT's pooler is the hidden layer of its sentence head
    pools = [part for part, comes_with in between.items() if comes_with == tower]
    pooler = re.compile(r"^heads\.class:\w+\.dense")
    return {pooler.sub(pools[0], name) if pools else name: t for name, t in tensors.items()}
