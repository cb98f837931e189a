"""The kinds of vocabulary: how each library encodes, decodes and spells its pieces.

`unitk.vocab.base` adds what all kinds share: special symbols, storing and hashing. A plug-in
registers a subclass of `VocabModel` under kind "vocab". A library is imported when its first model
is opened.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import regex

from unitk.errors import DataError
from unitk.foreign import read_bytes
from unitk.registry import register
from unitk.vocab.scripts import UNSPACED

Packed = tuple[npt.NDArray[np.int32], npt.NDArray[np.int64]]
"""The ids of several texts one after the other, and how many each text has."""
FEW = 16  # texts that are encoded faster one by one
CACHED_WORDS = 1 << 19
"""About 100 MB. A full cache is emptied; frequent words are soon in it again."""
ANCHOR = "\ue000"
"""A private character: no vocabulary has a piece that joins it to another character."""
WORD_START = regex.compile(rf"\s|{UNSPACED}", regex.V1)
Offsets = list[tuple[int, int]]
"""The characters [start, stop) of a text that each of its tokens stands for."""


class VocabModel(ABC):
    """A tokenizer whose ids are 0 .. size - 1."""

    kind: ClassVar[str]  # the registered name of the class that opens a stored `file` again
    file: ClassVar[str]  # name of the file that holds `data` in a vocabulary folder
    data: bytes
    size: int
    unk: int | None  # what the model itself writes for what it does not know

    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    @abstractmethod
    def opens(cls, path: Path) -> bool:
        """Whether a path is of this kind, judged by its name and the files beside it."""

    @classmethod
    def read(cls, path: Path) -> bytes:
        """The bytes at a path that become `data`."""
        return read_bytes(path)

    @classmethod
    def open(cls, path: Path) -> VocabModel:
        """Open the vocabulary at a path."""
        return cls(cls.read(path))

    @abstractmethod
    def encode_packed(self, texts: list[str]) -> Packed:
        """Encode texts; special symbols written out in a text are plain text."""

    @abstractmethod
    def encode_offsets(self, text: str) -> tuple[list[int], Offsets]:
        """The ids of a text, and the characters of each, which may include blanks around it.

        A token that is a part of a character, but not its last, may have none.
        """

    @abstractmethod
    def decode(self, ids: list[int]) -> str:
        """The text of ids."""

    @abstractmethod
    def piece(self, index: int) -> str:
        """The spelling of a piece."""

    @abstractmethod
    def find(self, piece: str) -> int | None:
        """The id of the piece with exactly this spelling; None without one."""

    @abstractmethod
    def text(self, index: int) -> str:
        """The text that a piece stands for, with a blank in front if it begins a word."""

    def is_control(self, index: int) -> bool:
        """Whether a piece is a control symbol of the model, which stands for no text."""
        return False

    def declares(self, index: int) -> bool:
        """Whether the model's file itself calls a piece a symbol."""
        return False

    def without(self, symbols: Collection[int]) -> VocabModel:
        """The model that makes none of these ids of a text, wherever it is spelled."""
        return self

    def starts(self, index: int) -> bool:
        """Whether a piece begins a word; in scripts without blanks, every piece does."""
        return WORD_START.match(self.text(index)) is not None

    def encode(self, text: str) -> list[int]:
        """The ids of one text."""
        return self.encode_packed([text])[0].tolist()

    def encode_inside(self, text: str) -> list[int]:
        """Encode a text that goes on without a blank, as after a symbol: "un[MASK]able"."""
        anchor = self.encode(ANCHOR)
        size = len(anchor)
        ids, spans = self.encode_offsets(ANCHOR + text)
        if ids[:size] == anchor and all(last <= 1 for _, last in spans[:size]):
            return ids[size:]
        # one token has the anchor and some of the text, as what is unknown
        whole = self.encode(text)
        return whole[1:] if whole and self.text(whole[0]).isspace() else whole


def pack_ids(rows: Sequence[Sequence[int]]) -> Packed:
    """Lists of ids as one array, and the length of each."""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths


