"""Word lists: vocabularies with one id for each word between blanks."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from unitk.errors import DataError
from unitk.foreign import HALF, HALF_MESSAGE
from unitk.registry import register
from unitk.vocab.base import SYMBOLS, Vocab, adopt
from unitk.vocab.subwords import Offsets, Packed, VocabModel, pack_ids


class WordList(VocabModel):
    """A vocabulary of whole words: text is split at blanks, and a word's id is its place.

    Words in `special` are symbols, which no text produces.
    """

    special: Collection[str] = ()

    def __init__(self, data: bytes, symbols: Sequence[str], unk: int) -> None:
        super().__init__(data)
        self.symbols = symbols
        self._index = {symbol: index for index, symbol in enumerate(symbols)}
        self.size = len(symbols)
        self.unk: int = unk

    def encode_packed(self, texts: list[str]) -> Packed:
        return pack_ids([[self._id(word) for word in text.split()] for text in texts])

    def _id(self, word: str) -> int:
        # a text that spells a symbol has an unknown word
        return self.unk if word in self.special else self._index.get(word, self.unk)

    def encode_offsets(self, text: str) -> tuple[list[int], Offsets]:
        return self.encode(text), [match.span() for match in re.finditer(r"\S+", text)]

    def encode_inside(self, text: str) -> list[int]:
        return self.encode(text)

    def piece(self, index: int) -> str:
        return self.symbols[index]

    def find(self, piece: str) -> int | None:
        return self._index.get(piece)

    def text(self, index: int) -> str:
        return " " + self.piece(index)


@register("vocab", "words")
class WordVocab(WordList):
    """A file of words, one a line (*.words); text is split at blanks.

    Symbols such as [CLS] that are in the file have the ids of their lines. [UNK] stands for all
    other words, and comes last if it is not in the file.
    """

    kind = "words"
    file = "vocab.words"
    special = frozenset(SYMBOLS.values())

    def __init__(self, data: bytes) -> None:
        words = data.decode("utf-8").split()
        unk = SYMBOLS["unk"]
        if unk not in words:
            words.append(unk)
        super().__init__(data, words, words.index(unk))

    @classmethod
    def opens(cls, path: Path) -> bool:
        return path.suffix == ".words"

    def decode(self, ids: list[int]) -> str:
        return " ".join(self.piece(index) for index in ids)


def word_vocab(*texts: str) -> Vocab:
    """A vocabulary of the words of these texts, in the order in which they first appear."""
    words = dict.fromkeys(word for text in texts for word in text.split())
    listed = "\n".join([word for word in words if word not in SYMBOLS.values()])
    if half := HALF.search(listed):
        raise DataError(HALF_MESSAGE.format(half[0]))
    return adopt(WordVocab(listed.encode()))
