"""The binary corpus: sentences as ids, one after the other, with two indices over them.

    tokens.bin      the ids of all sentences, uint16 or int32, nothing stored between them
    sentences.npy   int64 [S + 1], where each sentence begins in the tokens; the last entry is T
    documents.npy   int64 [D + 1], the first sentence of each document; the last entry is S
    vocab/          what the ids mean
    manifest.json   kind, counts, size and SHA-256 of every file, written last

A corpus of pairs has two such folders, source/ and target/: pair i is document i of both, and the
sentences of a source document are its parts. Files are mapped into memory, so that opening takes
milliseconds; sizes are checked then, contents by `verify` only.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unitk import files
from unitk.errors import DataError, UsageError
from unitk.slots import Ids
from unitk.vocab import Vocab

FORMAT = 1
MANIFEST, VOCAB = "manifest.json", "vocab"
TOKENS, SENTENCES, DOCUMENTS = "tokens.bin", "sentences.npy", "documents.npy"
SIDES = ("source", "target")
SMALL = 65_500
"""Vocabularies with fewer ids are stored as uint16; above that a few ids stay free."""


@dataclass
class Counts:
    """What a corpus holds; `words` stand between blanks, `unknown` are tokens."""

    documents: int = 0
    sentences: int = 0
    tokens: int = 0
    words: int = 0
    unknown: int = 0

    @property
    def unknown_rate(self) -> float:
        """Share of tokens that are the unknown symbol."""
        return self.unknown / max(self.tokens, 1)

    def __str__(self) -> str:
        return (
            f"{self.documents:,} documents, {self.sentences:,} sentences, {self.tokens:,} tokens,"
            f" {self.tokens / max(self.words, 1):.2f} tokens a word,"
            f" {self.unknown_rate:.2%} unknown"
        )


class Corpus:
    """A corpus of kind "text", opened for reading."""

    kind = "text"
    note = ""
    """What else there is to say of it."""

    def __init__(self, path: Path) -> None:
        self.path, self.manifest = path, read_manifest(path, self.kind)
        self.file = path / TOKENS
        self.vocab_hash: str = self.manifest["vocab"]
        self.fingerprint = _fingerprint(self.manifest)
        try:
            self.counts = Counts(**self.manifest["counts"])
            self.dtype = np.dtype(self.manifest["dtype"]).newbyteorder("<")
        except (KeyError, TypeError) as error:
            raise DataError(f"{path / MANIFEST} is damaged ({error!r})") from error
        counts = self.counts
        self.num_documents, self.num_sentences = counts.documents, counts.sentences
        self.num_tokens = counts.tokens
        self.sentences = _index(path / SENTENCES, counts.sentences, counts.tokens)
        self.documents = _index(path / DOCUMENTS, counts.documents, counts.sentences)
        if self.file.stat().st_size != counts.tokens * self.dtype.itemsize:
            raise DataError(f"{self.file} does not hold {counts.tokens} tokens")
        # an empty file cannot be mapped: the shard of a small corpus may have nothing
        self._tokens: npt.NDArray[Any] = (
            mapped(self.file, self.dtype) if counts.tokens else np.empty(0, self.dtype)
        )

    def tokens(self, start: int, stop: int) -> Ids:
        """The ids from token `start` up to token `stop`, across sentences."""
        return self._tokens[start:stop].astype(np.int64)

    def first_beyond(self, size: int, chunk: int = 1 << 22) -> str:
        """Where the first id of a vocabulary larger than `size` stands, in words, or nothing."""
        for start in range(0, len(self._tokens), chunk):
            some = self._tokens[start : start + chunk]
            if some.max() >= size or some.min() < 0:
                place = start + int(((some >= size) | (some < 0)).argmax())
                byte = place * self._tokens.itemsize
                return f"{self.file}: token {self._tokens[place]} at byte {byte:,}"
        return ""

    def document(self, index: int) -> list[Ids]:
        """The sentences of a document."""
        first, last = self.documents[index : index + 2]
        edges = self.sentences[first : last + 1]
        return [self.tokens(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]

    def document_lengths(self) -> Ids:
        """How many tokens each document has."""
        return np.diff(self.sentences[self.documents])

    def verify(self) -> None:
        """Compare the contents of all files with the manifest: a `DataError` names the first."""
        verify(self.path, self.manifest)


class Pairs:
    """A corpus of kind "pairs", opened for reading."""

    kind = "pairs"
    note = ""

    def __init__(self, path: Path) -> None:
        self.path, self.manifest = path, read_manifest(path, self.kind)
        self.vocab_hash: str = self.manifest["vocab"]
        self.fingerprint = _fingerprint(self.manifest)
        self.source, self.target = (Corpus(path / side) for side in SIDES)
        self._check_even()

    def _check_even(self) -> None:
        if self.source.num_documents != self.target.num_documents:
            raise DataError(
                f"{self.path}: {self.source.num_documents} sources,"
                f" but {self.target.num_documents} targets"
            )

    @functools.cached_property
    def source_lengths(self) -> Ids:
        """How many tokens each source has, all parts together."""
        return self.source.document_lengths()

    @functools.cached_property
    def target_lengths(self) -> Ids:
        """How many tokens each target has."""
        return self.target.document_lengths()

    def __len__(self) -> int:
        return self.source.num_documents

    def pair(self, index: int) -> tuple[list[Ids], Ids]:
        """The parts of a source, and its target."""
        first, last = self.target.documents[index : index + 2]
        start, stop = self.target.sentences[first], self.target.sentences[last]
        return self.source.document(index), self.target.tokens(start, stop)

    def verify(self) -> None:
        """Compare the contents of all files with the manifest: a `DataError` names the first."""
        verify(self.path, self.manifest)


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest of a corpus folder."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_bytes())
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"{path} is damaged ({error})") from error
    if not isinstance(manifest, dict) or not {"format", "kind", "vocab", "files"} <= set(manifest):
        raise DataError(f"{path} is no manifest of a corpus")
    if manifest["format"] != FORMAT:
        raise DataError(
            f"{path} has format {manifest['format']}, but this unitk reads format {FORMAT}:"
            " preprocess the text again"
        )
    return manifest


def read_manifest(folder: Path, kind: str) -> dict[str, Any]:
    """The manifest of a corpus folder, after a look at the size of every file."""
    manifest = manifest_of(folder)
    if manifest["kind"] != kind:
        raise DataError(f"{folder} holds {manifest['kind']}, not {kind}")
    for name, entry in manifest["files"].items():
        path = folder / name
        if not path.is_file():
            raise DataError(f"{path} is missing")
        if path.stat().st_size != entry["size"]:
            raise DataError(
                f"{path} has {path.stat().st_size:,} bytes instead of {entry['size']:,}:"
                " it was truncated or altered"
            )
    return manifest


def verify(folder: Path, manifest: dict[str, Any]) -> None:
    """Compare every file with its SHA-256."""
    for name, entry in manifest["files"].items():
        if _sha256(folder / name) != entry["sha256"]:
            raise DataError(f"{folder / name} was altered: its SHA-256 is not the manifest's")


def write_manifest(folder: Path, about: dict[str, Any]) -> None:
    """Write `about` with the size and SHA-256 of every file below the folder."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    entries = {
        path.relative_to(folder).as_posix(): {
            "size": path.stat().st_size,
            "sha256": _sha256(path),
        }
        for path in files
    }
    text = json.dumps({"format": FORMAT, **about, "files": entries}, indent=1, ensure_ascii=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def _sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error


def digest(paths: Sequence[Path], *words: str) -> str:
    """A hash of files, and of words."""
    return hashlib.sha256(" ".join([*map(_sha256, paths), *words]).encode()).hexdigest()


def _fingerprint(manifest: dict[str, Any]) -> str:
    hashes = sorted((name, entry["sha256"]) for name, entry in manifest["files"].items())
    return hashlib.sha256(json.dumps(hashes).encode()).hexdigest()


def _header(count: int) -> bytes:
    """The start of an .npy file of `count` int64, always of the same length."""
    about = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({count},), }}"
    return b"\x93NUMPY\x01\x00" + bytes([118, 0]) + about.ljust(117).encode() + b"\n"


