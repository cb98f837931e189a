"""A format, for docs/interop.md: the weights as numpy arrays, with options and vocabulary."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from unitk.files import create
from unitk.formats.archive import read_json, reading, write_json
from unitk.formats.base import Assembled, Format
from unitk.options.fields import render
from unitk.registry import register
from unitk.training.saving.checkpoint import Loaded
from unitk.vocab.open import open_vocab

ARRAYS, OPTIONS, VOCAB = "weights.npz", "options.json", "vocab"


def find(path: Path, vocab: Path | None) -> Assembled:
    """What a folder holds; `vocab` is another vocabulary than its own, if one is given."""
    file = path / ARRAYS
    with reading(file), np.load(file) as arrays:
        tensors = {name: torch.from_numpy(arrays[name]) for name in arrays.files}
    rows = len(tensors["embed.tokens.weight"])
    return Assembled(
        file, read_json(path / OPTIONS), open_vocab(vocab or path / VOCAB), rows, tensors
    )


def write(loaded: Loaded, folder: Path) -> None:
    """Write the weights under unitk's names into an empty folder."""
    arrays = {name: tensor.cpu().numpy() for name, tensor in loaded.tensors().items()}
    np.savez(create(folder / ARRAYS), **arrays)
    task = loaded.task
    options = {key: text for key, text in loaded.config.items() if key.startswith("arch")}
    options |= {f"task.{name}": render(value) for name, value in vars(task.config).items()}
    write_json(options | {"task": task.name}, folder / OPTIONS)
    loaded.vocab.save(folder / VOCAB)


register("format", "npz")(Format(about="numpy: weights.npz.", find=find, write=write))
