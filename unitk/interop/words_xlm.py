"""XLM's dictionaries: vocab.en-fr, a word and its count a line."""

from __future__ import annotations

import re
from pathlib import Path

from unitk.fairseq.dictionary import symbols_of
from unitk.registry import register
from unitk.vocab.words import WordList

FIRST = ("<s>", "</s>", "<pad>", "<unk>", *(f"<special{i}>" for i in range(10)))
"""Symbols that every dictionary has in front and that its file leaves out."""


@register("vocab", "xlm")
class XLMDictionary(WordList):
    """XLM's vocab.en-fr: text is split at blanks, as fastBPE left it, whose @@ a decoder joins."""

    kind = "xlm"
    file = "vocab.xlm"
    special = FIRST

    def __init__(self, data: bytes) -> None:
        super().__init__(data, [*FIRST, *symbols_of(data)], FIRST.index("<unk>"))

    @classmethod
    def opens(cls, path: Path) -> bool:
        return re.fullmatch(r"vocab\.([a-z]{2}(-[a-z]{2})*|xlm)", path.name) is not None

    def decode(self, ids: list[int]) -> str:
        text = "".join(f"{self.piece(index)} " for index in ids)
        return text.replace("@@ ", "").rstrip()

    def silent(self, index: int) -> bool:
        return index < len(FIRST) and index != self.unk
