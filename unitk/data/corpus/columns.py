"""What a corpus consists of: columns, with a value for each of its tokens, sentences or documents.

    tokens.bin      the ids of all sentences, uint16 or int32, nothing stored between them
    notes.bin       with `--annotate`: the annotation byte of each token
    sentences.npy   int64 [S + 1], where each sentence begins in the tokens; the last entry is T
    words.npy       int64 [S + 1], the words before each sentence; the last entry is their number
    documents.npy   int64 [D + 1], the first sentence of each document; the last entry is S
    labels.npy      what records without a target lead to, in rows whose meaning their form tells:
                    class, choice, number [D, 1]: int64, but numbers float32
                    classes [L, 2]: record, class; a record has any number of them
                    tags [S, 1]: each word of a record is a sentence, one of its parts
                    span [D, 2]: tokens [start, stop) of the last part; -1 -1: none
                    links [L, 4]: record, tokens [start, stop) of its last part, entity

Sentences, words and documents are offsets, which rise from 0. What is appended to such a column, or
read to be appended to another one, are their differences: sizes. Classes, tags and entities have
names, which the manifest lists in the order of the alphabet.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from unitk.errors import DataError, amount
from unitk.slots import Ids

if TYPE_CHECKING:
    from unitk.data.files.labels import Label

Rows = npt.NDArray[Any]
SMALL = 65_500  # vocabularies with fewer ids are stored as uint16; above that a few ids stay free
CHUNK = 1 << 20
"""Values that are read at a time: differences of ten million offsets take 80 MB."""


@dataclass
class Counts:
    """The size of a corpus; `words` are separated by blanks, `unknown` are tokens."""

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    words: int = 0
    unknown: int = 0

    @property
    def unknown_rate(self) -> float:
        """The share of tokens that are the unknown symbol."""
        return self.unknown / max(self.tokens, 1)

    def describe(self, texts: str = "documents", parts: str = "sentences") -> str:
        """The counts in a line, with names for documents and, if told, for their sentences."""
        # a script without blanks has no words to speak of
        spaced = self.tokens < 8 * self.words
        rate = f" {self.tokens / self.words:.2f} tokens a word," if spaced else ""
        held = f" {amount(self.sentences, parts)}," if parts else ""
        tokens = f"{amount(self.tokens, 'tokens')},{rate} {self.unknown_rate:.2%} unknown"
        return f"{amount(self.documents, texts)},{held} {tokens}"


@dataclass(frozen=True)
class Column:
    """A file of a corpus with a value for each of its units, such as tokens."""

    file: str
    unit: str
    """What has a value each: a field of `Counts`, such as tokens."""
    within: str = ""
    """For offsets: the things that they count, also a field of `Counts`."""
    dtype: str = "<i8"
    """Empty: that of the corpus, which depends on the size of its vocabulary."""

    def read(self, folder: Path, counts: Counts, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """All values, mapped into memory; `DataError` if there are not as many as counted."""
        path = folder / self.file
        count = getattr(counts, self.unit)
        dtype = self.dtype or dtype
        if self.within:
            return _offsets(path, count, getattr(counts, self.within))
        # a map of a longer or shorter file would be read, too
        if path.stat().st_size != count * np.dtype(dtype).itemsize:
            raise DataError(f"{path} does not hold {count} {self.unit}")
        # an empty file cannot be mapped: the shard of a small corpus may have nothing
        return map_file(path, dtype) if count else np.empty(0, dtype)


TOKENS = Column("tokens.bin", "tokens", dtype="")
NOTES = Column("notes.bin", "tokens", dtype="u1")
SENTENCES = Column("sentences.npy", "sentences", within="tokens")
WORDS = Column("words.npy", "sentences", within="words")
DOCUMENTS = Column("documents.npy", "documents", within="sentences")
ALWAYS = (TOKENS, SENTENCES, DOCUMENTS)
OPTIONAL = (NOTES, WORDS)
LABELS = "labels.npy"


@dataclass(frozen=True)
class Form:
    """A row for each record, of one number: that of its class or choice, or a value."""

    kind: str = "labelled"  # of the corpus
    unit: str = "documents"
    """What has a row each, a field of `Counts`; "": rows begin with their record."""
    width: int = 1
    named: bool = False
    """Whether the last number of a row stands for a name."""
    dtype: str = "<i8"

    def names(self, label: Label) -> Label:
        """The names in the label of a record."""
        return label if self.named else []

    def rows(self, label: Label, record: int, number: Callable[[str], int]) -> list[float]:
        """The numbers of a record's rows, one row after the other."""
        return [number(name) for name in label] if self.named else label

    def of(self, rows: Rows, documents: Ids, record: int) -> Rows:
        """The labels of a record, out of all rows."""
        return rows[record]

    def shorten(self, labels: Rows, source: list[Ids]) -> tuple[list[Ids], Rows]:
        """The parts of a text as truncated, with the labels that remain."""
        return source, labels

    def placeholder(self, parts: list[Ids]) -> Rows:
        """Labels of a text that is not in the corpus."""
        return np.zeros(1, self.dtype)


