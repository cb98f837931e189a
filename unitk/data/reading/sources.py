"""Readers: files of text become documents of sentences, or pairs of a source and a target.

Files are read in blocks of whole lines, about a megabyte each, so that memory does not grow with
them and blocks can be parsed in parallel. Everything is UTF-8; `.gz`, `.bz2`, `.xz` and `.zst` are
unpacked everywhere. Standard input (`-`) and pipes are copied to a temporary file first, as some
readers need a second pass. Records of tables (json, CSV, parquet) are read in `records.py`.
"""

from __future__ import annotations

import bz2
import functools
import lzma
import re
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from unitk.errors import DataError, UsageError, require
from unitk.foreign import parse_json
from unitk.slots import Ids

BLOCK = 1 << 20
"""Bytes of text parsed at a time. Shards are made of whole blocks, so it is the same everywhere."""
PAIRS_IN_BLOCK = 2000
LONGEST = 16 << 20  # bytes of a line; to encode one takes forty times as much memory
STDIN = Path("-")
Format = Literal[
    "auto", "text", "jsonl", "json", "csv", "tsv", "parquet", "arrow", "conll", "squad"
]
FORMATS = {
    **{"": "text", ".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"},
    **{".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".arrow": "arrow"},
    **{".conll": "conll", ".iob": "conll"},
}
TABLES = ("jsonl", "json", "csv", "tsv", "parquet", "arrow", "conll")  # records with named fields
MAGIC = {
    **{b"PAR1": "parquet", b"\x1f\x8b": "gzip", b"BZh": "bzip2", b"\xfd7zXZ": "xz"},
    **{b"(\xb5/\xfd": "zstd", b"PK\3\4": "zip", b"%PDF": "PDF", b"\x89PNG": "PNG"},
    **{b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"},
}
"""How files begin that are no UTF-8 text."""
SQUAD_SOURCE = "{answer} [SEP] {passage}"
SENTENCE = "{sentence}"  # in such a form: the sentences of the answer
Documents = Literal["blank", "line"]
Sentences = Literal["lines", "punct"]

CAPITALS = "".join(filter(str.isupper, map(chr, range(0x590))))
"""Latin, Greek, Cyrillic and Armenian."""
STOP = re.compile(
    r"[.?!。？！]"  # one set in front of the alternatives: twice as fast
    # a Chinese or Japanese stop needs nothing behind it but may have closing quotes
    r"""(?:(?<=[。？！])["'”’」』）》]*"""
    # the others need a blank and a capital; and no title or initial before the dot
    rf"""|["'”’»)\]]*\s+(?=["'“‘«¿¡(\[]*[{CAPITALS}])"""
    r"(?<!\bMr\.\s)(?<!\bMrs\.\s)(?<!\bMs\.\s)(?<!\bDr\.\s)(?<!\bSt\.\s)(?<!\b[A-Z]\.\s))"
)


@dataclass(frozen=True)
class PairText:
    """A source as its parts, of which only the last may be shortened, and its target."""

    source: list[str]
    target: str
    others: tuple[str, ...] = ()  # further targets that would be as good; only scores know them
    focus: tuple[int, int] | None = None
    """The characters of the last part that a window of it must keep: where the answer stands."""
    label: Any = None  # what it leads to instead of `target`
    where: str = ""  # its place in its file, for errors in the label


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How documents and sentences are separated in a file."""

    format: str = "text"
    documents: Documents = "blank"
    sentences: Sentences = "lines"
    field: tuple[str, ...] = ("text",)
    """Fields of a record that hold texts, each a document of its own."""


@dataclass(frozen=True)
class Block:
    """Whole lines of a file; `at` is where the block begins in all files, in bytes on disk.

    Where documents end at blank lines, a block that is not `fresh` begins inside a document.
    """

    path: Path
    line: int
    at: int
    fresh: bool
    data: bytes
    format: str = "text"
    texts: tuple[str, ...] | None = None
    """The documents of a table that is not read line by line, instead of `data`."""


@dataclass(frozen=True)
class Parsed:
    """The sentences of a block, how many each document has, and their text."""

    sentences: list[str]
    sizes: Ids
    goes_on: bool  # the first document began before the block
    text: bytes


@dataclass(frozen=True)
class PairBlock:
    """Some pairs of a file, with `at` as in `Block`, in bytes of the file of sources."""

    path: Path
    at: int
    pairs: list[PairText]
    window: int | None = None
    """Most tokens of a source: of a longer one's last part, a window is kept."""
    form: str = ""  # of answer and passage: how the source is made of them (`arranged`)
    labels: str = ""  # the form of the labels that they lead to instead of targets
    skipped: int = 0  # records left out because they are empty
    fresh: bool = True


def format_of(path: Path, given: Format = "auto", option: str = "") -> str:
    """The format of a file: the one given, else by its extension, else text.

    With an `option`, a file with an unknown extension that looks like a table or binary data is
    refused.
    """
    if given != "auto":
        return given
    if is_stream(path):
        return "text"
    ending = unpacked(path).suffix.lower()
    if ending == ".json":
        return _kind_of_json(head(path).lstrip())
    if ending not in FORMATS and option:
        start = head(path)
        lines = start.split(b"\n")[:-1][:20]
        counts = [{line.count(mark) for line in lines if line.strip()} for mark in b"\t,;"]
        if b"\0" in start:
            raise DataError(f"{path} looks like binary data (or UTF-16), not like UTF-8 text")
        if len(lines) > 2 and any(len(each) == 1 and 0 not in each for each in counts):
            raise UsageError(
                f"{path} looks like a table; give --input-format csv or tsv, or text if it is none"
            )
    return FORMATS.get(ending, "text")


def _kind_of_json(start: bytes) -> str:
    """The kind of a json file: a list of records, a record a line, or SQuAD."""
    if start.startswith(b"["):
        return "json"
    line, newline, _ = start.partition(b"\n")
    try:
        first = parse_json(line, "")
    except DataError:  # goes on in the next line; or it is long, and SQuAD's key stands in front
        squad = newline or re.search(rb'(?<!\\)"data"\s*:', line)
        return "squad" if squad else "jsonl"
    return "jsonl" if isinstance(first, dict) and "data" not in first else "squad"


def is_stream(path: Path) -> bool:
    """Whether a path can be read only once: standard input, a named pipe or a device."""
    return path == STDIN or path.is_fifo() or path.is_char_device()


def name_of(path: Path) -> str:
    """The name of a file in messages."""
    return "standard input" if path == STDIN else str(path)


def split_sentences(text: str, how: Sentences) -> list[str]:
    """The sentences of a text: its lines, or by full stops; the end of a line always ends one."""
    if how == "punct":
        text = STOP.sub(lambda found: found[0].rstrip() + "\n", text)
    return [sentence for line in text.split("\n") if (sentence := line.strip())]


def _zstd() -> Any:
    try:
        import zstandard
    except ModuleNotFoundError as error:
        needed = "the package zstandard: pip install unitk[zstandard]"
        raise DataError(f".zst files need {needed}") from error
    return zstandard.ZstdDecompressor().decompressobj()


UNPACK: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(31),
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lzma.LZMADecompressor,
    ".zst": _zstd,
}
"""What unpacks files of an ending."""
PACKED = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}


