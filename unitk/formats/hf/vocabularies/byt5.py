"""ByT5's vocabulary: the bytes of a text (Xue et al. 2022, arXiv 2105.13626, section 3.1).

It has no file: tokenizer_config.json, or config.json, names the class.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from unitk.errors import DataError
from unitk.files import create
from unitk.foreign import HALF, HALF_MESSAGE, read_json
from unitk.registry import register
from unitk.vocab.subwords import Offsets, Packed, VocabModel
from unitk.vocab.tokenizer_files import CONFIG, SETTINGS

NAMES = ("<pad>", "</s>", "<unk>")
"""The ids before those of the bytes."""
EXTRA = 125
"""Ids after those of the bytes, which transformers names <extra_id_0>, <extra_id_1>, ..."""
CLASS = "ByT5Tokenizer"


@register("vocab", "bytes")
class Bytes(VocabModel):
    """The 256 bytes, after three symbols: byte b is the id b + 3."""

    kind = "bytes"
    file = "bytes.json"
    size = len(NAMES) + 256
    unk = 2

    @classmethod
    def opens(cls, path: Path) -> bool:
        files = [path / name for name in (SETTINGS, CONFIG)]
        return any(
            read_json(file).get("tokenizer_class") == CLASS for file in files if file.is_file()
        )

    @classmethod
    def read(cls, path: Path) -> bytes:
        return b"{}\n"  # all of them are alike

    def encode_packed(self, texts: list[str]) -> Packed:
        rows = [self._bytes(text) for text in texts]
        joined = np.frombuffer(b"".join(rows), np.uint8).astype(np.int32) + len(NAMES)
        return joined, np.fromiter(map(len, rows), np.int64, len(rows))

    def encode_offsets(self, text: str) -> tuple[list[int], Offsets]:
        # the last byte of a character stands for all of it
        sizes = [len(self._bytes(letter)) for letter in text]
        offsets = [
            (at, at + (byte == size - 1)) for at, size in enumerate(sizes) for byte in range(size)
        ]
        return self.encode(text), offsets

    def decode(self, ids: list[int]) -> str:
        # what is no whole character is left out, as transformers does
        spelled = bytes(index - len(NAMES) for index in ids if len(NAMES) <= index < self.size)
        return spelled.decode("utf-8", "ignore")

    def encode_inside(self, text: str) -> list[int]:
        return self.encode(text)

    def piece(self, index: int) -> str:
        return NAMES[index] if index < len(NAMES) else f"<0x{index - len(NAMES):02X}>"

    def find(self, piece: str) -> int | None:
        return next((index for index in range(self.size) if self.piece(index) == piece), None)

    def text(self, index: int) -> str:
        return self.decode([index])

    def is_control(self, index: int) -> bool:
        return index < len(NAMES)

    def declares(self, index: int) -> bool:
        return index < len(NAMES)

    def _bytes(self, text: str) -> bytes:
        # half of a pair of UTF-16 has no bytes in UTF-8
        if half := HALF.search(text):
            raise DataError(HALF_MESSAGE.format(half[0]))
        return text.encode("utf-8")


def sentinels() -> dict[int, str]:
    """The names of the ids after those of the bytes."""
    return {Bytes.size + number: f"<extra_id_{number}>" for number in range(EXTRA)}


def write_byte_vocab(folder: Path) -> None:
    """Write tokenizer_config.json, which is all that AutoTokenizer needs."""
    roles = dict(zip(("pad_token", "eos_token", "unk_token"), NAMES, strict=True))
    entries = {"tokenizer_class": CLASS, "extra_ids": EXTRA, **roles}
    create(folder / SETTINGS, json.dumps(entries, indent=1) + "\n")
