"""Writes corpora, as texts come or from corpora that are joined."""

from __future__ import annotations

import hashlib
import json
import logging
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from unitk.data.corpus import columns
from unitk.data.corpus.corpus import BLOCK, BLOCKS, FORMAT, VOCAB, Corpus, Labelled, own_hash
from unitk.errors import DataError, print_note
from unitk.files import MANIFEST, below, create, entry, open_plain
from unitk.foreign import read_json
from unitk.pretrained import fetched
from unitk.slots import Ids
from unitk.vocab.base import Vocab

if TYPE_CHECKING:
    from unitk.data.files.labels import Label

_called = ContextVar("_called", default=False)


@contextmanager
def called_from_python() -> Iterator[None]:
    """A context in which standard output is the caller's own: `announce` logs its lines."""
    before = _called.set(True)
    try:
        yield
    finally:
        _called.reset(before)


def announce(line: str) -> None:
    """Print a line about what was made; where Python called, log it instead."""
    if _called.get():
        logging.getLogger("unitk").info("%s", line)
    else:
        print_note(line)


def announce_counts(side: str, counts: columns.Counts, kind: str, labels: str = "") -> None:
    """Print what a side of a corpus of this kind holds; `labels` are the form of its labels."""
    parts = "words" if labels == "tags" else "parts"
    divided = counts.sentences > counts.documents
    units = () if kind == "text" else ("texts", parts if divided else "")
    announce(f"  {side and side + ': '}{counts.describe(*units)}")


class ColumnFile:
    """A column that is written while its length is still unknown."""

    def __init__(self, folder: Path, column: columns.Column, dtype: npt.DTypeLike = "<i8") -> None:
        self.column = column
        self.dtype = np.dtype(column.dtype or dtype)
        self.count = self.total = 0
        self._file = open_plain(folder / column.file, "wb")
        if column.within:  # the number of offsets is not known yet; the first one is 0
            self._file.write(columns.header(0) + bytes(8))

    def append(self, values: npt.NDArray[Any]) -> None:
        """Append some values; of offsets, the sizes that they are the sums of."""
        self.count += len(values)
        if self.column.within and len(values):
            values = self.total + np.cumsum(values)
            self.total = int(values[-1])
        self._file.write(np.ascontiguousarray(values, self.dtype).data)

    def close(self) -> None:
        """Complete the file: the header of offsets has their number."""
        if self.column.within:
            self._file.seek(0)
            self._file.write(columns.header(self.count + 1))
        self._file.close()