def unpacked(path: Path) -> Path:
    """A path without the ending of a packed file."""
    return path.with_suffix("") if path.suffix in UNPACK else path


@functools.cache
def _spooled(path: Path, stdin: Any) -> IO[bytes]:
    """Copy a stream to a temporary file."""
    file = tempfile.TemporaryFile()
    with nullcontext(stdin) if stdin else path.open("rb") as stream:
        shutil.copyfileobj(stream, file, BLOCK)
    return file


def opened(path: Path) -> AbstractContextManager[IO[bytes]]:
    """Open a file, or the copy of a stream, at its beginning."""
    if not is_stream(path):
        return path.open("rb")
    file = _spooled(path.absolute(), sys.stdin.buffer if path == STDIN else None)
    file.seek(0)
    return nullcontext(file)


def size_of(path: Path) -> int:
    """Bytes on disk."""
    with opened(path) as file:
        return file.seek(0, 2)


def pieces(path: Path) -> Iterator[tuple[bytes, int]]:
    """The unpacked bytes of a file in pieces, each with the bytes on disk that were read so far."""
    kind = f"{PACKED.get(path.suffix, '')} data"
    try:
        after = 0  # counted, as a pipe cannot tell
        with opened(path) as file:
            if path.suffix not in UNPACK:
                while piece := file.read(BLOCK >> 2):
                    after += len(piece)
                    yield piece, after
                return
            # not gzip.open: how far it reads ahead is the library's business, shards depend on it
            unpack = UNPACK[path.suffix]()
            while piece := file.read(BLOCK >> 4):
                after += len(piece)
                while piece := piece.lstrip(b"\0") if unpack.eof else piece:
                    # what is behind the end, and no padding, is another member
                    unpack = UNPACK[path.suffix]() if unpack.eof else unpack
                    yield unpack.decompress(piece), after
                    piece = unpack.unused_data if unpack.eof else b""
            if after and not unpack.eof:
                raise DataError(f"{path}: cut off, the end of the {kind} is missing")
    except OSError as error:
        if error.strerror is None:  # so bz2 says that data are damaged
            raise DataError(f"{path}: no {kind}, or damaged ({error})") from error
        raise DataError(f"{name_of(path)}: {error.strerror}") from error
    except _damage() as error:
        raise DataError(f"{path}: no {kind}, or damaged ({error})") from error


