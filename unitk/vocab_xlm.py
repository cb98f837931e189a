"""XLM's dictionaries: vocab.en-fr, a word and its count a line."""

from __future__ import annotations

import re
from pathlib import Path

from unitk.registry import register
from unitk.vocab_fairseq import symbols_of
from unitk.vocab_kinds import Packed, VocabModel, pack

FIRST = ("<s>", "</s>", "<pad>", "<unk>", *(f"<special{i}>" for i in range(10)))
"""Symbols that every dictionary has in front and that its file leaves out."""


@register("vocab", "xlm")
class XLMDictionary(VocabModel):
    """XLM's vocab.en-fr: text is split at blanks, as fastBPE left it, whose @@ a decoder joins."""

    kind = "xlm"
    file = "vocab.xlm"

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.symbols = [*FIRST, *symbols_of(data)]
        self._index = {symbol: i for i, symbol in enumerate(self.symbols)}
        self.size = len(self.symbols)
        self.unk: int = FIRST.index("<unk>")

    @classmethod
    def opens(cls, path: Path) -> bool:
        return re.fullmatch(r"vocab\.([a-z]{2}(-[a-z]{2})*|xlm)", path.name) is not None

    def encode_packed(self, texts: list[str], num_threads: int) -> Packed:
        return pack([[self._id(word) for word in text.split()] for text in texts])

    def _id(self, word: str) -> int:
        index = self._index.get(word, self.unk)
        return index if index >= len(FIRST) else self.unk

    def encode_inside(self, text: str) -> list[int]:
        return self.encode(text)

    def decode(self, ids: list[int]) -> str:
        text = "".join(f"{self.piece(index)} " for index in ids)
        return text.replace("@@ ", "").rstrip()

    def piece(self, index: int) -> str:
        return self.symbols[index]

    def find(self, piece: str) -> int | None:
        return self._index.get(piece)

    def text(self, index: int) -> str:
        return " " + self.piece(index)

    def silent(self, index: int) -> bool:
        return index < len(FIRST) and index != self.unk