def _index(path: Path, count: int, total: int) -> Ids:
    """The offsets in an index file: `count` + 1 of them, from 0 to `total`."""
    header = _header(count + 1)
    if path.stat().st_size == len(header) + 8 * (count + 1):
        with path.open("rb") as file:
            whole = file.read(len(header)) == header
        offsets: Ids = mapped(path, "<i8", len(header))
        if whole and offsets[0] == 0 and offsets[-1] == total:
            return offsets
    raise DataError(f"{path} is damaged: it should lead from 0 to {total} in {count} steps")


def stored_dtype(vocab_size: int) -> np.dtype[Any]:
    """How ids are stored."""
    return np.dtype("<u2" if vocab_size < SMALL else "<i4")


class CorpusWriter:
    """Writes the tokens and indices of a text corpus into a folder as they come."""

    def __init__(self, folder: Path, vocab_size: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.dtype = stored_dtype(vocab_size)
        self.counts = Counts()
        self._tokens = (folder / TOKENS).open("wb")
        self._sentences = _IndexFile(folder / SENTENCES)
        self._documents = _IndexFile(folder / DOCUMENTS)
        self._sentences.add(np.zeros(1, np.int64))
        self._open = False  # whether the last document has a sentence yet

    def add(self, ids: npt.NDArray[Any], lengths: Ids, sizes: Ids, goes_on: bool = False) -> None:
        """Append sentences of `lengths` tokens, in documents of `sizes` sentences.

        The first of these documents is the rest of the last one written if it `goes_on`.
        Documents without a sentence are left out.
        """
        self._tokens.write(np.ascontiguousarray(ids, self.dtype).data)
        self._sentences.add(self.counts.tokens + np.cumsum(lengths))
        begins = sizes > 0
        if len(sizes):
            joined = goes_on and self._open
            self._open = bool(begins[-1]) or (joined and len(sizes) == 1)
            begins[0] &= not joined
        first = self.counts.sentences + np.cumsum(sizes) - sizes
        self._documents.add(first[begins])
        self.counts.documents += int(begins.sum())
        self.counts.sentences += len(lengths)
        self.counts.tokens += len(ids)

    def close(self, about: dict[str, Any]) -> None:
        """Complete the files and write the manifest, `about` being what the writer cannot know."""
        self._documents.add(np.array([self.counts.sentences]))
        for file in (self._tokens, self._sentences, self._documents):
            file.close()
        counts = {"counts": asdict(self.counts), "unknown_rate": self.counts.unknown_rate}
        write_manifest(self.folder, {"kind": "text", "dtype": self.dtype.name, **counts, **about})


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


class _IndexFile:
    """An int64 .npy file whose length is known at the end only."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._file.write(_header(0))
        self._count = 0

    def add(self, values: Ids) -> None:
        self._file.write(np.ascontiguousarray(values, "<i8").data)
        self._count += len(values)

    def close(self) -> None:
        self._file.seek(0)
        self._file.write(_header(self._count))
        self._file.close()


@contextmanager
def building(dest: Path, overwrite: bool = False) -> Iterator[Path]:
    """A folder to fill, which becomes `dest` if all goes well and is removed if not."""
    _check_free(dest, overwrite)
    with files.new_folder(dest, "--dest", replace=overwrite) as folder:
        yield folder


def _check_free(dest: Path, overwrite: bool) -> None:
    if not dest.exists() or (dest.is_dir() and not any(dest.iterdir())):
        return
    made = (MANIFEST, f"train/{MANIFEST}", "vocab.json", "*.idx", "dict*.txt")
    if any(any(dest.glob(name)) for name in made):
        if not overwrite:
            raise UsageError(f"--dest {dest} holds a corpus already; --overwrite replaces it")
    else:
        raise UsageError(f"--dest {dest} exists, and is no corpus that could be replaced")


def mapped(path: Path, dtype: npt.DTypeLike, offset: int = 0) -> npt.NDArray[Any]:
    """A file as a plain array that is read where it is looked at; numpy's memmap slices slower."""
    return np.asarray(np.memmap(path, dtype, "r", offset))