def _damage() -> tuple[type[Exception], ...]:
    """The exceptions that the libraries raise for damaged data."""
    zstd = sys.modules.get("zstandard")
    return (zlib.error, lzma.LZMAError, *([zstd.ZstdError] if zstd else []))


def head(path: Path) -> bytes:
    """The beginning of a file, without a byte order mark."""
    return next((piece for piece, _ in pieces(path)), b"").removeprefix(b"\xef\xbb\xbf")


def blocks(path: Path, blank_ends: bool = False, base: int = 0) -> Iterator[Block]:
    """The lines of a file, about a megabyte at a time."""
    waiting: list[bytes] = []
    size, line, at, fresh = 0, 1, 0, True
    for piece, after in pieces(path):
        if not at and not waiting:
            _check_text(path, piece)
        cut = piece.rfind(b"\n") + 1  # a newline is never part of another character
        if size + cut < BLOCK or not cut:
            waiting.append(piece)
            size += len(piece)
            if size > LONGEST:
                line += sum(one.count(b"\n") for one in waiting)
                most = f"longer than {LONGEST >> 20} MB; break it into several lines"
                raise DataError(f"{name_of(path)}, line {line}: {most}")
            continue
        data = b"".join([*waiting, piece[:cut]])
        yield Block(path, line, base + at, fresh, data)
        waiting, size = [piece[cut:]], len(piece) - cut
        line, at = line + data.count(b"\n"), after
        last = data[data.rfind(b"\n", 0, -1) + 1 :]  # a blank line ends the document
        fresh = not (blank_ends and last.decode("utf-8", "replace").strip())
    if data := b"".join(waiting):
        yield Block(path, line, base + at, fresh, data)


def _check_text(path: Path, start: bytes) -> None:
    for magic, kind in MAGIC.items():
        if start.startswith(magic):
            cure = "" if kind != "UTF-16" else "; `iconv -f UTF-16 -t UTF-8` converts it"
            raise DataError(f"{name_of(path)} is {kind}, not UTF-8 text{cure}")


def lines_of(block: Block) -> list[str]:
    """The lines of a block as text."""
    # only a newline ends a line: other separators that Unicode knows may stand inside a text
    return _decoded(block).removesuffix("\n").split("\n")


def _decoded(block: Block) -> str:
    data = text_of(block)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = block.line + data.count(b"\n", 0, error.start)
        byte = f"not UTF-8 (byte 0x{data[error.start]:02x})"
        raise DataError(f"{name_of(block.path)}, line {line}: {byte}") from error


def text_of(block: Block) -> bytes:
    """The bytes of a block without the file's byte order mark."""
    return block.data.removeprefix(b"\xef\xbb\xbf") if block.line == 1 else block.data


def parse(block: Block, reading: Reading) -> Parsed:
    """Parse the documents of a block, with array operations, since this is done for every line."""
    if block.texts is not None:
        return _documents(block.texts, reading)
    if block.format == "jsonl":
        each = (texts_of(one, reading.field, where) for one, where in json_lines(block))
        return _documents([*chain(*each)], reading)
    lines = list(map(str.strip, lines_of(block)))
    sentences = [line for line in lines if line]
    sizes = np.ones(len(sentences), np.int64)
    if reading.sentences == "punct":
        found = [split_sentences(line, "punct") for line in sentences]
        sentences, sizes = [*chain(*found)], _sizes(found)
    if reading.documents == "line" or not sentences:
        return Parsed(sentences, sizes, False, text_of(block))
    # runs of filled lines: 0 -> 1 where a document begins, 1 -> 0 behind its end
    filled = np.fromiter(map(bool, lines), np.int8, len(lines))
    edges = np.flatnonzero(np.diff(filled, prepend=0, append=0)).reshape(-1, 2)
    height = edges[:, 1] - edges[:, 0]  # lines of each document, between blank ones
    sizes = np.add.reduceat(sizes, np.cumsum(height) - height)  # sentences of a run's lines
    return Parsed(sentences, sizes, not block.fresh and bool(lines[0]), text_of(block))


