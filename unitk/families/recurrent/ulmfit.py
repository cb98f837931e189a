"""ULMFiT's language models as fastai saves them: a .pth or .h5 file, and itos*.pkl with the words.

Howard and Ruder 2018, arXiv 1801.06146. The layers are those of torch's LSTM, whose two biases are
added up. The recurrent weights before dropout are called raw.
"""

from __future__ import annotations

import logging
import pickle
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unitk.errors import CheckpointError, require
from unitk.formats.archive import find_file, read_pickle, reading, tensors_of
from unitk.formats.base import TOKENS, Assembled, Format
from unitk.registry import register
from unitk.vocab.base import SYMBOLS, Vocab, adopt
from unitk.vocab.open import open_vocab
from unitk.vocab.words import WordVocab

SPELLED = {"xxunk": "unk", "_unk_": "unk", "xxpad": "pad", "_pad_": "pad", "xxbos": "cls"}
"""Symbols as fastai writes them since 1.0, or before it."""
LAYER = re.compile(r"rnns\.(\d+)\.(?:module\.)?(weight|bias)_(ih|hh)_l0(_raw)?")
COPIES = ("encoder_dp.emb.weight", "encoder_with_dropout.embed.weight")  # of the embedding

log = logging.getLogger(__name__)


def find(path: Path, vocab: Path | None) -> Assembled:
    """Read the weights as a model of task `lm`; backward, if bwd is in the name of the file.

    The words are those of `vocab` or of the itos*.pkl beside the file. Symbols without a row in the
    file get one whose logits are -inf.
    """
    file = find_file(path, ("*.pth", "*.h5"), "weights of fastai")
    words = _words(vocab, file)
    layers, others = _tensors(file)
    table = others["encoder.weight"]
    output = others.get("1.decoder.weight")
    bias = others.get("1.decoder.bias")
    tied = output is None or torch.equal(output, table)
    if output is None:
        log.warning("%s is an encoder: its embedding predicts words, without their biases", file)
    # words without [UNK] have it after all rows
    if not len(table) <= words.model.size <= len(table) + 1:
        raise CheckpointError(
            f"{file} has {len(table):,} rows, but the vocabulary has {words.model.size:,} words "
            "(--vocab names another one)"
        )
    options = {
        "task": "lm",
        "task.opening": "cls" if words.cls < len(table) else "none",
        "task.ends": "off",
        "task.backward": "on" if "bwd" in file.name else "off",
        "arch": "awd_lstm",
        "arch.num_layers": str(len(layers)),
        "arch.width": str(table.shape[1]),
        "arch.cell_width": str(layers[0]["weight_hh"].shape[1]),
        "arch.tied": "on" if tied else "off",
        "arch.output_bias": "off" if bias is None else "on",
    }
    state = {TOKENS: table}
    if output is not None and not tied:
        state["heads.lm.weight"] = output
    if bias is not None:
        state["heads.lm.bias"] = bias
    for number, layer in enumerate(layers):
        state[f"layers.{number}.weight_ih"] = layer["weight_ih"]
        state[f"layers.{number}.weight_hh"] = layer["weight_hh"]
        state[f"layers.{number}.bias"] = layer["bias_ih"] + layer["bias_hh"]
    return Assembled(file, options, words, rows=len(table), tensors=state)


def _words(vocab: Path | None, file: Path) -> Vocab:
    """The vocabulary at the path `vocab`, or else that of the itos*.pkl beside the file."""
    paths = [vocab] if vocab else sorted(file.parent.glob("itos*.pkl"))
    lack = "there is no itos*.pkl" if not paths else "there are several itos*.pkl"
    require(len(paths) == 1, f"--vocab is needed: {lack} beside {file}")
    [path] = paths
    if path.suffix != ".pkl":
        return open_vocab(path)
    with reading(path), path.open("rb") as opened:
        listed = Plain(opened).load()
    if not isinstance(listed, list) or not all(isinstance(word, str) for word in listed):
        raise CheckpointError(f"{path} is not a list of words")
    names = {word: SYMBOLS[name] for word, name in SPELLED.items()}
    # blanks end words: those of which fastai made words have no text here
    lines = (
        names.get(word, word) if word.split() == [word] else f"[row{index}]"
        for index, word in enumerate(listed)
    )
    return adopt(WordVocab("\n".join(lines).encode()))


class Plain(pickle.Unpickler):
    """Reads plain values only."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        raise pickle.UnpicklingError(f"GLOBAL {module_name}.{global_name}")


def _tensors(file: Path) -> tuple[list[dict[str, Tensor]], dict[str, Tensor]]:
    """The tensors of each layer, and the others, of a language model or of an encoder alone."""
    stored = read_pickle(file)
    stored = stored.get("model", stored) if isinstance(stored, dict) else stored
    layers: dict[int, dict[str, Tensor]] = {}
    rest: dict[str, Tensor] = {}
    for name, tensor in tensors_of(stored, file).items():
        name = name.removeprefix("0.")
        if tensor.dim() != (1 if "bias" in name else 2):
            raise CheckpointError(f"{file}: {name} has shape {list(tensor.shape)}")
        if match := LAYER.fullmatch(name):
            number, kind, side, raw = match.groups()
            layer = layers.setdefault(int(number), {})
            if raw or f"{kind}_{side}" not in layer:
                layer[f"{kind}_{side}"] = tensor.float()
        elif name not in COPIES:
            rest[name] = tensor.float()
    if unknown := rest.keys() - {"encoder.weight", "1.decoder.weight", "1.decoder.bias"}:
        raise CheckpointError(f"{file} is not of an AWD-LSTM: it has {min(unknown)}")
    whole = layers.keys() == set(range(len(layers))) and all(
        len(layer) == 4 for layer in layers.values()
    )
    if not layers or not whole or "encoder.weight" not in rest:
        raise CheckpointError(f"{file} does not have all tensors of an AWD-LSTM")
    return [layers[number] for number in sorted(layers)], rest


register("format", "ulmfit")(Format(about="ULMFiT: language models of fastai.", find=find))
