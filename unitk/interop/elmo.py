"""ELMo's released weights: an hdf5 file and options.json, without the output layer.

Matrices are stored as [inputs, outputs]. The gates of a cell are input, value, forget, output.
bilm-tf adds 1 to the forget gate's bias when it computes.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unitk.config import Given
from unitk.errors import CheckpointError, UsageError
from unitk.interop.convert import Parts, assembled
from unitk.models.stack import Model
from unitk.vocab.base import open_vocab

CELL = "RNN_{}/RNN/MultiRNNCell/Cell{}/LSTMCell/{}"
DIRECTIONS = ("", "bwd.")


def read(path: Path, vocab: Path | None, given: Sequence[Given] = ()) -> Parts:
    """Read the weights as a model of task `bilm`.

    Its output layer has no trained rows, so it predicts no word before it is trained.
    """
    if vocab is None:
        raise UsageError("--vocab is needed: ELMo's files do not contain its words")
    if importlib.util.find_spec("h5py") is None:
        raise UsageError("--from elmo needs the package h5py: pip install 'unitk[elmo]'")
    file = path if path.is_file() else next(iter(sorted(path.glob("*.hdf5"))), path)
    options = file.with_name(file.name.replace("weights.hdf5", "options.json"))
    try:
        settings = _settings(json.loads(options.read_text(encoding="utf-8")))
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{options} does not hold the options of an ELMo: {error}") from error
    # the output layer has random weights, which must not be used
    return assembled(
        file,
        settings,
        given,
        open_vocab(vocab),
        rows=0,
        state=lambda model: _state(_tensors(file), model, file),
    )


def _settings(options: dict[str, Any]) -> dict[str, str]:
    """The options of task and architecture that options.json gives."""
    lstm, cnn = options["lstm"], options["char_cnn"]
    if cnn["activation"] != "relu" or cnn["n_characters"] not in (261, 262):
        raise ValueError("only relu over 261 or 262 characters is supported")
    filters = ",".join(f"{wide}:{count}" for wide, count in cnn["filters"])
    return {
        "task": "bilm",
        "task.characters": str(cnn["max_characters_per_token"]),
        "arch": "elmo",
        "arch.num_layers": str(lstm["n_layers"]),
        "arch.width": str(lstm["projection_dim"]),
        "arch.cell_width": str(lstm["dim"]),
        "arch.residual": "on" if lstm["use_skip_connections"] else "off",
        "arch.cell_clip": str(lstm["cell_clip"]),
        "arch.projection_clip": str(lstm["proj_clip"]),
        "arch.char_width": str(cnn["embedding"]["dim"]),
        "arch.char_filters": filters,
        "arch.highways": str(cnn["n_highway"]),
    }


def _tensors(file: Path) -> dict[str, Tensor]:
    """All arrays of an hdf5 file as fp32 tensors, by their paths in the file."""
    import h5py

    tensors: dict[str, Tensor] = {}

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            tensors[name] = torch.from_numpy(item[()]).float()

    try:
        with h5py.File(file) as opened:
            opened.visititems(add)
    except OSError as error:
        raise CheckpointError(f"{file} cannot be read: {error}") from error
    return tensors


def _state(there: dict[str, Tensor], model: Model, file: Path) -> dict[str, Tensor]:
    """The file's tensors under unitk's names; `CheckpointError` if one is missing."""
    here: dict[str, Tensor] = {}
    try:
        # row 0 is that of no word
        chars = there["char_embed"]
        here["embed.chars.weight"] = torch.cat([torch.zeros(1, chars.shape[1]), chars])
        names = dict(model.decoder.embed.named_parameters())
        for number in range(sum(name.startswith("convolutions") for name in names) // 2):
            weight = there[f"CNN/W_cnn_{number}"][0]  # [width, characters, filters]
            here[f"embed.convolutions.{number}.weight"] = weight.permute(2, 1, 0)
            here[f"embed.convolutions.{number}.bias"] = there[f"CNN/b_cnn_{number}"]
        for number in range(sum(name.startswith("highways") for name in names) // 4):
            for ours, theirs in (("gate", "carry"), ("transform", "transform")):
                name = f"embed.highways.{number}.{ours}"
                here[f"{name}.weight"] = there[f"CNN_high_{number}/W_{theirs}"].T
                here[f"{name}.bias"] = there[f"CNN_high_{number}/b_{theirs}"]
        here["embed.map.weight"] = there["CNN_proj/W_proj"].T
        here["embed.map.bias"] = there["CNN_proj/b_proj"]
        for way, prefix in enumerate(DIRECTIONS):
            for layer in range(len(model.decoder.layers)):
                own = {part: there[CELL.format(way, layer, part)] for part in ("W_0", "B", "W_P_0")}
                here |= _cell(f"{prefix}layers.{layer}.", own)
    except KeyError as error:
        raise CheckpointError(f"{file} has no tensor {error}") from error
    return here


def _cell(name: str, there: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one LSTM layer, whose input and output are as wide as its projection."""
    kernel, bias, projection = (there[part] for part in ("W_0", "B", "W_P_0"))
    width = kernel.shape[0] - projection.shape[1]  # rows of the input, above those of the output

    def ordered(gates: Tensor) -> Tensor:
        """Reorder gates [4 C, ...] to unitk's order: input, forget, value, output."""
        enter, value, forget, leave = gates.chunk(4)
        return torch.cat([enter, forget, value, leave])

    enter, value, forget, leave = bias.chunk(4)
    return {
        f"{name}weight_ih": ordered(kernel[:width].T),
        f"{name}weight_hh": ordered(kernel[width:].T),
        f"{name}weight_hr": projection.T,
        f"{name}bias": torch.cat([enter, forget + 1, value, leave]),
    }
