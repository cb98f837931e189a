"""Marian's vocabulary: two sentencepiece models cut texts, and vocab.json numbers their pieces.

OPUS-MT's models have source.spm for the language that they read and target.spm for the one that
they write; the numbers are the same for both (Tiedemann and Thottingal 2020, OPUS-MT).
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unitk.errors import DataError
from unitk.files import create
from unitk.foreign import parse_json
from unitk.registry import register
from unitk.vocab.subwords import Offsets, Packed, VocabModel, pack_ids
from unitk.vocab.tokenizer_files import SETTINGS

SOURCE, TARGET, NUMBERS = "source.spm", "target.spm", "vocab.json"
SYMBOLS = ("<pad>", "</s>", "<unk>")
MOST = 10_000_000
"""More ids than any vocabulary has."""


@register("vocab", "marian")
class Marian(VocabModel):
    """Pieces of source.spm, with the numbers of vocab.json; a text may begin with >>LANGUAGE<<."""

    kind = "marian"
    file = "marian.json"

    def __init__(self, data: bytes) -> None:
        import sentencepiece

        super().__init__(data)
        content = parse_json(data, "is no vocabulary of Marian")
        ids = content.get("ids") if isinstance(content, dict) else None
        if not isinstance(ids, dict) or not {*SYMBOLS[1:]} <= ids.keys():
            raise DataError(f"needs an object {NUMBERS} with {' and '.join(SYMBOLS[1:])}")
        for piece, index in ids.items():
            if type(index) is not int or not 0 <= index < MOST:
                raise DataError(f"{NUMBERS}: {piece!r} must have an id below {MOST:,}: {index!r}")
        try:
            self.models = {name: base64.b64decode(content[name]) for name in (SOURCE, TARGET)}
        except (KeyError, TypeError, binascii.Error) as error:
            raise DataError(f"needs {SOURCE} and {TARGET}") from error
        self._ids: Mapping[str, int] = ids
        self._pieces = {index: piece for piece, index in ids.items()}
        # of two pieces with one number only one could be written
        if len(self._pieces) < len(ids):
            raise DataError(f"{NUMBERS} has two pieces of one id")
        self._source = sentencepiece.SentencePieceProcessor()
        try:
            self._source.LoadFromSerializedProto(self.models[SOURCE])
        except RuntimeError as error:
            raise DataError(f"needs a sentencepiece model as {SOURCE}") from error
        # numbers may have gaps, so that there are more ids than pieces
        self.size = max(self._pieces) + 1
        self.unk: int = ids["<unk>"]
        self._made = {piece: index for piece, index in ids.items() if piece not in SYMBOLS}

    @classmethod
    def opens(cls, path: Path) -> bool:
        folder = path.parent if path.name in (SOURCE, NUMBERS) else path
        return all((folder / name).is_file() for name in (SOURCE, TARGET, NUMBERS))

    @classmethod
    def read(cls, path: Path) -> bytes:
        folder = path if path.is_dir() else path.parent
        content: dict[str, Any] = {
            "ids": parse_json((folder / NUMBERS).read_bytes(), str(folder / NUMBERS))
        }
        for name in (SOURCE, TARGET):
            content[name] = base64.b64encode((folder / name).read_bytes()).decode()
        return json.dumps(content, ensure_ascii=False).encode()

    def encode_packed(self, texts: list[str]) -> Packed:
        return pack_ids([self.encode(text) for text in texts])

    def encode(self, text: str) -> list[int]:
        return self.encode_offsets(text)[0]

    def encode_offsets(self, text: str) -> tuple[list[int], Offsets]:
        # as transformers has it, also of a language that the model does not know
        code = text[: text.find("<<") + 2] if text.startswith(">>") and "<<" in text else ""
        offsets = self._source.encode(text[len(code) :], return_type="offset_mapping")
        # a piece that the source's model does not know may be one of the target's
        names = [code, *offsets["pieces"]] if code else offsets["pieces"]
        places = [(first + len(code), last + len(code)) for first, last in offsets["offsets"]]
        ids = [self._made.get(name, self.unk) for name in names]
        return ids, [(0, len(code)), *places] if code else places

    def decode(self, ids: list[int]) -> str:
        # the mark stands for a blank in both models, so neither is needed
        pieces = "".join(self.piece(index) for index in ids if not self.is_control(index))
        return pieces.replace("▁", " ").removeprefix(" ")

    def piece(self, index: int) -> str:
        return self._pieces.get(index, f"<{index}>")

    def find(self, piece: str) -> int | None:
        return self._ids.get(piece)

    def text(self, index: int) -> str:
        return self.piece(index).replace("▁", " ")

    def is_control(self, index: int) -> bool:
        return self.piece(index) in SYMBOLS[:2]

    def declares(self, index: int) -> bool:
        return self.piece(index) in SYMBOLS


def write_marian(model: Marian, folder: Path) -> None:
    """Write the files that AutoTokenizer opens as a `MarianTokenizer`."""
    numbers = {model.piece(index): index for index in range(model.size)}
    create(folder / NUMBERS, json.dumps(numbers, ensure_ascii=False, indent=1) + "\n")
    for name, data in model.models.items():
        create(folder / name, data)
    roles = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    entries = {"tokenizer_class": "MarianTokenizer", **roles}
    create(folder / SETTINGS, json.dumps(entries, indent=1) + "\n")
