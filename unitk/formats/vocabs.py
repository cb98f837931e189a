"""Vocabularies of other systems: find, compare and write them, fit them to a checkpoint's rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unitk import registry
from unitk.errors import DataError
from unitk.files import create
from unitk.formats.hf.vocabularies import byt5
from unitk.vocab.base import SYMBOLS, Vocab
from unitk.vocab.open import is_released, open_vocab
from unitk.vocab.subwords import SentencePiece
from unitk.vocab.tokenizer_files import ADDED, MAP, SETTINGS
from unitk.vocab.tokenizer_json import SPLITS, Tokenizers
from unitk.vocab.untrusted import load_tokenizer

FILES = ("sentencepiece.model", "tokenizer.json", "vocab.json", "vocab.txt", "*.model")
"""Files of a tokenizer in a checkpoint's folder, the preferred one first."""
EXTRA = 100  # sentinels of T5
ABOUT = (SETTINGS, MAP, ADDED)
"""Files of transformers that describe a tokenizer."""


def vocab_beside(path: Path, chosen: Path | None = None, described: bool = True) -> Vocab | None:
    """Open the vocabulary `chosen`, else the one in a checkpoint's folder; None without either.

    Where files describe a tokenizer as transformers does, all of them together say what it is,
    unless `described` is off.
    """
    folder = path if path.is_dir() else path.parent
    if chosen:
        return open_vocab(chosen)
    if described and is_released(folder) and any((folder / name).is_file() for name in ABOUT):
        return open_vocab(folder)
    for name in FILES:
        paths = sorted(folder.glob(name))
        if len(paths) == 1:
            return open_vocab(paths[0])
    # some kinds have no file of pieces
    opens = any(registry.get("vocab", name).opens(folder) for name in registry.names("vocab"))
    return open_vocab(folder) if opens else None


@registry.register("measure", "same_vocab")
def same_vocab(one: Vocab, other: Vocab) -> bool:
    """Whether two vocabularies have the same ids for any text, and the same symbols.

    Files may say so in other words, as a tokenizer.json does that transformers has saved again.
    """
    return one.hash == other.hash or _meaning(one) == _meaning(other)


def _meaning(vocab: Vocab) -> Any:
    """All that ids of texts, and texts of ids, depend on."""
    model = vocab.model
    if not isinstance(model, Tokenizers):
        return vocab.hash
    spec = json.loads(model.data)
    plain = {*vocab.symbols.values(), *(model.special if spec.pop(SPLITS, False) else ())}
    spec = json.loads(load_tokenizer(json.dumps(spec)).to_str())  # with all settings
    spec["added_tokens"] = [one for one in spec["added_tokens"] if one["id"] not in plain]
    for unused in ("truncation", "padding", "post_processor"):
        del spec[unused]
    spec["model"].pop("dropout", None)
    return spec, vocab.symbols, vocab.pieces(range(len(vocab) - vocab.further))


def fit_vocab(
    vocab: Vocab,
    rows: int,
    symbols: Mapping[str, int] | None = None,
    names: Mapping[int, str] | None = None,
) -> Vocab:
    """Give a vocabulary the symbols and ids of an embedding with `rows` rows.

    Rows without a piece become the symbols that the vocabulary lacks, in the order of `SYMBOLS`;
    rows left over get names of their own, or those in `names`. Symbols without a row get ids after
    all rows. `symbols` are the ids that the checkpoint's system fixes. Raises `DataError` if two
    symbols have one id, or if the rows are too few.
    """
    kept = names if names and max(names) < rows else {}
    if rows == len(vocab) and not symbols:
        return vocab
    pieces = vocab.model.size
    symbols_of_pieces = {name: index for name, index in vocab.symbols.items() if index < pieces}
    if rows < pieces and set(range(rows, pieces)) - set(symbols_of_pieces.values()):
        raise DataError(
            f"the vocabulary has {pieces:,} pieces, but the checkpoint has {rows:,} rows: it was "
            "trained with another vocabulary"
        )
    fixed = symbols_of_pieces | dict(symbols or {})
    name_of = _names_by_id(fixed, rows, max(rows, pieces) + len(SYMBOLS))
    size = max(rows, pieces, *(index + 1 for index in name_of))
    # rows without a piece become the missing symbols in their order; further symbols come last
    missing = [name for name in SYMBOLS if name not in fixed]
    places = [index for index in range(pieces, size) if index not in name_of and index not in kept]
    places += range(size, size + len(missing))
    name_of.update(zip(places, missing, strict=False))
    spelled = [
        SYMBOLS[name_of[index]] if index in name_of else kept.get(index, f"[row {index}]")
        for index in range(pieces, max(size, *(index + 1 for index in name_of)))
    ]
    id_of = {name: index for index, name in name_of.items()}
    return Vocab(vocab.model, {name: id_of[name] for name in SYMBOLS}, spelled)


def _names_by_id(ids: Mapping[str, int], rows: int, limit: int) -> dict[int, str]:
    """The symbols by their ids, which are below `limit`; DataError if two have the same one."""
    names: dict[int, str] = {}
    for name, index in ids.items():
        if index in names:
            raise DataError(f"symbols {names[index]} and {name} have the same id {index}")
        if not 0 <= index < limit:
            raise DataError(f"symbol {name} has id {index}, but the checkpoint has {rows:,} rows")
        names[index] = name
    return names


def extra_ids(vocab: Vocab) -> dict[int, str]:
    """T5's sentinels by id; they follow the sentencepiece model's pieces, the last one first.

    Those of ByT5 follow the bytes, the first one first.
    """
    if isinstance(vocab.model, byt5.Bytes):
        return byt5.sentinels()
    if not isinstance(vocab.model, SentencePiece):
        return {}
    return {vocab.model.size + EXTRA - 1 - i: f"<extra_id_{i}>" for i in range(EXTRA)}


def write_vocab(vocab: Vocab, folder: Path, rows: int, *, plain: bool = False) -> None:
    """Write a tokenizer's files; `plain`: vocab.txt instead of tokenizer.json for a WordPiece."""
    model = vocab.model
    if isinstance(model, SentencePiece):
        create(folder / "spiece.model", model.data)
        return
    if not isinstance(model, Tokenizers):
        vocab.save(folder / "vocab")
        return
    pieces = vocab.pieces(range(min(rows, len(vocab))))
    spec = json.loads(model.data)
    if plain and spec["model"].get("type") == "WordPiece":
        text = "".join(f"{piece}\n" for piece in pieces)
        create(folder / "vocab.txt", text)
        return
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    added_ids = range(model.size, len(pieces))
    added = [{"id": i, "content": pieces[i], **flags, "special": True} for i in added_ids]
    spec["added_tokens"] = [*(spec.get("added_tokens") or []), *added]
    text = json.dumps(spec, ensure_ascii=False) if added else model.data.decode()
    create(folder / "tokenizer.json", text)
