"""fairseq's data-bin folders: dict.txt and, for every split, ids (.bin) and their index (.idx).

    .idx   "MMIDIDX\\0\\0", u64 1, u8 type, u64 N, int32 [N] sizes, int64 [N] offsets into .bin
    .bin   the ids of the N items, one after the other; all little endian

An item is a line followed by the end symbol. If every item of a split has it, it is dropped,
because unitk's layouts add what they need. An item of the end symbol alone is an empty line, which
ends a document. Ids are fairseq's. Opening reads all of .bin once, to find ids without a symbol.
"""

from __future__ import annotations

import codecs
import hashlib
import io
import re
import struct
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unitk import files
from unitk.data.corpus.columns import SMALL, Counts, map_file
from unitk.data.corpus.corpus import Corpus, Pairs
from unitk.data.corpus.folders import build_folder
from unitk.data.corpus.writer import announce, announce_counts
from unitk.data.files.lines import name_file, read_pieces
from unitk.errors import DataError, UsageError, amount, require
from unitk.files import create, open_plain
from unitk.formats.dictionary import (
    END,
    FairseqDictionary,
    build_dictionary,
    dictionaries,
    open_dictionary,
)
from unitk.registry import register
from unitk.slots import Ids
from unitk.vocab.base import Vocab, adopt
from unitk.vocab.open import open_vocab

if TYPE_CHECKING:
    from unitk.data.corpus.preprocess import Options
    from unitk.data.files.files import Files

MAGIC = b"MMIDIDX\x00\x00"
HEADER = struct.Struct("<9sQBQ")
CODES = {1: "u1", 2: "i1", 3: "<i2", 4: "<i4", 5: "<i8", 8: "<u2", 9: "<u4", 10: "<u8"}
OTHERS = {b"TNTIDX\x00\x00": "cached or lazy", b"HUFFIDX\x00": "huffman"}
"""First bytes of the index of fairseq's other formats -> their name in `--dataset-impl`."""
LARGE = (1 << 32) - 1  # ids of vocabularies below `SMALL` are uint16, below this uint32
PAIR = re.compile(r"([^.]+)\.([^.-]+)-([^.-]+)\.([^.-]+)\.idx")


@dataclass(frozen=True)
class SplitFiles:
    """The files of one split without their endings: of a text, or of source and target."""

    stems: tuple[Path, ...]

    @property
    def kind(self) -> str:
        """The kind of its corpus: text or pairs."""
        return "text" if len(self.stems) == 1 else "pairs"

    def vocab(self) -> Vocab:
        """The split's dictionary, extended by the symbols that it lacks.

        Raises `DataError` if source and target have different dictionaries.
        """
        paths = [stem.parent / f"dict{stem.suffix}.txt" for stem in self.stems]
        for path in paths:
            if not path.is_file():
                raise DataError(f"{path} is missing")
        if len({digest_files([path]) for path in paths}) > 1:
            raise DataError(
                f"{paths[0]} and {paths[1].name} differ, but unitk reads pairs of one vocabulary: "
                "make them with fairseq-preprocess --joined-dictionary, or with unitk preprocess "
                "--format fairseq"
            )
        return open_dictionary(paths[0])

    def open(self) -> Corpus | Pairs:
        """Open the split as a corpus."""
        vocab = self.vocab()
        if self.kind == "text":
            return FairseqCorpus(self.stems[0], vocab, lines=False)
        return FairseqPairs(self.stems, vocab)


def find_split(path: Path) -> SplitFiles | None:
    """The split that a path names; None if it has no files.

    FOLDER/train is a text, or pairs if there is one pair of languages. FOLDER/train.de-en names the
    pair, and FOLDER/train.de-en.de one side of it.
    """
    folder, name = path.parent, path.name
    if not name or path.exists() or not folder.is_dir():
        return None
    if folder.joinpath(f"{name}.idx").is_file():
        return SplitFiles((path,))
    pairs: dict[str, tuple[Path, ...]] = {}
    # train.de-en.de.idx: a split, its pair of languages, and one of these
    for file in sorted(folder.glob("*.idx")):
        parts = PAIR.fullmatch(file.name)
        split, first, second = parts.groups()[:3] if parts else ("", "", "")
        if parts and name in (split, f"{split}.{first}-{second}", f"{split}.{second}-{first}"):
            sides = (first, second) if name != f"{split}.{second}-{first}" else (second, first)
            stems = tuple(folder / f"{split}.{first}-{second}.{side}" for side in sides)
            # --only-source with a language
            pairs[f"{first}-{second}"] = stems if second != "None" else stems[:1]
    if len(pairs) > 1:
        raise DataError(f"{path} has several pairs; give {name}.{f' or {name}.'.join(pairs)}")
    return SplitFiles(*pairs.values()) if pairs else None