def _documents(texts: Sequence[str], reading: Reading) -> Parsed:
    found = [split_sentences(text, reading.sentences) for text in texts]
    return Parsed([*chain(*found)], _sizes(found), False, "\n".join(texts).encode())


def _sizes(found: Sequence[Sequence[str]]) -> Ids:
    return np.fromiter(map(len, found), np.int64, len(found))


def json_lines(block: Block) -> Iterator[tuple[Any, str]]:
    """The records of json-lines, each with its place for error messages."""
    for number, line in enumerate(lines_of(block), block.line):
        if line.strip():
            where = f"{name_of(block.path)}, line {number}"
            yield parse_json(line, where), where


def check_fields(record: Any, names: Sequence[str], option: str, where: str) -> None:
    """Raise DataError unless a record has at least one of these fields, which `option` names."""
    wanted = " or ".join(map(repr, names))
    if not isinstance(record, dict):
        raise DataError(f"{where}: not a JSON object, so it has no field {wanted}")
    if record.keys().isdisjoint(names):
        raise DataError(f"{where}: no field {wanted}, see {option}; there are {named(record)}")


def texts_of(record: Any, fields: tuple[str, ...], where: str) -> list[str]:
    """The texts of the given fields that a record has; it must have at least one."""
    check_fields(record, fields, "--field, or --source-field", where)
    for name in fields:
        if not isinstance(record.get(name, ""), str):
            raise DataError(f"{where}: field {name!r} is not a text")
    return [record[name] for name in fields if name in record]


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file without blanks around them."""
    return (line.strip() for block in blocks(path) for line in lines_of(block))


def pair_blocks(source: Path, target: Path, base: int = 0) -> Iterator[PairBlock]:
    """Pair line i of one file with line i of the other; an empty line is an error."""
    numbered = ((line.strip(), block.at) for block in blocks(source) for line in lines_of(block))
    both = enumerate(zip_longest(numbered, read_lines(target)), 1)
    while some := list(islice(both, PAIRS_IN_BLOCK)):
        pairs = []
        for number, (one, other) in some:
            if one is None or other is None:
                counts = [sum(1 for _ in read_lines(path)) for path in (source, target)]
                raise DataError(f"{source} has {counts[0]:,} lines, but {target} has {counts[1]:,}")
            if not one[0] or not other:
                raise DataError(
                    f"{source if not one[0] else target}, line {number}: empty;"
                    " remove the line from both files"
                )
            pairs.append(PairText([one[0]], other))
        yield PairBlock(source, base + some[0][1][0][1], pairs)


def check_form(form: str) -> None:
    """Refuse a form of the source that lacks the answer, or passage and sentence, or has both."""
    one = ("{passage}" in form) != (SENTENCE in form)
    fits = "{answer}" in form and one
    wanted = "{answer}, and {passage} or {sentence}"
    require(fits, f"--squad-source needs {wanted}, got {form!r}")


def arranged(source: Sequence[str], form: str) -> list[str]:
    """The parts of a source made from answer and passage; [SEP] in `form` ends a part.

    {sentence} stands for what `windowed` has left of the passage.
    """
    answer, passage = source
    fields = {"{answer}": answer, "{passage}": passage, SENTENCE: passage}
    pieces = [re.split(r"(\{[a-z]+\})", part) for part in form.split("[SEP]")]
    return ["".join(fields.get(piece, piece) for piece in part).strip() for part in pieces]


def whole(path: Path) -> str:
    """The whole text of a file that cannot be read in blocks."""
    data = b"".join(piece for piece, _ in pieces(path))
    _check_text(path, data)
    return _decoded(Block(path, 1, 0, True, data))


def named(record: Iterable[str]) -> str:
    """The names of fields, for an error; a row of texts that was read as names is cut short."""
    names = [name if len(name) <= 30 else name[:30] + "..." for name in record]
    return ", ".join(names[:12] + ["..."] * (len(names) > 12))
