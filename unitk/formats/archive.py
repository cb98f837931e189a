"""Read tensors and JSON from files of unknown origin, and write them.

Of a pickle, only tensors and plain values are read, and none of its code runs (`pickles`). The
prefixes that wrappers of a model put before the names of its tensors are taken off. Every problem
with a file is a `CheckpointError` of one line.
"""

from __future__ import annotations

import errno
import json
import logging
import re
import warnings
import zipfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from unitk import foreign
from unitk.errors import CheckpointError
from unitk.files import create, open_plain
from unitk.formats.pickles import NODES, REAL, StandIn, stand_ins, to_plain

LARGEST = 10**7  # a larger number in a configuration is damage
WRAPPERS = r"(?<![^.])(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\."
PARALLEL = "module."
VALUES = re.compile(r"(^|/)data(\.pkl|/\d+)$")
"""What torch maps or unpickles of its archive."""
INNER = ("model", "module", "model_state_dict", "state_dict")
"""Where trainers put the tensors in a pickle that has more than these."""

log = logging.getLogger(__name__)


def write_safetensors(tensors: dict[str, Tensor], path: Path) -> None:
    """Write a safetensors file as transformers does. Raises `OSError` if the disk refuses."""
    try:
        save_file(tensors, create(path), {"format": "pt"})
    except SafetensorError as error:
        raise OSError(f"{path.name}: {error}") from error


def save_pickle(value: Any, path: Path) -> None:
    """Write a file as `torch.save` does. Raises `OSError` if the disk refuses."""
    try:
        with open_plain(path, "wb") as file:
            torch.save(value, file)
    except RuntimeError as error:
        if isinstance(error.__context__, OSError):  # torch hides the cause
            raise error.__context__ from error
        raise


