"""fairseq's dictionaries: dict.txt, a symbol and its count a line."""

from __future__ import annotations

import re
from pathlib import Path

from unitk.errors import DataError
from unitk.registry import register
from unitk.vocab_kinds import Packed, VocabModel, pack

FIRST = ("<s>", "<pad>", "</s>", "<unk>")
"""Symbols that every dictionary has in front and that its file leaves out."""
SPECIAL = {*FIRST, "<mask>"}
OVERWRITE = " #fairseq:overwrite"


@register("vocab", "fairseq")
class FairseqDictionary(VocabModel):
    """fairseq's dict.txt: text is split at blanks, as whatever made its words left it."""

    kind = "fairseq"
    file = "dict.txt"

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._symbols = [*FIRST, *symbols_of(data)]
        self._index = {symbol: i for i, symbol in enumerate(self._symbols)}
        self.size = len(self._symbols)
        self.unk: int = FIRST.index("<unk>")

    @classmethod
    def opens(cls, path: Path) -> bool:
        return re.fullmatch(r"dict(\..+)?\.txt", path.name) is not None

    def encode_packed(self, texts: list[str], num_threads: int) -> Packed:
        return pack([[self._id(word) for word in text.split()] for text in texts])

    def _id(self, word: str) -> int:
        return self.unk if word in SPECIAL else self._index.get(word, self.unk)

    def encode_inside(self, text: str) -> list[int]:
        return self.encode(text)

    def decode(self, ids: list[int]) -> str:
        return " ".join(self.piece(index) for index in ids)

    def piece(self, index: int) -> str:
        return self._symbols[index]

    def find(self, piece: str) -> int | None:
        return self._index.get(piece)

    def text(self, index: int) -> str:
        return " " + self.piece(index)

    def silent(self, index: int) -> bool:
        return index < len(FIRST) and index != self.unk


def symbols_of(data: bytes) -> list[str]:
    """The symbols of dict.txt, in its order."""
    found: dict[str, bool] = {}
    lines = data.decode("utf-8").split("\n")
    for number, line in enumerate(lines[: -1 if lines[-1] == "" else None], start=1):
        overwrites = line.endswith(OVERWRITE)
        symbol, blank, count = line.removesuffix(OVERWRITE).rpartition(" ")
        if not blank or not count.isdigit():
            raise DataError(f"line {number} is no symbol with its count: {line[:40]!r}")
        if (symbol in found or symbol in FIRST) and not overwrites:
            raise DataError(f"line {number} has {symbol!r} again")
        found[symbol] = True
    return [symbol for symbol in found if symbol not in FIRST]
