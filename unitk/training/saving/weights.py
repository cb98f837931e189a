"""The weights of a checkpoint: its own, and those of its adapter's base.

    model.safetensors   all parameters and buffers; of a run with an adapter those that it trains
    ema.safetensors     the average of what is trained, which is used of the model
    base.safetensors    with an adapter: the weights of its base, which no update changes

The file of a base is a second name of one file for all checkpoints with that base, where the disk
can do that. A base that comes with unitk is named by its hash in state.json, and not stored.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from unitk import pretrained
from unitk.errors import CheckpointError
from unitk.files import MANIFEST, create, damage, link_or_copy
from unitk.foreign import read_json, require_file
from unitk.options.fields import parse_named
from unitk.training.saving.folder import SHARDED, stored_files
from unitk.training.saving.state import read_state

WEIGHTS, EMA, BASE = "model.safetensors", "ema.safetensors", "base.safetensors"
SHARDS, OFFSETS = "DCP_SHARDING_INFO", "saved_offsets"
"""Where torch.distributed.checkpoint says in a file of safetensors which parts it has."""


@dataclass(frozen=True)
class Base:
    """The weights to which an adapter is added, and which no update changes."""

    tensors: Mapping[str, Tensor]  # by name, in host memory
    about: Mapping[str, Any]
    """The entry of state.json: the "model" of unitk and the "sha256" of its weights, where it is
    one, and the tensors of the base's file that are "left_out"."""
    file: Path | None  # where they are stored, if they are

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], folder: Path | None) -> Base:
        """The base of a new run, whose weights come from a checkpoint, or from several (None)."""
        own = {name: tensor.detach().cpu() for name, tensor in tensors.items()}
        if folder is None or {EMA, BASE} & stored_files(folder) or "base" in read_state(folder):
            return cls(own, {}, None)
        stored = load_tensors(folder / WEIGHTS)
        alike = (name in stored and torch.equal(stored[name].float(), own[name]) for name in own)
        if not all(alike):
            return cls(own, {}, None)
        about: dict[str, Any] = {"left_out": sorted(stored.keys() - own.keys())}
        if folder.parent == pretrained.FOLDER:
            about |= {"model": folder.name, "sha256": _hash_of(folder)}
        return cls(own, about, folder / WEIGHTS)

    @classmethod
    def of_checkpoint(cls, folder: Path) -> Base:
        """The base of the checkpoint of a run with an adapter."""
        about = read_state(folder)["base"]
        file = folder / BASE
        if "model" in about:
            model_folder = pretrained.FOLDER / about["model"]
            file = model_folder / WEIGHTS
            if not file.exists() or _hash_of(model_folder) != about["sha256"]:
                what = f"{folder} is an adapter of the model {about['model']} of unitk"
                version = read_state(folder).get("versions", {}).get("unitk", "another version")
                raise CheckpointError(f"{what} {version}, which this version has not")
        elif BASE not in stored_files(folder):
            raise CheckpointError(f"{folder} has no {BASE} in its manifest")
        own = load_tensors(file)
        return cls({n: own[n] for n in own if n not in about.get("left_out", ())}, about, file)

    def write(self, folder: Path) -> None:
        """Store the base in a folder beside other checkpoints. Raises OSError if the disk does."""
        if "model" in self.about:
            return
        files = [self.file] if self.file else []
        for file in [*files, *sorted(folder.parent.glob(f"step-*/{BASE}"))]:
            # a file that is damaged must not look like a good one elsewhere
            if file.exists() and damage(file.parent, file.name.__eq__) is None:
                return link_or_copy(file, folder / BASE)
        save_tensors(dict(self.tensors), folder / BASE)


def _hash_of(folder: Path) -> str:
    """The SHA-256 of a checkpoint's weights, as its manifest has it."""
    return str(read_json(folder / MANIFEST, CheckpointError)["files"][WEIGHTS]["sha256"])


def weights_of(folder: Path, averages: bool, merged: bool = True) -> dict[str, Tensor]:
    """The weights of a checkpoint; with `averages`, their average if there is one.

    An adapter is added to its base, unless they are not to be `merged`.
    """
    averaged = averages and EMA in stored_files(folder)
    tensors = load_tensors(folder / WEIGHTS)
    # buffers, such as the statistics of batch normalization, have no average
    tensors |= load_tensors(folder / EMA) if averaged else {}
    state = read_state(folder)
    if "base" not in state:
        return tensors
    tensors |= Base.of_checkpoint(folder).tensors
    adapter = parse_named("adapter", state["config"].get("adapter", ""), f"{folder}: adapter")
    return adapter.merge(tensors) if merged else tensors


@dataclass(frozen=True)
class KeptTensor:
    """A tensor in a file, or in files that have neighbouring rows of it each."""

    name: str
    parts: Mapping[int, Any]
    """How many rows come before those of a file -> the file."""
    shape: torch.Size

    def read(self, first: int = 0, count: int | None = None) -> Tensor:
        """A copy of `count` rows from the `first` one on, or of all of them; no other is read."""
        if not self.shape:
            [part] = self.parts.values()
            return part.get_tensor(self.name).clone()
        last = self.shape[0] if count is None else first + count
        parts_read = [
            # rows beyond the end of a file are left out
            self.parts[at].get_slice(self.name)[max(first - at, 0) : max(last - at, 0)]
            for at in sorted(self.parts)
        ]
        return torch.cat(parts_read)


def open_tensors(path: Path) -> dict[str, KeptTensor]:
    """The tensors of a checkpoint's file, or of its shards, without reading them.

    Raises `CheckpointError` if it is missing or damaged.
    """
    folder = path.with_suffix(SHARDED)
    parts_of = dict[str, dict[int, Any]]()
    try:
        files = [path]
        if folder.is_dir():
            files = sorted(folder.glob("*.safetensors"))
        else:
            require_file(path)
        for file in files:
            opened: Any = safe_open(file, "pt")
            places = json.loads((opened.metadata() or {}).get(SHARDS, "{}"))
            for name in opened.keys():
                if folder.is_dir() and name not in places:
                    raise CheckpointError(f"{file} does not say which rows of {name} it has")
                begins: list[int] = places.get(name, {}).get(OFFSETS, [])
                parts_of.setdefault(name, {})[begins[0] if begins else 0] = opened
        return {name: _stored(name, parts) for name, parts in parts_of.items()}
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def _stored(name: str, parts: dict[int, Any]) -> KeptTensor:
    shapes = {first: part.get_slice(name).get_shape() for first, part in parts.items()}
    [*_, (last, shape)] = sorted(shapes.items())
    return KeptTensor(name, parts, torch.Size([last + shape[0], *shape[1:]] if shape else []))


def load_tensors(path: Path) -> dict[str, Tensor]:
    """Load the tensors of a checkpoint's file, or of its shards.

    Raises `CheckpointError` if it is missing or damaged.
    """
    try:
        if path.with_suffix(SHARDED).is_dir():
            return {name: stored_files.read() for name, stored_files in open_tensors(path).items()}
        require_file(path)
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error


def save_tensors(
    tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None
) -> None:
    """Write a file of tensors. Raises OSError if the disk does."""
    try:
        save_file(tensors, create(path), metadata)
    except SafetensorError as error:  # the library's name for a full disk
        why = re.sub(r".*I/O error: | \(os error \d+\)$", "", str(error))
        raise OSError(f"{path.name}: {why}") from error
