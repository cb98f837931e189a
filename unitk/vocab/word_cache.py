"""A cache of words, with which sentencepiece's BPE encodes texts much faster."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Packed = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]
"""The ids of several texts one after the other, and how many each text has."""
FEW = 16  # texts that are encoded faster one by one
CACHED_WORDS = 1 << 19
"""About 100 MB. A full cache is emptied; frequent words are soon in it again."""


def encode_by(processor: Any, texts: list[str]) -> Packed:
    """The ids of texts by a sentencepiece processor."""
    # arrays, as lists of ids cost a tenth of the time
    if len(texts) < FEW:  # the library starts threads for a list, even for one
        rows = [processor.encode(text, return_type="numpy") for text in texts]
    else:
        rows = processor.encode(texts, num_threads=1, return_type="numpy")
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.concatenate(rows) if rows else np.zeros(0, np.int32), lengths


class WordCache:
    """A cache of words for BPE, whose merges take much longer than looking a word up.

    A text is normalised as a whole and cut at its blanks. Each new word is encoded alone. The ids
    equal the model's own, because no piece reaches over a blank.
    """

    def __init__(self, processor: Any) -> None:
        self._processor = processor
        self._clear()

    def _clear(self) -> None:
        self._index = _Index()
        self._first = np.zeros(0, np.int64)
        self._size = np.zeros(0, np.int64)
        self._ids = np.zeros(0, np.int32)

    def encode_packed(self, texts: list[str]) -> Packed | None:
        """The ids of texts; None if a word alone is normalised otherwise than within its text."""
        normal = [self._processor.normalize(text) for text in texts]
        if not all(line[:1] in ("▁", "") for line in normal):
            return None
        words = "".join(normal).split("▁")[1:]
        if len(self._index) > CACHED_WORDS:
            self._clear()
        index = np.fromiter(map(self._index.__getitem__, words), np.int64, len(words))
        if self._index.fresh and not self._learn():
            self._clear()
            return None
        # one array has the ids of all known words: word i has size[i] of them from its first
        size = self._size[index]
        stop = np.cumsum(size)
        total = int(stop[-1]) if len(stop) else 0
        # place of each output id: its word's first, and how far into the word it is
        places = np.repeat(self._first[index] - stop + size, size) + np.arange(total)
        last = np.cumsum([line.count("▁") for line in normal])  # words up to the end of each text
        upto = np.append(0, stop)[last]
        return self._ids[places], np.diff(upto, prepend=0)

    def _learn(self) -> bool:
        fresh, self._index.fresh = self._index.fresh, []
        if any(self._processor.normalize(word) != "▁" + word for word in fresh):
            return False
        ids, size = encode_by(self._processor, fresh)
        self._first = np.append(self._first, len(self._ids) + np.cumsum(size) - size)
        self._size = np.append(self._size, size)
        self._ids = np.append(self._ids, ids)
        return True


class _Index(dict[str, int]):
    """Numbers words in the order in which they come; `fresh` are those not encoded yet."""

    def __init__(self) -> None:
        self.fresh: list[str] = []

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        self.fresh.append(word)
        return number