def splits(folder: Path) -> list[str]:
    """The names of the splits in a folder."""
    return sorted({file.name.partition(".")[0] for file in folder.glob("*.idx")})


def shards(folder: Path) -> list[Path]:
    """The paths of the splits train, train1, train2, ..., which fairseq reads as one."""
    paths = [folder / "train"]
    while find_split(folder / f"train{len(paths)}"):
        paths.append(folder / f"train{len(paths)}")
    return paths


def explain_mismatch(path: Path) -> str:
    """Why a path is no split, as an error message; "" if its folder has no fairseq dictionary."""
    if not path.parent.is_dir() or not dictionaries(path.parent):
        return ""
    if any(file.suffix not in (".idx", ".bin") for file in path.parent.glob(f"{path.name}.*-*")):
        return (
            f"{path}.* are of fairseq's format raw, but unitk reads mmap: preprocess the text again"
            " with --dataset-impl mmap"
        )
    names = ", ".join(splits(path.parent)) or "no .idx"
    return f"{path.parent} holds no split {path.name} of fairseq's format mmap, but {names}"


class FairseqCorpus(Corpus):
    """The items of one index as sentences; `lines`: each item is a document, even an empty one."""

    def __init__(self, stem: Path, vocab: Vocab, lines: bool) -> None:
        self.path = stem
        self.file = stem.with_name(f"{stem.name}.bin")
        self.vocab_hash = vocab.hash
        index = stem.with_name(f"{stem.name}.idx")
        self.dtype, sizes = read_index(index, self.file)
        self._tokens = map_file(self.file, self.dtype) if sizes.any() else np.empty(0, self.dtype)
        if wild := self.first_beyond(vocab.model.size):
            raise DataError(f"{wild} is beyond the {vocab.model.size} of the dictionary")
        # where each item ends, and its last id (0 for an item without any)
        stops = np.cumsum(sizes)
        lasts = np.zeros(len(sizes), self.dtype)
        lasts[sizes > 0] = self._tokens[stops[sizes > 0] - 1]
        self.ended = bool((lasts == END).all())
        """Whether the end symbol of every item is dropped."""
        blank = (sizes == 1) & (lasts == END) & (not lines)
        # blank lines are no sentences: they and the ends of items are passed over
        lengths = (sizes - self.ended)[~blank]
        self.sentences = np.append(0, np.cumsum(lengths))
        self._gaps: Ids = (stops - sizes)[~blank] - self.sentences[:-1]
        """How many ids before each sentence are dropped: the ends of items."""
        # a sentence's document is the number of blank lines before it
        owner = np.arange(len(lengths)) if lines else np.cumsum(blank)[~blank]
        first = np.flatnonzero(np.diff(owner, prepend=-1))
        self.documents = np.append(first, len(lengths))
        self.counts = Counts(len(first), len(lengths), int(self.sentences[-1]))
        self.fingerprint = digest_files([index, self.file], vocab.hash)
        self.manifest = {"kind": "text", "vocab": vocab.hash, "sources": [str(stem)]}
        lack = int((lasts != END).sum())
        kept = f"ends kept, which {lack:,} of {len(sizes):,} items lack"
        self.note = f"; fairseq's, {kept if lack else 'ends of items dropped'}"

    def tokens(self, start: int, stop: int) -> Ids:
        """The ids of the tokens [start, stop), counted without the end symbols that are dropped."""
        # sentences low to high hold the tokens; what is wanted of each is moved by its gap
        low = int(self.sentences.searchsorted(start, "right")) - 1
        high = int(self.sentences.searchsorted(stop))
        counts = np.diff(self.sentences[low : high + 1].clip(start, stop))
        places = np.arange(start, stop) + np.repeat(self._gaps[low:high], counts)
        return self._tokens[places].astype(np.int64)

    def verify(self) -> None:
        """Does nothing, as opening has checked all files."""