class Tags(Form):
    """A row for each word of a record."""

    def of(self, rows: Rows, documents: Ids, record: int) -> Rows:
        return rows[slice(*documents[record : record + 2]), 0]

    def shorten(self, labels: Rows, source: list[Ids]) -> tuple[list[Ids], Rows]:
        kept = np.array([len(part) > 0 for part in source])  # the other words are cut off
        return [part for part in source if len(part)], labels[kept]

    def placeholder(self, parts: list[Ids]) -> Rows:
        return np.zeros(len(parts), np.int64)


class SpanColumn(Form):
    """The place of an answer in the last part of a record."""

    def shorten(self, labels: Rows, source: list[Ids]) -> tuple[list[Ids], Rows]:
        return source, labels if labels[1] <= len(source[-1]) else np.full(2, -1)

    def placeholder(self, parts: list[Ids]) -> Rows:
        return np.arange(2)


class Classes(Form):
    """A row for each class of a record."""

    numbers: ClassVar[int | slice] = 1  # where the numbers after the record are

    def rows(self, label: Label, record: int, number: Callable[[str], int]) -> list[float]:
        return [value for name in label for value in (record, number(name))]

    def of(self, rows: Rows, documents: Ids, record: int) -> Rows:
        low, high = np.searchsorted(rows[:, 0], [record, record + 1])  # sorted by record
        return rows[low:high, self.numbers]


class Links(Classes):
    """A row for each entity that is named in the last part of a record."""

    numbers = slice(1, None)

    def names(self, label: Label) -> Label:
        return [name for _, _, name in label]

    def rows(self, label: Label, record: int, number: Callable[[str], int]) -> list[float]:
        return [value for a, b, name in label for value in (record, a, b, number(name))]

    def shorten(self, labels: Rows, source: list[Ids]) -> tuple[list[Ids], Rows]:
        return source, labels[labels[:, 1] <= len(source[-1])]

    def placeholder(self, parts: list[Ids]) -> Rows:
        return np.array([[0, 1, 0]])


FORMS = {
    "class": Form(named=True),
    "classes": Classes(unit="", width=2, named=True),
    "choice": Form(),
    "number": Form(dtype="<f4"),
    "tags": Tags(unit="sentences", named=True),
    "span": SpanColumn("spans", width=2),
    "links": Links("linked", unit="", width=4, named=True),
}
"""Form of labels -> how they are stored, looked up and shortened. A further form also needs a row
of `LABEL_READERS` (data/files/labels.py), a task that names it (`Task.form`), and, to be scored, a
row of `LABELS` in verbs/score.py."""


def stored_dtype(vocab_size: int) -> np.dtype[Any]:
    """The integer type in which ids are stored."""
    return np.dtype("<u2" if vocab_size < SMALL else "<i4")


def map_file(path: Path, dtype: npt.DTypeLike, offset: int = 0) -> npt.NDArray[Any]:
    """A file as a memory-mapped plain array; numpy's memmap class is slower to slice."""
    return np.asarray(np.memmap(path, dtype, "r", offset))


def _offsets(path: Path, count: int, total: int) -> Ids:
    """The offsets in an .npy file: `count` + 1 of them, rising from 0 to `total`."""
    expected = header(count + 1)
    with path.open("rb") as file:
        whole = file.read(len(expected)) == expected
    if whole and path.stat().st_size == len(expected) + 8 * (count + 1):
        offsets: Ids = map_file(path, "<i8", len(expected))
        # a stretch at a time, so that the differences take little memory
        parts = (offsets[start : start + CHUNK + 1] for start in range(0, count, CHUNK))
        rising = all((np.diff(part) >= 0).all() for part in parts)
        if offsets[0] == 0 and offsets[-1] == total and rising:
            return offsets
    raise DataError(f"{path} is damaged: it should lead from 0 to {total} in {count} steps")


def header(count: int) -> bytes:
    """The header of an .npy file of `count` int64, which always has the same length."""
    # padded, so that the count can be written over when it is known
    about = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({count},), }}"
    return b"\x93NUMPY\x01\x00" + bytes([118, 0]) + about.ljust(117).encode() + b"\n"
