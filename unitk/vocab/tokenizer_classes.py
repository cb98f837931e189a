"""Tokenizer classes of transformers 5, and the pieces that each makes a tokenizer of.

A class has its own normalizer and pre-tokenizer, also where a tokenizer.json has others. The
classes are in formats/hf/vocabularies/, registered under their names.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from unitk import registry
from unitk.errors import DataError
from unitk.foreign import require_file
from unitk.vocab.subwords import SentencePiece, fields
from unitk.vocab.untrusted import failures, kind_of

KIND = "tokenizer"  # under which classes are registered
CONTROL, USER = 3, 4  # types of sentencepiece's pieces
Flag = Callable[[str, bool | None], Any]
"""Reads a setting of tokenizer_config.json that is true or false, given its default."""


@dataclass(frozen=True, kw_only=True)
class Pieces:
    """The pieces of a tokenizer's model, from whichever file has them."""

    ids: Mapping[str, int]
    scores: tuple[float, ...] = ()  # unigram
    unk: int | None = None
    has_bytes: bool = False
    merges: tuple[tuple[str, str], ...] = ()  # BPE
    charsmap: bytes = b""
    """sentencepiece's table of characters."""
    symbols: Mapping[str, bool] = field(default_factory=dict)
    """Pieces of a sentencepiece model that are found in a text first -> whether special."""


def pieces_of_spec(spec: Mapping[str, Any]) -> Pieces:
    """The pieces of a tokenizer.json that has been checked."""
    model = spec["model"]
    if isinstance(model["vocab"], dict):
        merges = model.get("merges") or []
        pairs = [merge.split(" ", 1) if isinstance(merge, str) else merge for merge in merges]
        return Pieces(ids=model["vocab"], merges=tuple((a, b) for a, b in pairs))
    table = b""
    steps = [spec.get("normalizer") or {}]
    for step in steps:
        steps += step.get("normalizers", [])
        if step.get("type") == "Precompiled":
            table = table or base64.b64decode(step["precompiled_charsmap"])
    return Pieces(
        ids={piece: index for index, (piece, _) in enumerate(model["vocab"])},
        scores=tuple(float(score) for _, score in model["vocab"]),
        unk=model.get("unk_id"),
        has_bytes=bool(model.get("byte_fallback")),
        charsmap=table,
    )


def pieces_of_file(file: Path) -> Pieces:
    """The pieces of vocab.txt, of merges.txt with vocab.json, or of a sentencepiece model."""
    from tokenizers import models

    require_file(file)
    if file.suffix == ".model":
        return _sentencepiece(file.read_bytes())
    if file.name == "merges.txt":
        require_file(file.with_name("vocab.json"))
        with failures("and vocab.json are no BPE"):
            ids, merges = models.BPE.read_file(str(file.with_name("vocab.json")), str(file))
        return Pieces(ids=ids, merges=tuple(merges))
    file.read_text(encoding="utf-8")  # the library says nothing of the file
    with failures("is no list of pieces"):
        return Pieces(ids=models.WordPiece.read_file(str(file)))


def _sentencepiece(data: bytes) -> Pieces:
    model = SentencePiece(data)
    messages: dict[int, list[dict[int, Any]]] = {1: [], 2: [], 3: []}
    for number, message in fields(data):
        if number in messages:
            messages[number].append(dict(fields(message)))
    trainer = messages[2][0] if messages[2] else {}
    kinds = {message.get(1, b"").decode(): int(message.get(3, 1)) for message in messages[1]}
    return Pieces(
        ids={model.piece(index): index for index in range(model.size)},
        # TrainerSpec.model_type: 1 is unigram, the default
        scores=tuple(
            struct.unpack("<f", message.get(2, bytes(4)))[0]
            for message in messages[1]
            if trainer.get(3, 1) == 1
        ),
        unk=model.unk,
        has_bytes=bool(trainer.get(35)),
        charsmap=messages[3][0].get(2, b"") if messages[3] else b"",
        symbols={
            piece: kind == CONTROL for piece, kind in kinds.items() if kind in (CONTROL, USER)
        },
    )


@dataclass(frozen=True, kw_only=True)
class TokenizerClass:
    """A tokenizer class: how it uses pieces, the file that has them, and its symbols."""

    about: str = ""  # for `unitk list tokenizer`
    slow: str  # pattern of its file beside tokenizer.json
    model: str
    build: Callable[[Pieces, Flag, str], Any]
    """Makes a tokenizer of pieces; the last argument is the unknown token."""
    roles: Mapping[str, str]
    extra: tuple[str, ...] = ()
    """Special tokens without a role, unless a file names others."""
    arrange: Callable[[Pieces, Mapping[str, str]], Pieces] = lambda pieces, roles: pieces
    """Makes the pieces of its file those of the model; `roles` are the tokens of the folder."""


def find_class(name: str) -> TokenizerClass | None:
    """The tokenizer class of this name; None if unitk knows none."""
    if not registry.has(KIND, name):
        return None
    tokenizer_class: TokenizerClass = registry.get(KIND, name)
    return tokenizer_class


def check_model(name: str, spec: Mapping[str, Any]) -> None:
    """Refuse a tokenizer.json whose model is not that of its class."""
    needed = registry.get(KIND, name).model
    kind = kind_of(spec["model"])
    if kind != needed:
        raise DataError(
            f"has model.type {kind}, but {name} needs {needed} "
            "(tokenizer_class PreTrainedTokenizerFast takes it as it is)"
        )
