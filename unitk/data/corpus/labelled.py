"""Texts that lead to no other text: to a class, a number, tags, an answer's place or entities.

A corpus of texts, each document a record and its sentences the parts, with two things more:

    labels.npy      class, number, choice  [records, 1]
                    tags           [sentences, 1], each word being a part
                    span           [records, 2], tokens [start, stop) of the last part; -1 -1: none
                    links          [links, 4]: record, tokens [start, stop) of its last part, entity
    manifest.json   also the form of the labels, and the names of classes, tags or entities, sorted
"""

from __future__ import annotations

import functools
from array import array
from collections.abc import Iterable, Sequence
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

import numpy as np

from unitk.data.corpus.corpus import Corpus
from unitk.errors import DataError
from unitk.files import MANIFEST, create
from unitk.slots import Ids

if TYPE_CHECKING:
    from unitk.data.files.labels import Label

LABELS = "labels.npy"
WIDTH = {"class": 1, "choice": 1, "number": 1, "tags": 1, "span": 2, "links": 4}
"""Form of the labels -> numbers of a row; the last one is a name's where the form has names."""
NAMED = ("class", "tags", "links")


class Labelled(Corpus):
    """A corpus of kind "labelled"."""

    kind = "labelled"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.form: str = self.manifest.get("form", "")
        self.labels: list[str] = self.manifest.get("labels", [])
        if self.form not in WIDTH or not isinstance(self.labels, list):
            raise DataError(f"{path / MANIFEST} is damaged: it does not say what the labels are")

    @functools.cached_property
    def values(self) -> Any:
        """The rows of the labels."""
        self.check_file(LABELS)
        rows = np.load(self.path / LABELS, mmap_mode="r", allow_pickle=False)
        count = {"tags": self.num_sentences, "links": len(rows)}.get(self.form, self.num_documents)
        wild = self.form in NAMED and (rows[:, -1] >= len(self.labels)).any()
        if rows.shape != (count, WIDTH[self.form]) or wild:
            raise DataError(f"{self.path / LABELS} has not the labels of {count} rows")
        return rows

    @functools.cached_property
    def source_lengths(self) -> Ids:
        """How many tokens each record has, all parts together."""
        return self.document_lengths()

    @functools.cached_property
    def target_lengths(self) -> Ids:
        """Zeros: labels have no tokens."""
        return np.zeros(self.num_documents, np.int64)

    @functools.cached_property
    def source_parts(self) -> Ids:
        """How many parts each record has."""
        return np.diff(self.documents)

    def __len__(self) -> int:
        return self.num_documents

    def record(self, index: int) -> tuple[list[Ids], Any]:
        """The parts of a text, and its labels.

        A class or number is [1], tags are [words], a span is [2], links are [links, 3].
        """
        parts, values = self.document(index), self.values
        if self.form == "tags":
            first, last = self.documents[index : index + 2]
            return parts, np.array(values[first:last, 0])
        if self.form == "links":
            low, high = np.searchsorted(values[:, 0], [index, index + 1])  # sorted by record
            return parts, np.array(values[low:high, 1:])
        return parts, np.array(values[index])

    def shortened(self, labels: Any, source: list[Ids], most: int) -> tuple[list[Ids], Any]:
        """A text as shortened, with the labels that remain."""
        left = len(source[-1])
        if self.form == "tags":
            kept = np.array([len(part) > 0 for part in source])  # words that are cut off
            return [part for part in source if len(part)], labels[kept]
        if self.form == "links":
            return source, labels[labels[:, 1] <= left]
        if self.form == "span" and labels[1] > left:
            return source, np.full(2, -1)
        return source, labels

    def made_up(self, parts: list[Ids], words: Ids) -> Any:
        """Labels of a text that is not in the corpus, to measure layouts with."""
        if self.form == "number":
            return np.zeros(1, np.float32)
        # labels whatever the head: a task lays them out to show its towers and sizes
        made = {"tags": np.zeros(len(parts), np.int64), "span": np.arange(2)}
        made["links"] = np.array([[0, 1, 0]])
        return made.get(self.form, np.zeros(1, np.int64))


class Spans(Labelled):
    """A corpus of kind "spans"."""

    kind = "spans"


class Linked(Labelled):
    """A corpus of kind "linked"."""

    kind = "linked"


def names_of(form: str, labels: Iterable[Label]) -> set[str]:
    """The names in labels of this form; numbers and places have none."""
    if form == "links":
        return {name for label in labels for _, _, name in label}
    return {name for label in labels for name in label} if form in NAMED else set()


class LabelWriter:
    """Collects the labels of records in order, and writes them beside their texts.

    `known` are the allowed names (those of train); None: any name. `extra` are names that are
    stored although no record may have them.
    """

    def __init__(
        self, form: str, known: Sequence[str] | None = None, extra: Iterable[str] = ()
    ) -> None:
        self.form, self.known, self.extra = form, known, extra
        self.names: dict[str, int] = {name: i for i, name in enumerate(known or ())}
        self.rows, self.count = array("d" if form == "number" else "q"), 0

    def number(self, name: str, where: str) -> int:
        """The number of a name; names are numbered in the order of appearance."""
        if self.known is not None and name not in self.names:
            known = shorten(", ".join(self.known), 300, placeholder=" ...")
            cure = "--extra-labels takes it as one that no text of train has"
            raise DataError(f"{where}: {name!r} is not a label of train: {known}; {cure}")
        return self.names.setdefault(name, len(self.names))

    def add(self, labels: Iterable[tuple[Label, str]]) -> None:
        """Append the labels of some records; errors name their places."""
        for label, where in labels:
            if self.form in ("class", "tags"):
                self.rows.extend(self.number(name, where) for name in label)
            elif self.form == "links":
                for start, stop, name in label:
                    self.rows.extend((self.count, start, stop, self.number(name, where)))
            else:
                self.rows.extend(label)
            self.count += 1

    def join(self, corpus: Labelled) -> None:
        """Append the labels of a corpus."""
        rows = np.array(corpus.values)
        if self.form in NAMED:
            names = [self.number(name, str(corpus.path)) for name in corpus.labels]
            rows[:, -1] = np.array(names, np.int64)[rows[:, -1]]  # theirs -> ours
        if self.form == "links":
            rows[:, 0] += self.count
        self.rows.extend(rows.ravel().tolist())
        self.count += len(corpus)

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the labels; returns what the manifest records about them."""
        rows = np.array(self.rows).reshape(-1, WIDTH[self.form])
        names = [*self.names] if self.known is not None else sorted({*self.names, *self.extra})
        if self.form in NAMED and len(rows):
            # numbered as they came, stored by the alphabet: shards and files in any order agree
            place = {name: i for i, name in enumerate(names)}
            rows[:, -1] = np.array([place[name] for name in self.names])[rows[:, -1]]
        np.save(
            create(folder / LABELS), rows.astype(np.float32 if self.form == "number" else np.int64)
        )
        return {"form": self.form, "labels": names}
