"""The binary corpus: sentences as ids, one after the other, with two indices over them.

    tokens.bin      the ids of all sentences, uint16 or int32, nothing stored between them
    sentences.npy   int64 [S + 1], where each sentence begins in the tokens; the last entry is T
    documents.npy   int64 [D + 1], the first sentence of each document; the last entry is S
    blocks.sha256   SHA-256 of every 2 ** 20 bytes of the tokens, 32 bytes each
    words.npy       int64 [S + 1], the words before each sentence; the last entry is their number
    notes.bin       with `--annotate`: the annotation byte of each token
    vocab/          what the ids mean
    manifest.json   kind, counts, size and SHA-256 of every file and of itself, written last

A corpus of pairs has two such folders, source/ and target/: pair i is document i of both, and the
sentences of a source document are its parts. Files are mapped into memory, so that opening takes
milliseconds: sizes are checked then, an index and a block of tokens when it is first read. Format 1
had no blocks.sha256 and no hash of the manifest; corpora of earlier versions have no words.npy.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from unitk import files
from unitk.data.corpus.offsets import IndexFile, mapped, offsets
from unitk.errors import DataError
from unitk.files import MANIFEST, create, open_plain
from unitk.foreign import read_json
from unitk.slots import Ids
from unitk.vocab.base import Vocab

FORMAT = 2
VOCAB = "vocab"
TOKENS, SENTENCES, DOCUMENTS = "tokens.bin", "sentences.npy", "documents.npy"
NOTES = "notes.bin"
WORDS = "words.npy"
BLOCKS, BLOCK = "blocks.sha256", 1 << 20
SIDES = ("source", "target")
SMALL = 65_500  # vocabularies with fewer ids are stored as uint16; above that a few ids stay free


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

    def __str__(self) -> str:
        # a script without blanks has no words to speak of
        spaced = self.tokens < 8 * self.words
        rate = f" {self.tokens / self.words:.2f} tokens a word," if spaced else ""
        return (
            f"{self.documents:,} documents, {self.sentences:,} sentences, {self.tokens:,} tokens,"
            f"{rate} {self.unknown_rate:.2%} unknown"
        )


class Stored:
    """What all kinds of corpora have in common, opened for reading."""

    kind: ClassVar[str]
    note = ""  # what else there is to say of it

    def __init__(self, path: Path) -> None:
        self.path, self.manifest = path, manifest_of(path)
        if self.manifest["kind"] != self.kind:
            raise DataError(f"{path} holds {self.manifest['kind']}, not {self.kind}")
        check_files(path, self.manifest["files"], hashed=False)
        self.vocab_hash: str = self.manifest["vocab"]
        # what follows from the text is left out: the same text has the fingerprint it always had
        hashes = sorted(
            (name, entry["sha256"])
            for name, entry in self.manifest["files"].items()
            if not (name.endswith(WORDS) or name == BLOCKS)
        )
        if languages := self.manifest.get("languages"):
            hashes.append(("languages", languages))
        self.fingerprint = hashlib.sha256(json.dumps(hashes).encode()).hexdigest()

    def made_up(self, parts: list[Ids], words: Ids) -> Any:
        """A target for parts that are not in the corpus, to measure layouts with."""
        return words

    def verify(self) -> None:
        """Compare all files with the manifest; a `DataError` names the first that differs."""
        check_files(self.path, self.manifest["files"], hashed=True)


class Corpus(Stored):
    """A corpus of kind "text"."""

    kind = "text"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.file = path / TOKENS
        try:
            self.counts = Counts(**self.manifest["counts"])
            # files are little-endian on every machine
            self.dtype = np.dtype(self.manifest["dtype"]).newbyteorder("<")
            size = self.counts.tokens * self.dtype.itemsize
            good = self.manifest["files"][TOKENS]["size"] == size
            self._hashes = self._block_hashes(size)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"{path / MANIFEST} is damaged ({error!r})") from error
        if not good:
            raise DataError(f"{self.file} does not hold {self.counts.tokens} tokens")
        counts = self.counts
        self.num_documents, self.num_sentences = counts.documents, counts.sentences
        self.num_tokens = counts.tokens
        self._seen = bytearray(len(self._hashes) // 32)
        # an empty file cannot be mapped: the shard of a small corpus may have nothing
        self._tokens: npt.NDArray[Any] = (
            mapped(self.file, self.dtype) if counts.tokens else np.empty(0, self.dtype)
        )

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
    def holds(self) -> bool:
        """Whether the corpus has any text."""
        return self.num_tokens > 0

    def check_file(self, name: str) -> None:
        """Compare one file with its SHA-256."""
        check_files(self.path, {name: self.manifest["files"].get(name)}, hashed=True)

    @functools.cached_property
    def sentences(self) -> Ids:
        """Where each sentence begins in the tokens."""
        return self._index(SENTENCES, self.num_sentences, self.num_tokens)

    @functools.cached_property
    def documents(self) -> Ids:
        """The first sentence of each document."""
        return self._index(DOCUMENTS, self.num_documents, self.num_sentences)

    @property
    def token_files(self) -> tuple[Corpus, ...]:
        """The corpora that hold its tokens."""
        return (self,)

    @property
    def has_words(self) -> bool:
        """Whether the number of words of each sentence is stored."""
        return WORDS in self.manifest.get("files", ())

    @functools.cached_property
    def words(self) -> Ids:
        """The number of words before each sentence."""
        return self._index(WORDS, self.num_sentences, self.counts.words)

    def _index(self, name: str, count: int, total: int) -> Ids:
        """The offsets in an index file: `count` + 1 of them, rising from 0 to `total`."""
        self.check_file(name)
        return offsets(self.path / name, count, total)

    def _check_blocks(self, start: int, stop: int) -> None:
        """Compare a block of tokens with its hash when it is first read."""
        size = self.dtype.itemsize
        # each block once in a process, as it is read: to hash a large corpus takes long
        for block in range(start * size // BLOCK, -(-min(stop, self.num_tokens) * size // BLOCK)):
            if not self._seen[block]:
                first, last = (edge * BLOCK // size for edge in (block, block + 1))
                found = hashlib.sha256(self._tokens[first:last].data).digest()
                if found != self._hashes[32 * block :][:32]:
                    raise DataError(
                        f"{self.file} was altered: its bytes from {block * BLOCK:,} on are not"
                        f" those of {BLOCKS}"
                    )
                self._seen[block] = True

    def tokens(self, start: int, stop: int) -> Ids:
        """The ids from token `start` up to token `stop`, across sentences."""
        if self._seen:
            self._check_blocks(start, stop)
        return self._tokens[start:stop].astype(np.int64)

    @functools.cached_property
    def _notes(self) -> npt.NDArray[Any] | None:
        if NOTES not in self.manifest["files"]:
            return None
        self.check_file(NOTES)
        notes = mapped(self.path / NOTES, np.uint8) if self.num_tokens else np.empty(0, np.uint8)
        if len(notes) != self.num_tokens:
            raise DataError(f"{self.path / NOTES} has {len(notes)} bytes for {self.num_tokens} ids")
        return notes

    def notes(self, *runs: tuple[int, int]) -> Ids | None:
        """The annotation bytes of runs of tokens, joined, if the corpus has some."""
        if (notes := self._notes) is None:
            return None
        return np.concatenate([notes[slice(*run)] for run in runs]).astype(np.int64)

    def first_beyond(self, size: int) -> str:
        """Where the first id of a vocabulary beyond `size` is, as a message; "" if nowhere."""
        for start in range(0, len(self._tokens), 1 << 22):
            some = self._tokens[start : start + (1 << 22)]
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


class Pairs(Stored):
    """A corpus of kind "pairs"."""

    kind = "pairs"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
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
        """The number of tokens of each source, over all parts."""
        return self.source.document_lengths()

    @functools.cached_property
    def target_lengths(self) -> Ids:
        """The number of tokens of each target."""
        return self.target.document_lengths()

    @functools.cached_property
    def source_parts(self) -> Ids:
        """The number of parts of each source."""
        return np.diff(self.source.documents)

    @property
    def token_files(self) -> tuple[Corpus, ...]:
        """The corpora that hold its tokens."""
        return self.source, self.target

    @property
    def holds(self) -> bool:
        """Whether the corpus has any pair."""
        return len(self) > 0

    def __len__(self) -> int:
        return self.source.num_documents

    def shortened(self, target: Ids, source: list[Ids], most: int) -> tuple[list[Ids], Ids]:
        """A pair, its source as shortened and its target cut to this many tokens."""
        return source, target[:most]

    def record(self, index: int) -> tuple[list[Ids], Ids]:
        """The parts of a source, and its target."""
        first, last = self.target.documents[index : index + 2]
        start, stop = self.target.sentences[first], self.target.sentences[last]
        return self.source.document(index), self.target.tokens(start, stop)


def manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest of a corpus folder."""
    path = folder / MANIFEST
    manifest = read_json(path)
    if not {"format", "kind", "vocab", "files"} <= set(manifest):
        raise DataError(f"{path} is not a manifest of a corpus")
    if manifest["format"] not in (1, FORMAT):
        raise DataError(
            f"{path} has format {manifest['format']}, but this unitk reads formats 1 and {FORMAT}:"
            " preprocess the text again"
        )
    if manifest["format"] == FORMAT and manifest.pop("sha256", None) != _own_hash(manifest):
        raise DataError(f"{path} was altered: its SHA-256 is not its own")
    return manifest