class FairseqPairs(Pairs):
    """Pairs of lines: line i of one language with line i of the other."""

    def __init__(self, stems: tuple[Path, ...], vocab: Vocab) -> None:
        self.path = stems[0].with_suffix("")
        self.vocab_hash = vocab.hash
        self.source, self.target = (FairseqCorpus(stem, vocab, lines=True) for stem in stems)
        self.manifest = {"kind": "pairs", "vocab": vocab.hash, "sources": [*map(str, stems)]}
        sides = self.source.fingerprint + self.target.fingerprint
        self.fingerprint = hashlib.sha256(sides.encode()).hexdigest()
        self.note = self.target.note
        self._check_even()


def digest_files(paths: Sequence[Path], *words: str) -> str:
    """A hash of files, and of words."""
    return hashlib.sha256(" ".join([*map(files.digest, paths), *words]).encode()).hexdigest()


def read_index(path: Path, data: Path) -> tuple[np.dtype[Any], Ids]:
    """The type of the ids in `data`, and the sizes of the items.

    Raises `DataError`, of one line, if either file is damaged or of another format.
    """
    try:
        held = data.stat().st_size
        with path.open("rb") as file:
            dtype, count = _read_header(path, file)
            sizes = np.fromfile(file, "<i4", count).astype(np.int64)
            offsets = np.fromfile(file, "<i8", count)
    except OSError as error:
        raise DataError(f"{error.filename or path}: {error.strerror or error}") from error
    ends = np.cumsum(sizes * dtype.itemsize)
    if sizes.min(initial=0) < 0 or (ends - sizes * dtype.itemsize != offsets).any():
        raise DataError(f"{path} is damaged: its sizes and offsets do not fit")
    if held != (expected := int(ends[-1]) if count else 0):
        raise DataError(f"{data} has {held:,} bytes instead of the {expected:,} of {path.name}")
    return dtype, sizes


def _read_header(path: Path, file: io.BufferedReader) -> tuple[np.dtype[Any], int]:
    """The type of the ids and the number of items; `DataError` if unitk cannot read the index."""
    head = file.read(HEADER.size)
    for begin, name in OTHERS.items():
        if head.startswith(begin):
            raise DataError(
                f"{path} is of fairseq's format {name}, but unitk reads mmap: preprocess the text "
                "again with --dataset-impl mmap"
            )
    magic, version, code, count = HEADER.unpack(head.ljust(HEADER.size, b"\0"))
    if magic != MAGIC or version != 1:
        raise DataError(f"{path} does not begin as an index of fairseq's format mmap")
    size = path.stat().st_size
    beyond = size - HEADER.size - 12 * count
    # Megatron has the number of documents after the header, their offsets at the end
    if beyond and beyond == 8 + 8 * int.from_bytes(file.read(8), "little"):
        raise DataError(
            f"{path} is Megatron's index, which counts documents too; unitk reads fairseq's: "
            "preprocess the text instead"
        )
    if beyond:
        raise DataError(f"{path} has {size:,} bytes, which are not {count:,} items")
    if code not in CODES:
        kind = "numbers with a fraction" if code in (6, 7) else "no known type"
        raise DataError(f"{path} says that ids are of type {code}, {kind}")
    return np.dtype(CODES[code]), count


def word_counts(paths: Sequence[Path]) -> Counter[str]:
    """Count the words between blanks in files of text."""
    counts: Counter[str] = Counter()
    for line in _lines(paths):
        counts.update(line.split())
    return counts


def write(options: Options, parts: dict[str, Files]) -> dict[str, dict[str, Counts]]:
    """Write the parts of a corpus as fairseq-preprocess does, and print their counts.

    Returns the counts of each side of each part.
    """
    langs = (options.source_lang, options.target_lang)
    sides = ("", "")
    if any(source.targets for source in parts.values()):
        sides = langs
        for lang in langs:
            good = re.fullmatch(r"[^.\-/\s]+", lang) and langs[0] != langs[1]
            require(
                good,
                "--source-lang and --target-lang must differ and have no blank . - or /, got "
                f"{' and '.join(map(repr, langs))}",
            )
    with build_folder(options.dest, options.overwrite) as folder:
        words = _dictionary(options, parts)
        for name in {f"dict.{lang}.txt" if lang else "dict.txt" for lang in sides}:
            create(folder / name, words.data)
        if options.vocab_only:
            return {}
        counts = {}
        for name, source in parts.items():
            counts[name] = write_split(folder, name, source, langs, words)
            announce(f"{name}:")
            for side, count in counts[name].items():
                announce_counts(side, count, source.kind)
    return counts