@register("vocab", "sentencepiece")
class SentencePiece(VocabModel):
    """A sentencepiece model (*.model), unigram or BPE."""

    kind = "sentencepiece"
    file = "sentencepiece.model"

    def __init__(self, data: bytes) -> None:
        import sentencepiece

        super().__init__(data)
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(data)
        except RuntimeError as error:
            raise DataError("is not a sentencepiece model") from error
        self.size = self._processor.get_piece_size()
        self.unk = self._processor.unk_id()

    @classmethod
    def opens(cls, path: Path) -> bool:
        return path.suffix == ".model"

    def encode_packed(self, texts: list[str]) -> Packed:
        if len(texts) >= FEW and self._words is not None:
            packed = self._words.encode_packed(texts)
            if packed is not None:
                return packed
        return encode_by(self._processor, texts)

    def encode_offsets(self, text: str) -> tuple[list[int], Offsets]:
        encoding = self._processor.encode(text, return_type="offset_mapping")
        return encoding["ids"], encoding["offsets"]

    def decode(self, ids: list[int]) -> str:
        return str(self._processor.decode(ids))

    def piece(self, index: int) -> str:
        return str(self._processor.id_to_piece(index))

    def find(self, piece: str) -> int | None:
        index = int(self._processor.piece_to_id(piece))
        return index if self.piece(index) == piece else None

    def text(self, index: int) -> str:
        if self._processor.is_byte(index):
            return bytes([int(self.piece(index)[1:-1], 16)]).decode("utf-8", "ignore")
        return self.piece(index).replace("▁", " ")

    def is_control(self, index: int) -> bool:
        return bool(self._processor.is_control(index))

    @functools.cached_property
    def _words(self) -> WordCache | None:
        """A cache of words; None unless the model is BPE and no piece reaches over a blank."""
        trainer = dict(fields(dict(fields(self.data)).get(2, b"")))
        if trainer.get(3, 1) != 2:  # TrainerSpec.model_type; 1: unigram (default), 2: BPE
            return None
        inside = any("▁" in self.piece(index)[1:] for index in range(self.size))
        return None if inside or self.find("▁") is None else WordCache(self._processor)


QUOTE_OR_LETTER = re.compile("``|''|.", re.DOTALL)


@register("vocab", "sentencepiece_unaccented")
class Unaccented(SentencePiece):
    """A sentencepiece model whose texts lose their accents first, as XLNet's do."""

    kind = "sentencepiece_unaccented"
    lowercase = False

    @classmethod
    def opens(cls, path: Path) -> bool:
        return False  # a *.model does not say so

    def encode_packed(self, texts: list[str]) -> Packed:
        return super().encode_packed([self._plain(text) for text in texts])

    def encode_offsets(self, text: str) -> tuple[list[int], Offsets]:
        ids, offsets = super().encode_offsets(self._plain(text))
        units = [
            (match.span(), len(self._plain(match[0]))) for match in QUOTE_OR_LETTER.finditer(text)
        ]
        # where each character of the plain text comes from
        origin = [span for span, size in units for _ in range(size)] + [(len(text), len(text))]
        return ids, [(origin[a][0], origin[max(a, b - 1)][a < b]) for a, b in offsets]

    def _plain(self, text: str) -> str:
        text = unicodedata.normalize("NFKD", text.replace("``", '"').replace("''", '"'))
        text = "".join(letter for letter in text if unicodedata.category(letter)[0] != "M")
        return text.lower() if self.lowercase else text


@register("vocab", "sentencepiece_lowercased")
class Lowercased(Unaccented):
    """A sentencepiece model whose texts lose accents and capitals first, as ALBERT's do."""

    kind = "sentencepiece_lowercased"
    lowercase = True


def fields(message: bytes) -> Iterable[tuple[int, Any]]:
    """The number and value of each field of a protocol buffer, without a library.

    Raises `IndexError` if the message is truncated.
    """
    at = 0

    def varint() -> int:
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        number, kind = divmod(varint(), 8)
        if not kind:
            yield number, varint()
        else:  # 1, 5: of a fixed size; 2: the size is before it
            size = varint() if kind == 2 else {1: 8, 5: 4}.get(kind, len(message))
            if at + size > len(message):
                raise IndexError
            yield number, message[at : at + size]
            at += size


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
        fresh = self._index.fresh
        self._index.fresh = []
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