def check_files(folder: Path, entries: dict[str, Any], hashed: bool) -> None:
    """Compare files with the sizes that a manifest lists, and where `hashed` with the SHA-256."""
    if fault := files.differs(folder, entries, lambda name: hashed):
        raise DataError(f"{folder}{os.sep}{fault}")


def write_manifest(folder: Path, about: dict[str, Any]) -> None:
    """Write `about`, with the size and SHA-256 of every file in the folder."""
    entries = {}
    for name, path in files.below(folder).items():
        side = path.parent / MANIFEST  # what stands there of a side of pairs has been hashed
        known = read_json(side)["files"] if side.is_file() and path.parent != folder else {}
        entries[name] = known.get(path.name) or files.entry(path)
    manifest = {"format": FORMAT, **about, "files": entries}
    text = json.dumps(manifest | {"sha256": _own_hash(manifest)}, indent=1, ensure_ascii=False)
    create(folder / MANIFEST, text + "\n")


def _own_hash(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(manifest).encode()).hexdigest()


def digest(paths: Sequence[Path], *words: str) -> str:
    """A hash of files, and of words."""
    return hashlib.sha256(" ".join([*map(files.digest, paths), *words]).encode()).hexdigest()


def stored_dtype(vocab_size: int) -> np.dtype[Any]:
    """The integer type in which ids are stored."""
    return np.dtype("<u2" if vocab_size < SMALL else "<i4")


