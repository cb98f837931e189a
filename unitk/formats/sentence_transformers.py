"""Folders of sentence-transformers: a model of transformers, then how its states become a vector.

    config.json  model.safetensors  tokenizer*.json    as `--to hf` writes them
    modules.json                                       the steps, each with a folder:
    1_WordWeights/  2_Pooling/  3_Normalize/           leave symbols out, pool, divide by the length

The vectors equal those of `unitk embed` with the same options. Only modules that come with the
package are named, so nothing runs code of the folder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from unitk import registry
from unitk.errors import UsageError, require
from unitk.files import create
from unitk.formats.archive import read_json, write_json, write_safetensors
from unitk.formats.base import Format
from unitk.formats.exported import as_target
from unitk.formats.hf.families import MODEL_TYPE, kind_of
from unitk.formats.hf.folder import write as write_folder
from unitk.registry import register
from unitk.training.saving.checkpoint import Loaded
from unitk.vocab.tokenizer_files import FAST, SETTINGS

Pool = Literal["auto", "mean", "first", "last"]
NAME = "sentence-transformers"
MODES = {"mean": "mean", "first": "cls", "last": "lasttoken"}
TRIED = "a"  # any text
LONGEST = 32_768  # tokens of a text, for models without a limit


def write(
    parts: Loaded,
    folder: Path,
    pool: Pool = "auto",
    specials: bool = False,
    normalize: bool = False,
) -> None:
    """Write a folder for `sentence_transformers.SentenceTransformer`, whose vectors are pooled so.

    Raises `UsageError` for a model that transformers does not compute, or reads otherwise.
    """
    if pool == "auto":
        pool = parts.task.pool
    idle = specials and pool != "mean"
    require(not idle, f"--specials has no effect with --pool {pool}")
    config = parts.model.config
    task = parts.task
    with as_target(NAME):
        kind = kind_of(config, parts.config.get("arch", ""), task.head)
        family = registry.get(MODEL_TYPE, kind)
        if family.task not in ("mlm", "lm") or config.towers != ("x",):
            raise UsageError(f"--to hf takes models of one tower, not a {kind} model")
        write_folder(parts, folder, embeds=True)
    _check_tokenizer(parts, folder)
    # the package sums states times weights, and divides by the sum of the weights
    steps: dict[str, dict[str, Any]] = {}
    if pool == "mean" and not specials:
        steps["WordWeights"] = _weights(parts)
    # the name that versions before 6 read, too
    steps["Pooling"] = {"word_embedding_dimension": config.width, "pooling_mode": MODES[pool]}
    if normalize:
        steps["Normalize"] = {}
    modules = [("", "Transformer")]
    for number, (name, settings) in enumerate(steps.items(), start=1):
        modules.append((f"{number}_{name}", name))
        _write_step(folder / f"{number}_{name}", settings)
    entries = [
        {"idx": i, "name": f"{i}", "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (path, name) in enumerate(modules)
    ]
    create(folder / "modules.json", json.dumps(entries, indent=1) + "\n")
    limits = {"max_seq_length": config.max_positions or LONGEST, "do_lower_case": False}
    write_json(limits, folder / "sentence_bert_config.json")
    write_json({"similarity_fn_name": "cosine"}, folder / "config_sentence_transformers.json")


def _write_step(folder: Path, settings: dict[str, Any]) -> None:
    """Write the folder of a step after the model, with the weights of words if it has some."""
    folder.mkdir()
    write_json(settings, folder / "config.json")
    if "word_weights" in settings:
        weights = [settings["word_weights"].get(piece, 1.0) for piece in settings["vocab"]]
        table = {"emb_layer.weight": torch.tensor(weights)[:, None]}
        write_safetensors(table, folder / "model.safetensors")


def _weights(parts: Loaded) -> dict[str, Any]:
    """The weight of each piece in a mean: 0 for special symbols."""
    vocab = parts.task.vocab
    rows = len(parts.tensors()["embed.tokens.weight"])
    pieces = vocab.pieces(range(min(rows, len(vocab))))
    silent = sorted(i for name, i in vocab.symbols.items() if name != "unk" and i < len(pieces))
    weights = dict.fromkeys((pieces[i] for i in silent), 0.0)
    return {"vocab": pieces, "word_weights": weights, "unknown_word_weight": 1.0}


def _check_tokenizer(parts: Loaded, folder: Path) -> None:
    """Refuse a tokenizer that adds other symbols than unitk reads; it is to pad after a text."""
    from tokenizers import Tokenizer

    task = parts.task
    file = folder / FAST
    require(file.is_file(), f"--to {NAME}: the vocabulary has no {FAST} in transformers")
    read = next(iter(task.to_embed([np.array(task.vocab.encode(TRIED))]).towers.values()))
    equal_tensors = Tokenizer.from_file(str(file)).encode(TRIED).ids == read.token.tolist()
    fault = f"--to {NAME}: its tokenizer adds other symbols to a text than task {task.name} reads"
    cure = f"; --task {parts.reader.name} takes another task of the model" if parts.reader else ""
    require(equal_tensors, fault + cure)
    # positions are counted from the first slot
    write_json({**read_json(folder / SETTINGS), "padding_side": "right"}, folder / SETTINGS)


USAGE = """\
```python
from sentence_transformers import SentenceTransformer

vectors = SentenceTransformer(".").encode(["A text.", "Another one."])
```
"""

register("format", NAME)(
    Format(
        about="sentence-transformers: models of one tower, as vectors of texts.",
        write=write,
        usage=lambda parts: USAGE,
        library=NAME,
        tag=lambda parts: "sentence-similarity",
        options=("pool", "specials", "normalize"),
    )
)
