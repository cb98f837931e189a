"""The plainest vocabulary: one id for each word between blanks, as toys and pictures need it."""

from __future__ import annotations

from pathlib import Path

from unitk.registry import register
from unitk.vocab import SYMBOLS, Vocab, adopt
from unitk.vocab_kinds import Packed, VocabModel, pack


@register("vocab", "words")
class Words(VocabModel):
    """A list of words, one a line (*.words): text is split at blanks."""

    kind = "words"
    file = "vocab.words"

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self._words = [*data.decode("utf-8").split(), SYMBOLS["unk"]]
        self._index = {word: index for index, word in enumerate(self._words)}
        self.size = len(self._words)
        self.unk: int = self.size - 1

    @classmethod
    def opens(cls, path: Path) -> bool:
        return path.suffix == ".words"

    def encode_packed(self, texts: list[str], num_threads: int) -> Packed:
        return pack([[self._index.get(word, self.unk) for word in text.split()] for text in texts])

    def encode_inside(self, text: str) -> list[int]:
        return self.encode(text)

    def decode(self, ids: list[int]) -> str:
        return " ".join(self.piece(index) for index in ids)

    def piece(self, index: int) -> str:
        return self._words[index]

    def find(self, piece: str) -> int | None:
        return self._index.get(piece)

    def text(self, index: int) -> str:
        return " " + self.piece(index)


def word_vocab(*texts: str) -> Vocab:
    """A vocabulary of the words of these texts, in the order in which they first appear."""
    words = dict.fromkeys(word for text in texts for word in text.split())
    plain = [word for word in words if word not in SYMBOLS.values()]
    return adopt(Words("\n".join(plain).encode()))