class CorpusWriter:
    """Writes the tokens and indices of a text corpus into a folder as they come."""

    def __init__(
        self, folder: Path, vocab_size: int, notes: bool = False, words: bool = False
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.dtype = stored_dtype(vocab_size)
        self.counts = Counts()
        self._tokens = open_plain(folder / TOKENS, "wb")
        self._notes = open_plain(folder / NOTES, "wb") if notes else None
        self._sentences = IndexFile(folder / SENTENCES)
        self._documents = IndexFile(folder / DOCUMENTS)
        self._words = IndexFile(folder / WORDS) if words else None
        for index in filter(None, (self._sentences, self._words)):
            index.add(np.zeros(1, np.int64))
        self._open = False  # whether the last document has a sentence yet

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
        self._tokens.write(np.ascontiguousarray(ids, self.dtype).data)
        if self._notes:
            assert notes is not None and len(notes) == len(ids)
            self._notes.write(np.ascontiguousarray(notes, np.uint8).data)
        self._sentences.add(self.counts.tokens + np.cumsum(lengths))
        if self._words and words is not None:
            self._words.add(self.counts.words + np.cumsum(words))
            self.counts.words += int(words.sum())
        begins = sizes > 0  # one without a sentence is no document
        if len(sizes):
            joined = goes_on and self._open
            self._open = bool(begins[-1]) or (joined and len(sizes) == 1)
            begins[0] &= not joined  # its first sentences belong to what was written
        first = self.counts.sentences + np.cumsum(sizes) - sizes
        self._documents.add(first[begins])
        self.counts.documents += int(begins.sum())
        self.counts.sentences += len(lengths)
        self.counts.tokens += len(ids)

    def close(self, about: dict[str, Any]) -> None:
        """Complete the files; write the manifest with `about`, which the writer does not know."""
        self._documents.add(np.array([self.counts.sentences]))
        for file in (self._tokens, self._sentences, self._documents, self._words, self._notes):
            if file:
                file.close()
        with (self.folder / TOKENS).open("rb") as tokens:
            blocks = [
                hashlib.sha256(block).digest() for block in iter(lambda: tokens.read(BLOCK), b"")
            ]
        create(self.folder / BLOCKS, b"".join(blocks))
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