class CorpusWriter:
    """Writes the columns of a text corpus into a folder as they come."""

    def __init__(self, folder: Path, vocab_size: int, more: Sequence[columns.Column] = ()) -> None:
        """`more`: columns that not all corpora have."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.counts = columns.Counts()
        self.dtype = columns.stored_dtype(vocab_size)
        self.files = {key: ColumnFile(folder, key, self.dtype) for key in (*columns.ALWAYS, *more)}
        self._open = 0  # sentences of the last document, which may go on

    def add(
        self,
        ids: npt.NDArray[Any],
        lengths: Ids,
        sizes: Ids,
        goes_on: bool = False,
        notes: npt.NDArray[Any] | None = None,
        words: Ids | None = None,
    ) -> None:
        """Append sentences of `lengths` tokens and `words`, in documents of `sizes` sentences.

        If `goes_on`, the first of these documents continues the last one. Documents without a
        sentence are dropped.
        """
        rows: dict[columns.Column, Any] = {columns.TOKENS: ids, columns.SENTENCES: lengths}
        rows |= {columns.NOTES: notes, columns.WORDS: words}
        for column, values in rows.items():
            if file := self.files.get(column):
                assert values is not None, f"{column.file} lacks values"
                file.append(values)
        self.counts.tokens += len(ids)
        self.counts.sentences += len(lengths)
        if words is not None:
            self.counts.words += int(words.sum())
        if len(sizes):
            # the last document is not written before the next one begins: it may go on
            sizes = np.append(self._open, sizes)
            if goes_on:
                sizes = np.append(sizes[0] + sizes[1], sizes[2:])
            self._close_documents(sizes[:-1])
            self._open = int(sizes[-1])

    def _close_documents(self, sizes: Ids) -> None:
        sizes = sizes[sizes > 0]
        self.files[columns.DOCUMENTS].append(sizes)
        self.counts.documents += len(sizes)

    def join(self, corpus: Corpus) -> None:
        """Append a corpus."""
        for column, file in self.files.items():
            for values in corpus.chunks(column):
                file.append(values)
        for name, count in vars(corpus.counts).items():
            setattr(self.counts, name, getattr(self.counts, name) + count)

    def close(self, about: dict[str, Any]) -> None:
        """Complete the files; write the manifest with `about`, which the writer does not know."""
        self._close_documents(np.array([self._open]))
        for column, file in self.files.items():
            file.close()
            assert file.count == getattr(self.counts, column.unit), column.file
        with (self.folder / columns.TOKENS.file).open("rb") as tokens:
            blocks = iter(lambda: tokens.read(BLOCK), b"")
            hashes = b"".join(hashlib.sha256(block).digest() for block in blocks)
        create(self.folder / BLOCKS, hashes)
        counts = {"counts": asdict(self.counts), "unknown_rate": self.counts.unknown_rate}
        write_manifest(self.folder, {"kind": "text", "dtype": self.dtype.name, **counts, **about})


class LabelWriter:
    """Collects the labels of records in order, and writes them beside their texts.

    `known` are the allowed names (those of train); None: any name. `extra` are names that are
    stored although no record may have them.
    """

    def __init__(
        self, form: str, known: Sequence[str] | None = None, extra: Iterable[str] = ()
    ) -> None:
        self.name = form
        self.form = columns.FORMS[form]
        self.known = known
        self.extra = extra
        self.names: dict[str, int] = {name: i for i, name in enumerate(known or ())}
        self.rows: array[Any] = array("d" if form == "number" else "q")
        self.count = 0
        self.uses = Counter[str]()
        """How often each name was given as a label, but for corpora that are joined."""

    def number(self, name: str, where: str) -> int:
        """The number of a name; names are numbered in the order of appearance."""
        if self.known is not None and name not in self.names:
            known = shorten(", ".join(self.known), 300, placeholder=" ...")
            raise DataError(
                f"{where}: {name!r} is not a label of train: {known}; "
                "`unitk preprocess --extra-labels` takes it as one that no text of train has"
            )
        self.uses[name] += 1
        return self.names.setdefault(name, len(self.names))

    def add(self, labels: Iterable[tuple[Label, str]]) -> None:
        """Append the labels of some records; errors name their places."""
        for label, where in labels:
            self.rows.extend(self.form.rows(label, self.count, partial(self.number, where=where)))
            self.count += 1

    def join(self, corpus: Labelled) -> None:
        """Append the labels of a corpus."""
        rows = np.array(corpus.values)
        if self.form.named:
            names = [self.number(name, str(corpus.path)) for name in corpus.labels]
            # the part's numbers -> this corpus's
            rows[:, -1] = np.array(names, np.int64)[rows[:, -1]]
        if not self.form.unit:
            rows[:, 0] += self.count
        self.rows.extend(rows.ravel().tolist())
        self.count += len(corpus)

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the labels; returns what the manifest records about them."""
        rows = np.array(self.rows).reshape(-1, self.form.width)
        names = [*self.names] if self.known is not None else sorted({*self.names, *self.extra})
        if self.form.named and len(rows):
            # numbered as they came, stored by the alphabet: shards and files in any order agree
            number_of = {name: i for i, name in enumerate(names)}
            rows[:, -1] = np.array([number_of[name] for name in self.names])[rows[:, -1]]
        with open_plain(folder / columns.LABELS, "w+b") as file:  # as in `unitk embed`
            np.save(file, rows.astype(self.form.dtype))
        return {"form": self.name, "labels": names}


def close_corpus(
    folder: Path, writers: dict[str, CorpusWriter], vocab: Vocab, about: dict[str, Any]
) -> None:
    """Complete a corpus folder: of text if its one writer is called "", of pairs otherwise."""
    vocab.save(folder / VOCAB)
    meaning = {"vocab": vocab.hash, "vocab_size": len(vocab)}
    for side, writer in writers.items():
        writer.close(meaning if side else {**meaning, **about})
    if "" not in writers:
        write_manifest(folder, {"kind": "pairs", **meaning, **about})


def write_manifest(folder: Path, about: dict[str, Any]) -> None:
    """Write `about`, with the size and SHA-256 of every file in the folder."""
    entries = {}
    for name, path in below(folder).items():
        side = path.parent / MANIFEST  # what is there of a side of pairs has been hashed
        known = read_json(side)["files"] if side.is_file() and path.parent != folder else {}
        entries[name] = known.get(path.name) or entry(path)
    sources = {"sources": fetched} if fetched else {}
    manifest = {"format": FORMAT, **about, **sources, "files": entries}
    text = json.dumps(manifest | {"sha256": own_hash(manifest)}, indent=1, ensure_ascii=False)
    create(folder / MANIFEST, text + "\n")