def _dictionary(options: Options, parts: dict[str, Files]) -> FairseqDictionary:
    if options.vocab is None:
        require("train" in parts, "--format fairseq needs --input or --source-file, or a --vocab")
        train = parts["train"]
        size = options.vocab_size
        require(size is None or size > 4, f"--vocab-size must be above 4, got {size}")
        counts = word_counts([*train.paths, *train.targets])
        words = FairseqDictionary(build_dictionary(counts, size, options.vocab_threshold))
    elif options.vocab.suffix == ".txt" or FairseqDictionary.opens(options.vocab):
        try:  # of numbers too: these are the words of the text
            words = FairseqDictionary(FairseqDictionary.read(options.vocab))
        except (OSError, UnicodeDecodeError, DataError) as error:
            raise DataError(f"--vocab {options.vocab} {error}") from error
    else:
        model = open_vocab(options.vocab).model
        if not isinstance(model, FairseqDictionary):
            raise UsageError(f"--vocab {options.vocab}: --format fairseq needs a dict.txt, or none")
        words = model
    announce(f"vocabulary: {words.size:,} ids")
    return words


def write_split(
    folder: Path, name: str, source: Files, langs: tuple[str, str], words: FairseqDictionary
) -> dict[str, Counts]:
    """Write one part of a text or of pairs as fairseq-preprocess does; returns counts by side."""
    pair = "-".join(langs)
    stems = [folder / f"{name}.{pair}.{lang}" for lang in langs]
    sides = {"source": source.paths, "target": source.targets}
    if not source.targets:
        stems = [folder / name]
        sides = {"": source.paths}
    vocab = adopt(words)
    counts = {}
    for stem, (side, paths) in zip(stems, sides.items(), strict=True):
        unknown = _write_side(stem, paths, words)
        corpus = FairseqCorpus(stem, vocab, lines=bool(side))
        if not corpus.has_texts:
            raise DataError(f"{paths[0]}: there is no text in it")
        counts[side] = corpus.counts
        corpus.counts.words = corpus.counts.tokens
        corpus.counts.unknown = unknown
    numbers = [of_side.sentences for of_side in counts.values()]
    if len(set(numbers)) > 1:
        first, second = source.paths[0], source.targets[0]
        has = amount(numbers[0], "lines")
        raise DataError(f"{first} has {has}, but {second} has {numbers[1]:,}")
    return counts


def _write_side(stem: Path, paths: Sequence[Path], words: FairseqDictionary) -> int:
    """Write each line of some files as an item; returns the number of unknown words."""
    code = 8  # of `CODES`: the smallest type that holds all ids
    if words.size >= SMALL:
        code = 9 if words.size < LARGE else 5
    dtype = np.dtype(CODES[code])
    unknown = 0
    sizes = array("i")
    with open_plain(stem.with_name(f"{stem.name}.bin"), "wb") as file:
        for line in _lines(paths):
            ids = words.line(line)
            file.write(np.array(ids, dtype).data)
            sizes.append(len(ids))
            unknown += ids.count(words.unk)
    # offsets pass 2 GB, sizes do not
    bytes_of_items = np.array(sizes, np.int64) * dtype.itemsize
    with open_plain(stem.with_name(f"{stem.name}.idx"), "wb") as file:
        file.write(HEADER.pack(MAGIC, 1, code, len(sizes)))
        file.write(np.array(sizes, "<i4").data)
        file.write((np.cumsum(bytes_of_items) - bytes_of_items).astype("<i8").data)
    return unknown


def _lines(paths: Sequence[Path]) -> Iterator[str]:
    """The lines of files as Python reads them: a lone carriage return ends a line, too."""
    for path in paths:
        decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder("utf-8")(), True)
        number, waiting = 0, ""
        try:
            for piece, _ in read_pieces(path):
                *lines, waiting = (waiting + decoder.decode(piece)).split("\n")
                number += len(lines)
                yield from (f"{line}\n" for line in lines)
            if waiting := waiting + decoder.decode(b"", final=True):
                yield waiting
        except UnicodeDecodeError as error:
            raise DataError(f"{name_file(path)}, after line {number}: not UTF-8") from error


@register("corpus", "fairseq")
class FairseqFormat:
    """fairseq's data-bin folders, which fairseq-preprocess writes."""

    find = staticmethod(find_split)
    splits, shards = staticmethod(splits), staticmethod(shards)
    explain_mismatch, write = staticmethod(explain_mismatch), staticmethod(write)
