"""The binary corpus: a folder of columns, and a manifest that says what they are.

    tokens.bin, ... the columns (see `columns`)
    blocks.sha256   SHA-256 of every 2 ** 20 bytes of the tokens, 32 bytes each
    vocab/          what the ids mean
    manifest.json   kind, counts, size and SHA-256 of every file and of itself, written last

A corpus of pairs has two such folders, source/ and target/: pair i is document i of both, and the
sentences of a source document are its parts. A document of labelled texts is a record, too. Files
are mapped into memory, so that opening takes milliseconds: sizes are checked then, a column and a
block of tokens when they are first read. Format 1 had no blocks.sha256 and no hash of the manifest;
corpora of earlier versions have no words.npy.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from unitk import files
from unitk.data.corpus import columns
from unitk.errors import DataError
from unitk.files import MANIFEST
from unitk.foreign import read_json
from unitk.pretrained import locate
from unitk.slots import Ids

FORMAT = 2
VOCAB = "vocab"
BLOCKS = "blocks.sha256"
BLOCK = 1 << 20
ELSEWHERE = ".remote"
"""File of a copy: the address of its tokens, which stay in a store and are read by blocks."""
SIDES = ("source", "target")


class StoredCorpus:
    """The base of all kinds of corpora, opened for reading."""

    kinds: ClassVar[Sequence[str]]
    note = ""  # what else there is to say of it

    def __init__(self, path: Path) -> None:
        self.path = path
        self.manifest = manifest_of(path)
        if self.kind not in self.kinds:
            raise DataError(f"{path} holds {self.kind}, not {self.kinds[0]}")
        check_files(path, self.manifest["files"], hashed=False)
        self.vocab_hash: str = self.manifest["vocab"]
        # what follows from the text is left out: the same text has the fingerprint it always had
        hashes = sorted(
            (name, entry["sha256"])
            for name, entry in self.manifest["files"].items()
            if not (name.endswith(columns.WORDS.file) or name == BLOCKS)
        )
        if languages := self.manifest.get("languages"):
            hashes.append(("languages", languages))
        self.fingerprint = hashlib.sha256(json.dumps(hashes).encode()).hexdigest()

    @property
    def kind(self) -> str:
        """The kind of the corpus: a key of `folders.CORPORA`."""
        return str(self.manifest["kind"])

    @property
    def sides(self) -> tuple[Corpus, ...]:
        """The corpora that hold its tokens: itself, or sources and targets."""
        raise NotImplementedError

    @property
    def has_texts(self) -> bool:
        """Whether the corpus has any text."""
        return any(side.counts.tokens for side in self.sides)

    def __len__(self) -> int:
        """The number of documents, which are the records of all kinds but text."""
        return self.sides[0].counts.documents

    @functools.cached_property
    def source_lengths(self) -> Ids:
        """How many tokens each source has, all parts together."""
        return self.sides[0].document_lengths()

    @functools.cached_property
    def source_parts(self) -> Ids:
        """How many parts each source has."""
        return np.diff(self.sides[0].documents)

    @functools.cached_property
    def target_lengths(self) -> Ids:
        """How many tokens each target has; labels have none."""
        targets = self.sides[1:]
        return targets[0].document_lengths() if targets else np.zeros(len(self), np.int64)

    def placeholder(self, parts: list[Ids], words: Ids) -> Any:
        """A target for parts that are not in the corpus, to measure layouts with."""
        return words

    def verify(self) -> None:
        """Compare all files with the manifest; a `DataError` names the first that differs."""
        apart = [side.path for side in self.sides if (side.path / ELSEWHERE).exists()]
        blocks = {path / columns.TOKENS.file for path in apart}
        entries = self.manifest["files"]
        local = {name: entry for name, entry in entries.items() if self.path / name not in blocks}
        check_files(self.path, local, hashed=True)
        if blocks:
            for side in self.sides:
                side.check_blocks(0, side.counts.tokens)


class Corpus(StoredCorpus):
    """A corpus of kind "text"."""

    kinds: ClassVar[Sequence[str]] = ("text",)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.file = path / columns.TOKENS.file
        try:
            self.counts = columns.Counts(**self.manifest["counts"])
            # files are little-endian on every machine
            self.dtype = np.dtype(self.manifest["dtype"]).newbyteorder("<")
            if not self.has(columns.TOKENS):
                raise KeyError(columns.TOKENS.file)
            self._tokens = columns.TOKENS.read(path, self.counts, self.dtype)
            self._hashes = self._block_hashes(self._tokens.nbytes)
            if (mark := path / ELSEWHERE).exists():
                remote = locate(Path(mark.read_text(encoding="utf-8")), "file")
                assert isinstance(remote, files.RemotePath)
                self._tokens = remote.blocks(self._hashes, self.dtype)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path / MANIFEST} is damaged ({error!r})") from error
        self._seen = bytearray(len(self._hashes) // 32)

    def _block_hashes(self, size: int) -> bytes:
        """The hashes of all blocks of this many bytes; none in format 1."""
        if BLOCKS not in self.manifest["files"]:
            return b""
        self.check_file(BLOCKS)
        hashes = (self.path / BLOCKS).read_bytes()
        if len(hashes) != 32 * -(-size // BLOCK):
            raise DataError(f"{self.path / BLOCKS} is not that of {size:,} bytes")
        return hashes

    @property
    def sides(self) -> tuple[Corpus, ...]:
        return (self,)

    def has(self, column: columns.Column) -> bool:
        """Whether the corpus has a column that not all have."""
        return column.file in self.manifest.get("files", ())

    def check_file(self, name: str) -> None:
        """Compare one file with its SHA-256."""
        check_files(self.path, {name: self.manifest["files"].get(name)}, hashed=True)

    def _read(self, column: columns.Column) -> npt.NDArray[Any]:
        """A column, whose file is compared with its hash."""
        self.check_file(column.file)
        return column.read(self.path, self.counts, self.dtype)

    @functools.cached_property
    def sentences(self) -> Ids:
        """Where each sentence begins in the tokens."""
        return self._read(columns.SENTENCES)

    @functools.cached_property
    def documents(self) -> Ids:
        """The first sentence of each document."""
        return self._read(columns.DOCUMENTS)

    @functools.cached_property
    def words(self) -> Ids:
        """The number of words before each sentence."""
        return self._read(columns.WORDS)

    @functools.cached_property
    def _notes(self) -> npt.NDArray[Any] | None:
        return self._read(columns.NOTES) if self.has(columns.NOTES) else None

    def notes(self, *runs: tuple[int, int]) -> Ids | None:
        """The annotation bytes of runs of tokens, joined, if the corpus has some."""
        if (notes := self._notes) is None:
            return None
        return np.concatenate([notes[slice(*run)] for run in runs]).astype(np.int64)

    def tokens(self, start: int, stop: int) -> Ids:
        """The ids from token `start` up to token `stop`, across sentences."""
        if self._seen:
            self.check_blocks(start, stop)
        return self._tokens[start:stop].astype(np.int64)

    def check_blocks(self, start: int, stop: int) -> None:
        """Compare a block of tokens with its hash when it is first read."""
        size = self.dtype.itemsize
        stop = min(stop, self.counts.tokens)
        # each block once in a process, as it is read: to hash a large corpus takes long
        for block in range(start * size // BLOCK, -(-stop * size // BLOCK)):
            if not self._seen[block]:
                first, last = (edge * BLOCK // size for edge in (block, block + 1))
                digest = hashlib.sha256(self._tokens[first:last].data).digest()
                if digest != self._hashes[32 * block :][:32]:
                    raise DataError(
                        f"{self.file} was altered: "
                        f"its bytes from {block * BLOCK:,} on are not those of {BLOCKS}"
                    )
                self._seen[block] = True

    def chunks(self, column: columns.Column) -> Iterator[npt.NDArray[Any]]:
        """The values of a column, some at a time; of offsets, the sizes that they are sums of."""
        values = self._tokens if column is columns.TOKENS else self._read(column)
        for start in range(0, getattr(self.counts, column.unit), columns.CHUNK):
            chunk = values[start : start + columns.CHUNK + bool(column.within)]
            yield np.diff(chunk) if column.within else chunk

    def first_beyond(self, size: int) -> str:
        """The place of the first id that is not below `size`, as a message; "" if there is none."""
        for start in range(0, len(self._tokens), columns.CHUNK):
            chunk = self._tokens[start : start + columns.CHUNK]
            if chunk.max() >= size or chunk.min() < 0:
                index = start + int(((chunk >= size) | (chunk < 0)).argmax())
                byte = index * self._tokens.itemsize
                return f"{self.file}: token {self._tokens[index]} at byte {byte:,}"
        return ""

    def document(self, index: int) -> list[Ids]:
        """The sentences of a document."""
        first, last = self.documents[index : index + 2]
        edges = self.sentences[first : last + 1]
        return [self.tokens(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]

    def document_lengths(self) -> Ids:
        """How many tokens each document has."""
        return np.diff(self.sentences[self.documents])


class Pairs(StoredCorpus):
    """A corpus of kind "pairs"."""

    kinds = ("pairs",)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.source, self.target = (Corpus(path / side) for side in SIDES)
        self._check_even()

    def _check_even(self) -> None:
        sources, targets = (side.counts.documents for side in self.sides)
        if sources != targets:
            raise DataError(f"{self.path}: {sources} sources, but {targets} targets")

    @property
    def sides(self) -> tuple[Corpus, ...]:
        return self.source, self.target

    def shorten(self, target: Ids, source: list[Ids], limit: int) -> tuple[list[Ids], Ids]:
        """A pair, its source as shortened and its target cut to this many tokens."""
        return source, target[:limit]

    def record(self, index: int) -> tuple[list[Ids], Ids]:
        """The parts of a source, and its target."""
        first, last = self.target.documents[index : index + 2]
        start, stop = self.target.sentences[first], self.target.sentences[last]
        return self.source.document(index), self.target.tokens(start, stop)


class Labelled(Corpus):
    """A corpus of records that lead to labels: of kind "labelled", "spans" or "linked"."""

    kinds = ("labelled", "spans", "linked")

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.form: str = self.manifest.get("form", "")
        self.labels: list[str] = self.manifest.get("labels", [])
        if self.form not in columns.FORMS or not isinstance(self.labels, list):
            raise DataError(f"{path / MANIFEST} is damaged: it does not say what the labels are")
        self._rules = columns.FORMS[self.form]

    @functools.cached_property
    def values(self) -> Any:
        """The rows of the labels."""
        self.check_file(columns.LABELS)
        path = self.path / columns.LABELS
        rules = self._rules
        rows = np.load(path, mmap_mode="r", allow_pickle=False)
        count = getattr(self.counts, rules.unit) if rules.unit else len(rows)
        wild = rules.named and (rows[:, -1] >= len(self.labels)).any()
        if rows.shape != (count, rules.width) or wild:
            raise DataError(f"{path} has not the labels of {count} rows")
        return rows

    def record(self, index: int) -> tuple[list[Ids], Any]:
        """The parts of a text, and its labels.

        A class or number is [1], tags are [words], a span is [2], links are [links, 3].
        """
        return self.document(index), np.array(self._rules.of(self.values, self.documents, index))

    def shorten(self, labels: Any, source: list[Ids], limit: int) -> tuple[list[Ids], Any]:
        """A text as shortened, with the labels that remain."""
        return self._rules.shorten(labels, source)

    def placeholder(self, parts: list[Ids], words: Ids) -> Any:
        """Labels of a text that is not in the corpus, to measure layouts with."""
        return self._rules.placeholder(parts)


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest of a corpus folder."""
    path = folder / MANIFEST
    manifest = read_json(path)
    if not {"format", "kind", "vocab", "files"} <= set(manifest):
        raise DataError(f"{path} is not a manifest of a corpus")
    if manifest["format"] not in (1, FORMAT):
        raise DataError(
            f"{path} has format {manifest['format']}, but "
            f"this unitk reads formats 1 and {FORMAT}: preprocess the text again"
        )
    if manifest["format"] == FORMAT and manifest.pop("sha256", None) != own_hash(manifest):
        raise DataError(f"{path} was altered: its SHA-256 is not its own")
    return manifest


def check_files(folder: Path, entries: dict[str, Any], hashed: bool) -> None:
    """Compare files with the sizes that a manifest lists, and where `hashed` with the SHA-256."""
    if fault := files.differs(folder, entries, lambda name: hashed):
        raise DataError(f"{folder}{os.sep}{fault}")


def own_hash(manifest: dict[str, Any]) -> str:
    """The SHA-256 of a manifest, which it has as its last entry."""
    return hashlib.sha256(json.dumps(manifest).encode()).hexdigest()