OLD = "transformers 4 has scripts convert_*_original_tf_checkpoint_to_pytorch.py"
OTHERS = {
    "*.ckpt*.index": ("TensorFlow", OLD),
    "model.ckpt*.meta": ("TensorFlow", OLD),
    "params_shapes.json": ("GPT's first release", OLD),
    "tf_model.h5": ("TensorFlow", "transformers 4 reads it with from_tf=True"),
    "flax_model.msgpack": ("Flax", "transformers 4 reads it with from_flax=True"),
    "*.gguf": ("llama.cpp", "transformers reads it with gguf_file, and save_pretrained writes it"),
    "*.pdparams": ("Paddle", "the hub has ERNIE's for PyTorch (nghuyong/ernie-*)"),
    "params/word_embedding": ("Paddle", "the hub has ERNIE's for PyTorch (nghuyong/ernie-*)"),
}
"""File of another framework -> whose it is, and what makes weights of PyTorch of it."""
READERS = {
    "manifest.json": "unitk",
    "checkpoints/*/manifest.json": "unitk",
    "adapter_config.json": "peft",
    "checkpoint_best.pt": "fairseq",
    "checkpoint_last.pt": "fairseq",
    "mp_rank_00_model_states.pt": "glm",
    "mass.pt": "mass",
    "checkpoint-decoder-*": "optimus",
    "ernie_config.json": "thu_ernie",
    "discriminator/config.json": "electra_pair",
}
"""File of a folder -> the format that reads such a folder."""
ENDINGS = {".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".h5", ".hdf5", ".gguf"}
"""How the names of files of weights end."""
INDEX = re.compile(r"\.index(\.\w+)?\.json$")
"""How the name of an index of several files ends, that of a variant such as fp16 too."""


def find_file(path: Path, names: tuple[str, ...], kind: str) -> Path:
    """`path` itself if it is a file, else the first of `names` (or wildcards) in that folder.

    Raises `CheckpointError` if none or several files match; `kind` names the file in it.
    """
    if path.is_file():
        return path
    for name in names:
        matches = sorted(path.glob(name))
        if len(matches) > 1:
            examples = " or ".join(str(match) for match in matches[:2])
            raise CheckpointError(f"{path} holds several checkpoints; give one, such as {examples}")
        if matches:
            return matches[0]
    for name, (framework, cure) in OTHERS.items():
        if matches := sorted(path.glob(name)):
            raise CheckpointError(
                f"{path} has weights of {framework} ({matches[0].name}), not of PyTorch; {cure}"
            )
    for name, reader in READERS.items():
        if next(path.glob(name), None):
            raise CheckpointError(f"{path} has no {kind}, but --from {reader} reads such a folder")
    there = there_are(file.name for file in path.glob("*"))
    raise CheckpointError(
        f"{path} has no {kind}: looked for {', '.join(names)}{there and f'{there} (give its path)'}"
    )


def there_are(names: Iterable[str]) -> str:
    """`; there is ...` for those of a folder's files that are weights by their names."""
    found = [name for name in sorted(names) if Path(name).suffix in ENDINGS]
    verb = "is" if len(found) == 1 else "are"
    return f"; there {verb} {', '.join(found[:5])}" if found else ""


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read tensors by name from a safetensors file, a pickle, or an index.json of several files."""
    if not INDEX.search(path.name):
        return unwrap(_read_tensors(path), path)
    parts = read_json(path).get("weight_map")
    if not isinstance(parts, dict) or not all(_is_name(file) for file in parts.values()):
        raise CheckpointError(f"{path}: weight_map must name files in the same folder")
    tensors: dict[str, Tensor] = {}
    for name in sorted(set(parts.values())):
        tensors |= _read_tensors(path.parent / name)
    # a file may have fewer tensors than its index says
    if absent := sorted(parts.keys() - tensors.keys()):
        file = path.parent / parts[absent[0]]
        raise CheckpointError(f"{path}: weight_map names {absent[0]}, which {file} does not have")
    return unwrap(tensors, path)


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if path.suffix == ".safetensors":
        with reading(path):
            return load_file(path)
    stored = read_pickle(path)
    inner = [stored[key] for key in INNER if isinstance(stored, dict) and key in stored]
    whole = len(inner) == 1 and isinstance(inner[0], dict)
    return _check_tensors(inner[0] if whole else stored, path)


def read_pickle(path: Path) -> Any:
    """Read a file of `torch.save`: tensors and plain values, with stand-ins for other objects."""
    with reading(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about old ways of writing
        zipped = zipfile.is_zipfile(path)
        # torch does not look at the checksums of what it maps
        if zipped:
            with zipfile.ZipFile(path) as archive:
                # torch maps what is stored; what unpacks may also fill any memory
                values = [i for i in archive.infolist() if VALUES.search(i.filename)]
                if packed := [i.filename for i in values if i.compress_type]:
                    raise CheckpointError(
                        f"{path} is compressed ({packed[0]}), which torch.save never does: open it "
                        "with torch.load and save it again"
                    )
                if (bad := archive.testzip()) is not None:
                    raise CheckpointError(f"{path} is damaged: {bad} fails its checksum")
        others = stand_ins(path, zipped)
        with torch.serialization.safe_globals([*REAL, *others]):
            # a mapped file cannot be read beyond its end, even if the sizes in it are wrong
            value = torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
        return to_plain(value) if any(name.startswith(NODES) for _, name in others) else value


def tensors_of(value: Any, path: Path) -> dict[str, Tensor]:
    """Check that a value is a dictionary of real tensors by name; otherwise `CheckpointError`.

    Takes the prefixes of wrappers off the names.
    """
    return unwrap(_check_tensors(value, path), path)


def _check_tensors(value: Any, path: Path) -> dict[str, Tensor]:
    if isinstance(value, StandIn):
        raise CheckpointError(
            f"{path} holds an object of class {value.of}, not tensors: save its state_dict() "
            "instead"
        )
    if not isinstance(value, dict) or not value:
        raise CheckpointError(f"{path} holds no tensors by name")
    for name, entry in value.items():
        if not isinstance(name, str) or not isinstance(entry, Tensor) or entry.is_sparse:
            kind = entry.of if isinstance(entry, StandIn) else type(entry).__name__
            kind = "sparse" if isinstance(entry, Tensor) else f"{kind}, not a tensor"
            raise CheckpointError(f"{path}: {name!r} is {kind}")
        if entry.is_meta:
            raise CheckpointError(f"{path}: {name} has no values, as it was on the meta device")
        if entry.is_complex() or entry.is_quantized:
            raise CheckpointError(f"{path}: {name} is of {entry.dtype}, not of real numbers")
    return dict(value)


def unwrap(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Tensor]:
    """The tensors without the words that torch's wrappers of a model put into their names.

    torch.compile, FSDP and activation checkpointing put theirs before any part of a model. Data
    parallelism puts `module.` before all of them.
    """
    names = [re.sub(WRAPPERS, "", name) for name in tensors]
    while names and all(name.startswith(PARALLEL) for name in names):
        names = [name.removeprefix(PARALLEL) for name in names]
    if len(set(names)) < len(tensors):
        twice = next(name for number, name in enumerate(names) if name in names[:number])
        raise CheckpointError(
            f"{path} has two tensors {twice}, with and without a wrapper's prefix"
        )
    return dict(zip(names, tensors.values(), strict=True))


def without_prefix(
    tensors: Mapping[str, Tensor], roots: Collection[str], path: Path
) -> dict[str, Tensor]:
    """The tensors without prefixes that all names have, such as `model.`, and that are no root.

    `roots` are the first words of names that the system's own models have.
    """
    stripped = dict(tensors)
    while True:
        first = {name.partition(".")[0] for name in stripped}
        if len(first) != 1 or first & set(roots) or any("." not in name for name in stripped):
            return stripped
        log.info("%s: %s. is taken off all names", path, *first)
        stripped = {name.partition(".")[2]: tensor for name, tensor in stripped.items()}


def write_json(value: Mapping[str, Any], path: Path) -> None:
    """Write a JSON object as transformers does."""
    create(path, json.dumps(value, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object; anything else in the file is a `CheckpointError`."""
    return foreign.read_json(path, CheckpointError)


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn every error that a library raises about a file into a `CheckpointError` of one line."""
    try:
        foreign.require_file(path)
        yield
    except CheckpointError:
        raise
    except OSError as error:
        # a place that torch seeks before the beginning of what is left
        fault = "it is damaged or incomplete" if error.errno == errno.EINVAL else error.strerror
        raise CheckpointError(f"{path} cannot be read: {fault or error}") from error
    except SafetensorError as error:
        raise CheckpointError(f"{path} is not a safetensors file: {error}") from error
    # bytes that were altered make the libraries raise nearly anything
    except Exception as error:
        message = str(error)
        if named := re.search(r"GLOBAL (\S+)", message):
            raise CheckpointError(
                f"{path} is refused: its pickle names {named[1]}, which may run code when it is"
                " opened; only tensors, plain values and the names of classes are read"
            ) from error
        fault = message.splitlines()[0][:120] if message else type(error).__name__
        if re.search("WeightsUnpickler|weights_only|PytorchStreamReader", message):
            fault = "it is damaged or incomplete, or torch.save did not write it"
            # what torch calls a module in its old format, and a program
            whole = re.search("persistent_load of storage|TorchScript", message)
            fault = "it holds a module, not tensors: save its state_dict()" if whole else fault
        raise CheckpointError(f"{path} cannot be read: {fault}") from error


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and Path(value).name == value
