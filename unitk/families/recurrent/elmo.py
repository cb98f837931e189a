"""ELMo's released weights: an hdf5 file and options.json, without the output layer.

Matrices are stored as [inputs, outputs]. The gates of a cell are input, value, forget, output.
bilm-tf adds 1 to the forget gate's bias when it computes.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unitk.errors import CheckpointError, UsageError
from unitk.families.recurrent.config import CHARACTERS
from unitk.formats.archive import find_file, read_json, reading
from unitk.formats.base import Assembled, Format
from unitk.formats.settings import check_value
from unitk.registry import register
from unitk.vocab.open import open_vocab

CELL = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell/"
DIRECTIONS = ("", "bwd.")
LONGEST = 1_000  # a word of more characters in options.json is damage
RATIO = 1_100  # bytes that a byte of a compressed file can hold, at most
GATES = ("W_carry", "b_carry", "W_transform", "b_transform")
HIGHWAY = ("gate.weight", "gate.bias", "transform.weight", "transform.bias")


def find(path: Path, vocab: Path | None) -> Assembled:
    """Read the weights as a model of task `bilm`.

    Its output layer has no trained rows, so it predicts no word before it is trained.
    """
    if vocab is None:
        raise UsageError("--vocab is needed: ELMo's files do not contain its words")
    if importlib.util.find_spec("h5py") is None:
        raise UsageError("--from elmo needs the package h5py: pip install 'unitk[elmo]'")
    file = find_file(path, ("*.hdf5", "*.h5"), "weights of ELMo")
    options = file.with_name(file.name.replace("weights.hdf5", "options.json"))
    if options == file:
        options = find_file(file.parent, ("options.json", "*options.json"), "options of ELMo")
    sizes = network_sizes(read_json(options), options)
    tensors = state_of(read_arrays(file, shapes_of(sizes)), sizes)
    lstm, cnn = sizes["lstm"], sizes["char_cnn"]
    options_of_run = {
        "task": "bilm",
        "task.characters": str(cnn["max_characters_per_token"]),
        "arch": "elmo",
        "arch.num_layers": str(lstm["n_layers"]),
        "arch.width": str(lstm["projection_dim"]),
        "arch.cell_width": str(lstm["dim"]),
        "arch.residual": "on" if lstm["use_skip_connections"] else "off",
        "arch.cell_clip": str(lstm["cell_clip"]),
        "arch.projection_clip": str(lstm["proj_clip"]),
        "arch.char_width": str(cnn["dim"]),
        "arch.char_filters": ",".join(f"{wide}:{count}" for wide, count in cnn["filters"]),
        "arch.highways": str(cnn["n_highway"]),
    }
    # the output layer has random weights, which must not be used
    return Assembled(file, options_of_run, open_vocab(vocab), rows=0, tensors=tensors)


def network_sizes(options: Mapping[str, Any], where: Path) -> dict[str, Any]:
    """The sizes of LSTM and convolutions in options.json, with their types checked."""

    def entry(inside: Mapping[str, Any], key: str, kind: type) -> Any:
        if key not in inside:
            raise CheckpointError(f"{where} does not hold the options of an ELMo: no {key!r}")
        return check_value(inside[key], kind, key, where)

    lstm, cnn = (entry(options, key, dict) for key in ("lstm", "char_cnn"))
    if cnn.get("activation") != "relu" or cnn.get("n_characters") not in (261, CHARACTERS):
        raise CheckpointError(f"{where}: unitk reads only relu over 261 or 262 characters")
    filters = entry(cnn, "filters", list)
    _check_filters(filters, where)
    numbers = {key: entry(lstm, key, int) for key in ("projection_dim", "dim", "n_layers")}
    clips = {key: lstm.get(key) for key in ("cell_clip", "proj_clip")}
    for key, value in clips.items():  # none is no bound
        clips[key] = 0 if value is None else check_value(value, float, key, where)
    skips = entry(lstm, "use_skip_connections", bool)
    sizes = {key: entry(cnn, key, int) for key in ("n_highway", "max_characters_per_token")}
    sizes["dim"] = entry(entry(cnn, "embedding", dict), "dim", int)
    for key, size in (numbers | sizes).items():
        if size < (key != "n_highway"):
            raise CheckpointError(f"{where}: {key} cannot be {size}")
    if sizes["max_characters_per_token"] > LONGEST:
        longest = sizes["max_characters_per_token"]
        raise CheckpointError(f"{where}: max_characters_per_token cannot be {longest}")
    return {
        "lstm": {**numbers, **clips, "use_skip_connections": skips},
        "char_cnn": {**sizes, "filters": filters},
    }


def _check_filters(filters: list[Any], where: Path) -> None:
    """Refuse filters of characters that are not pairs of a width and a count."""
    for entry in filters:
        pair = entry if isinstance(entry, list) and len(entry) == 2 else [None, None]
        if any(check_value(size, int, "filters", where) < 1 for size in pair):
            raise CheckpointError(f"{where}: filters must be [width, count], got {entry}")


def shapes_of(sizes: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The name and the shape of each array that a file with these options has."""
    lstm, cnn = sizes["lstm"], sizes["char_cnn"]
    width = lstm["projection_dim"]
    cells, dim = lstm["dim"], cnn["dim"]
    total = sum(count for _, count in cnn["filters"])
    yield "char_embed", (CHARACTERS - 1, dim)
    for number, (wide, count) in enumerate(cnn["filters"]):
        yield f"CNN/W_cnn_{number}", (1, wide, dim, count)
        yield f"CNN/b_cnn_{number}", (count,)
    for number in range(cnn["n_highway"]):
        for name in GATES:
            yield f"CNN_high_{number}/{name}", (total,) * (2 if name[0] == "W" else 1)
    yield "CNN_proj/W_proj", (total, width)
    yield "CNN_proj/b_proj", (width,)
    for way in range(len(DIRECTIONS)):
        for layer in range(lstm["n_layers"]):
            cell = CELL.format(way, layer)
            yield f"{cell}W_0", (2 * width, 4 * cells)
            yield f"{cell}B", (4 * cells,)
            yield f"{cell}W_P_0", (cells, width)


