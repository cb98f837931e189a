"""Read tensors and JSON from files of unknown origin, and write them.

A pickle can name any function, to be called when it is opened. Only tensors, plain values and
`argparse.Namespace` are read here. A pickle that names anything else is refused, and none of its
code runs. Every other problem with a file is a `CheckpointError` of one line.
"""

from __future__ import annotations

import argparse
import errno
import json
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy._core.multiarray import _reconstruct
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from unitk import foreign
from unitk.errors import CheckpointError
from unitk.files import create, open_plain

ALLOWED: list[Any] = [
    argparse.Namespace,
    # a Megatron checkpoint has the state of numpy's generator in it
    (_reconstruct, "numpy.core.multiarray._reconstruct"),
    (_reconstruct, "numpy._core.multiarray._reconstruct"),
    np.ndarray,
    np.dtype,
    type(np.dtype(np.uint32)),
]
"""What a pickle may name besides torch's own list of tensors and plain values; all harmless."""
POINTER = b"version https://git-lfs"
LARGEST = 10**7  # a larger number in a configuration is damage


def save_tensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file as transformers does. Raises `OSError` if the disk refuses."""
    try:
        save_file(tensors, create(path), {"format": "pt"})
    except SafetensorError as error:
        raise OSError(f"{path.name}: {error}") from error


def save_pickle(what: Any, path: Path) -> None:
    """Write a file as `torch.save` does. Raises `OSError` if the disk refuses."""
    try:
        with open_plain(path, "wb") as file:
            torch.save(what, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # torch hides the cause
            raise error.__context__ from error
        raise


def find_file(path: Path, names: tuple[str, ...], what: str) -> Path:
    """`path` itself if it is a file, else the first of `names` (or wildcards) in that folder.

    Raises `CheckpointError` if none or several files match; `what` names the file in it.
    """
    if path.is_file():
        return path
    for name in names:
        found = sorted(path.glob(name))
        if len(found) > 1:
            both = " or ".join(str(one) for one in found[:2])
            raise CheckpointError(f"{path} holds several checkpoints; give one, such as {both}")
        if found:
            return found[0]
    raise CheckpointError(f"{path} has no {what}: looked for {', '.join(names)}")


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors by name from a safetensors file, a pickle, or an index.json of several files."""
    if path.name.endswith(".index.json"):
        parts = read_json(path).get("weight_map")
        if not isinstance(parts, dict) or not all(_is_name(one) for one in parts.values()):
            raise CheckpointError(f"{path}: weight_map must name files in the same folder")
        found: dict[str, Tensor] = {}
        for name in sorted(set(parts.values())):
            found |= read_tensors(path.parent / name)
        return found
    if path.suffix == ".safetensors":
        with reading(path):
            return load_file(path)
    return tensors_of(read_pickle(path), path)


def read_pickle(path: Path) -> Any:
    """Read a file of `torch.save` that holds tensors and plain values only."""
    with reading(path), torch.serialization.safe_globals(ALLOWED), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about old ways of writing
        zipped = zipfile.is_zipfile(path)
        # torch does not look at the checksums of what it maps
        if zipped:
            with zipfile.ZipFile(path) as archive:
                if (bad := archive.testzip()) is not None:
                    raise CheckpointError(f"{path} is damaged: {bad} fails its checksum")
        # a mapped file cannot be read beyond its end, even if the sizes in it are wrong
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)


def tensors_of(found: Any, path: Path) -> dict[str, Tensor]:
    """Check that `found` is a dictionary of real tensors by name; otherwise `CheckpointError`."""
    if not isinstance(found, dict) or not found:
        raise CheckpointError(f"{path} holds no tensors by name")
    for name, value in found.items():
        if not isinstance(name, str) or not isinstance(value, Tensor) or value.is_sparse:
            raise CheckpointError(f"{path}: {name!r} is {type(value).__name__}, not a tensor")
        if value.is_complex() or value.is_quantized:
            raise CheckpointError(f"{path}: {name} is of {value.dtype}, not of real numbers")
    return dict(found)


def write_json(found: Mapping[str, Any], path: Path) -> None:
    """Write a JSON object as transformers does."""
    create(path, json.dumps(found, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; anything else in the file is a `CheckpointError`."""
    return foreign.read_json(path, CheckpointError)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every error that a library raises about a file into a `CheckpointError` of one line."""
    try:
        with path.open("rb") as file:
            if file.read(len(POINTER)) == POINTER:
                what = "is a pointer of Git LFS; `git lfs pull` fetches the file itself"
                raise CheckpointError(f"{path} {what}")
        yield
    except CheckpointError:
        raise
    except OSError as error:
        # a place that torch seeks before the beginning of what is left
        about = "it is damaged or incomplete" if error.errno == errno.EINVAL else error.strerror
        raise CheckpointError(f"{path}: {about or error}") from error
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}") from error
    # bytes that were altered make the libraries raise nearly anything
    except Exception as error:
        message = str(error)
        if named := re.search(r"GLOBAL (\S+)", message):
            raise CheckpointError(
                f"{path} is refused: its pickle names {named[1]}, which may run code when it is"
                " opened; only tensors and plain values are read"
            ) from error
        about = message.splitlines()[0][:120] if message else type(error).__name__
        if re.search("WeightsUnpickler|weights_only|PytorchStreamReader", message):
            about = "it is damaged or incomplete, or torch.save did not write it"
        raise CheckpointError(f"{path} cannot be read: {about}") from error


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and Path(value).name == value