def read_arrays(file: Path, shapes: Iterator[tuple[str, tuple[int, ...]]]) -> dict[str, Tensor]:
    """The arrays of these names and shapes in an hdf5 file as fp32 tensors.

    Nothing is read that the file does not hold itself: no array of another file, and none whose
    size is only claimed.
    """
    import h5py

    arrays: dict[str, Tensor] = {}
    with reading(file), h5py.File(file) as opened:
        for name, shape in shapes:
            node: Any = opened
            for step in name.split("/"):
                group = isinstance(node, h5py.Group)
                link = node.get(step, getlink=True) if group and step in node else None
                if not isinstance(link, h5py.HardLink):
                    raise CheckpointError(f"{file} has no tensor {name!r}")
                node = node[step]
            if not isinstance(node, h5py.Dataset) or node.dtype.kind != "f":
                kind = node.dtype if isinstance(node, h5py.Dataset) else "a group"
                raise CheckpointError(f"{file}: {name} is {kind}, not an array of real numbers")
            if node.shape != shape:
                shape_text = "no shape" if node.shape is None else f"shape {list(node.shape)}"
                raise CheckpointError(
                    f"{file}: {name} has {shape_text}, but its options need {list(shape)}"
                )
            stored = 0 if node.is_virtual or node.external else node.id.get_storage_size()
            if node.nbytes > stored * (RATIO if node.chunks else 1):
                raise CheckpointError(f"{file} does not hold the {node.nbytes:,} bytes of {name}")
            arrays[name] = torch.from_numpy(node[()].astype("float32"))
    return arrays


def state_of(arrays: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> dict[str, Tensor]:
    """The file's tensors under unitk's names."""
    chars = arrays["char_embed"]
    # row 0 is that of no word
    tensors = {"embed.chars.weight": torch.cat([torch.zeros(1, chars.shape[1]), chars])}
    for number in range(len(sizes["char_cnn"]["filters"])):
        weight = arrays[f"CNN/W_cnn_{number}"][0]  # [width, characters, filters]
        tensors[f"embed.convolutions.{number}.weight"] = weight.permute(2, 1, 0)
        tensors[f"embed.convolutions.{number}.bias"] = arrays[f"CNN/b_cnn_{number}"]
    for number in range(sizes["char_cnn"]["n_highway"]):
        for leaf, gate in zip(HIGHWAY, GATES, strict=True):
            tensor = arrays[f"CNN_high_{number}/{gate}"]
            tensors[f"embed.highways.{number}.{leaf}"] = tensor.T if tensor.dim() > 1 else tensor
    tensors["embed.map.weight"] = arrays["CNN_proj/W_proj"].T
    tensors["embed.map.bias"] = arrays["CNN_proj/b_proj"]
    for way, prefix in enumerate(DIRECTIONS):
        for layer in range(sizes["lstm"]["n_layers"]):
            cell = {part: arrays[CELL.format(way, layer) + part] for part in ("W_0", "B", "W_P_0")}
            tensors |= _cell(f"{prefix}layers.{layer}.", cell)
    return tensors


def _cell(name: str, arrays: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one LSTM layer, whose input and output are as wide as its projection."""
    kernel, bias, projection = (arrays[part] for part in ("W_0", "B", "W_P_0"))
    width = kernel.shape[0] - projection.shape[1]  # rows of the input, above those of the output

    def reorder_gates(gates: Tensor) -> Tensor:
        """Reorder gates [4 C, ...] to unitk's order: input, forget, value, output."""
        enter, value, forget, leave = gates.chunk(4)
        return torch.cat([enter, forget, value, leave])

    enter, value, forget, leave = bias.chunk(4)
    return {
        f"{name}weight_ih": reorder_gates(kernel[:width].T),
        f"{name}weight_hh": reorder_gates(kernel[width:].T),
        f"{name}weight_hr": projection.T,
        f"{name}bias": torch.cat([enter, forget + 1, value, leave]),
    }


register("format", "elmo")(Format(about="ELMo: weights in hdf5 and options.json.", find=find))
