"""Readers: files of text become documents of sentences, or pairs of a source and a target.

Files are read in blocks of whole lines, about a megabyte each, so that memory does not grow with
them and blocks can be parsed in parallel. `.gz` is unpacked everywhere, and everything is UTF-8.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unitk.errors import DataError, UsageError, require
from unitk.slots import Ids

BLOCK = 1 << 20
"""Bytes of text parsed at a time. Shards are made of whole blocks, so it is the same everywhere."""
PAIRS_IN_BLOCK = 2000
FORMATS = {"": "text", ".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "squad"}
Format = Literal["auto", "text", "jsonl", "squad"]
SQUAD_SOURCE = "{answer} [SEP] {passage}"
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
HALF = re.compile("[\ud800-\udfff]")
"""What an escape in a json can make, though no file may hold it."""


@dataclass(frozen=True)
class Document:
    """A text as its sentences, none of them empty."""

    sentences: list[str]


@dataclass(frozen=True)
class PairText:
    """A source as its parts, of which only the last may be shortened, and what it leads to."""

    source: list[str]
    target: str
    others: tuple[str, ...] = ()
    """Further targets that would be as good; only scores know them."""
    focus: tuple[int, int] | None = None
    """The characters of the last part that a window of it must keep: where the answer stands."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How the documents and sentences of a file are told apart."""

    format: Literal["text", "jsonl"] = "text"
    documents: Documents = "blank"
    sentences: Sentences = "lines"
    field: str = "text"


@dataclass(frozen=True)
class Block:
    """Whole lines of a file; `at` tells how far into all files it begins, in bytes on disk.

    Where documents end at blank lines, a block that is not `fresh` begins inside a document.
    """

    path: Path
    line: int
    at: int
    fresh: bool
    data: bytes


@dataclass(frozen=True)
class Parsed:
    """The sentences of a block, how many of them each document has, and the text they are of."""

    sentences: list[str]
    sizes: Ids
    goes_on: bool
    """The first document began before the block."""
    text: bytes


@dataclass(frozen=True)
class PairBlock:
    """Some pairs of a file (of sources); `at` as in `Block`."""

    path: Path
    at: int
    pairs: list[PairText]
    window: int | None = None
    """Most tokens of a source: of a longer one's last part, a window is kept."""
    form: str = ""
    """Of answer and passage: how the source is made of them (`arranged`)."""
    fresh: bool = True


def format_of(path: Path, given: Format, option: str = "--input-format") -> str:
    """The format of a file: what was given, else what the name's ending says."""
    if given != "auto":
        return given
    ending = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    if ending not in FORMATS:
        raise UsageError(f"{path}: its ending tells no format; give {option} text, jsonl or squad")
    return FORMATS[ending]


def split_sentences(text: str, how: Sentences) -> list[str]:
    """The sentences of a text: its lines, or what ends in a stop; a line's end always ends one."""
    if how == "punct":
        text = STOP.sub(lambda found: found[0].rstrip() + "\n", text)
    return [sentence for line in text.split("\n") if (sentence := line.strip())]


def pieces(path: Path) -> Iterator[tuple[bytes, int]]:
    """The bytes of a file, unpacked, each with how many bytes on disk were read until then."""
    try:
        after = 0  # counted, as a pipe cannot tell
        with path.open("rb") as file:
            if path.suffix != ".gz":
                while piece := file.read(BLOCK >> 2):
                    after += len(piece)
                    yield piece, after
                return
            # not gzip.open: how far it reads ahead is the library's business, shards depend on it
            unpack = zlib.decompressobj(31)
            while piece := file.read(BLOCK >> 4):
                after += len(piece)
                while piece:
                    yield unpack.decompress(piece), after
                    piece = unpack.unused_data.lstrip(b"\0")
                    if piece:  # another member follows, not padding
                        unpack = zlib.decompressobj(31)
            if after and not unpack.eof:
                raise DataError(f"{path}: cut off, the end of the gzip data is missing")
    except zlib.error as error:
        raise DataError(f"{path}: no gzip data, or damaged ({error})") from error
    except OSError as error:
        raise DataError(f"{path}: {error.strerror}") from error


def blocks(path: Path, blank_ends: bool = False, base: int = 0) -> Iterator[Block]:
    """The lines of a file, about a megabyte at a time."""
    waiting: list[bytes] = []
    size, line, at, fresh = 0, 1, 0, True
    for piece, after in pieces(path):
        cut = piece.rfind(b"\n") + 1
        if size + cut < BLOCK or not cut:
            waiting.append(piece)
            size += len(piece)
            continue
        data = b"".join([*waiting, piece[:cut]])
        yield Block(path, line, base + at, fresh, data)
        waiting, size = [piece[cut:]], len(piece) - cut
        line, at = line + data.count(b"\n"), after
        last = data[data.rfind(b"\n", 0, -1) + 1 :]
        fresh = not (blank_ends and last.strip())
    if data := b"".join(waiting):
        yield Block(path, line, base + at, fresh, data)


def lines_of(block: Block) -> list[str]:
    """The lines of a block as text."""
    data = text_of(block)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = block.line + data.count(b"\n", 0, error.start)
        byte = data[error.start]
        raise DataError(f"{block.path}, line {line}: not UTF-8 (byte 0x{byte:02x})") from error
    # only a newline ends a line: other separators that Unicode knows may stand inside a text
    return text.removesuffix("\n").split("\n")


def text_of(block: Block) -> bytes:
    """The bytes of a block, without a file's mark of being UTF-8."""
    return block.data.removeprefix(b"\xef\xbb\xbf") if block.line == 1 else block.data


def parse(block: Block, reading: Reading) -> Parsed:
    """The documents of a block; whole lists and arrays, as this is done for every line."""
    lines = lines_of(block)
    if reading.format == "jsonl":
        texts = [
            _text(block, block.line + i, line, reading.field)
            for i, line in enumerate(lines)
            if line.strip()
        ]
        found = [split_sentences(text, reading.sentences) for text in texts]
        return Parsed([*chain(*found)], _sizes(found), False, "\n".join(texts).encode())
    lines = list(map(str.strip, lines))
    sentences = [line for line in lines if line]
    sizes = np.ones(len(sentences), np.int64)
    if reading.sentences == "punct":
        found = [split_sentences(line, "punct") for line in sentences]
        sentences, sizes = [*chain(*found)], _sizes(found)
    if reading.documents == "line" or not sentences:
        return Parsed(sentences, sizes, False, text_of(block))
    filled = np.fromiter(map(bool, lines), np.int8, len(lines))
    edges = np.flatnonzero(np.diff(filled, prepend=0, append=0)).reshape(-1, 2)
    height = edges[:, 1] - edges[:, 0]  # lines of each document, between blank ones
    sizes = np.add.reduceat(sizes, np.cumsum(height) - height)
    return Parsed(sentences, sizes, not block.fresh and bool(lines[0]), text_of(block))


def _sizes(found: Sequence[Sequence[str]]) -> Ids:
    return np.fromiter(map(len, found), np.int64, len(found))


def _text(block: Block, number: int, line: str, field: str) -> str:
    where = f"{block.path}, line {number}"
    record = parse_json(line, where)
    if not isinstance(record, dict) or field not in record:
        known = f"; its fields are {', '.join(record)}" if isinstance(record, dict) else ""
        raise DataError(f"{where}: no field {field!r}, see --field{known}")
    text = record[field]
    if not isinstance(text, str):
        raise DataError(f"{where}: field {field!r} is no text")
    return characters(text, where) if "\\u" in line else text


def read_documents(path: Path, reading: Reading) -> Iterator[Document]:
    """The documents of a text or json-lines file, as `reading` tells them apart."""
    waiting: list[str] = []
    for block in blocks(path, by_blank(reading)):
        parsed = parse(block, reading)
        stream = iter(parsed.sentences)
        for i, size in enumerate(parsed.sizes):
            if waiting and not (i == 0 and parsed.goes_on):
                yield Document(waiting)
                waiting = []
            waiting += islice(stream, int(size))
    if waiting:
        yield Document(waiting)


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file without blanks around them."""
    return (line.strip() for block in blocks(path) for line in lines_of(block))


def read_pairs(source: Path, target: Path) -> Iterator[PairText]:
    """Line i of the one file with line i of the other; an empty line is an error."""
    for block in pair_blocks(source, target):
        yield from block.pairs


def pair_blocks(source: Path, target: Path, base: int = 0) -> Iterator[PairBlock]:
    """`read_pairs`, some pairs at a time."""
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


def read_squad(path: Path) -> Iterator[PairText]:
    """Answer and passage -> question, of a SQuAD json; of several answers the first is taken.

    Questions marked `is_impossible` (SQuAD 2.0) are left out. A json cannot be read in blocks.
    """
    tree = parse_json(whole(path), str(path))
    for i, article in enumerate(_member(tree, "data", list, f"{path}")):
        where = f"{path}: data[{i}]"
        for j, paragraph in enumerate(_member(article, "paragraphs", list, where)):
            place = f"{where}.paragraphs[{j}]"
            passage = _member(paragraph, "context", str, place)
            for k, entry in enumerate(_member(paragraph, "qas", list, place)):
                spot = f"{place}.qas[{k}]"
                question = _member(entry, "question", str, spot)
                answers = _member(entry, "answers", list, spot)
                if not answers and entry.get("is_impossible"):
                    continue
                if not answers:
                    raise DataError(f"{spot} has no answer, and is not marked is_impossible")
                answer = _member(answers[0], "text", str, f"{spot}.answers[0]").strip()
                focus = _found(answer, passage, answers[0].get("answer_start"))
                parts = [answer, passage.strip()]
                yield PairText(parts, question.strip(), focus=focus)


def check_form(form: str) -> None:
    """Refuse a form of the source that lacks the answer or the passage."""
    lacking = [field for field in ("{answer}", "{passage}") if field not in form]
    require(not lacking, f"--squad-source needs {' and '.join(lacking)}, got {form!r}")


def arranged(source: Sequence[str], form: str) -> list[str]:
    """The parts of a source made of answer and passage; [SEP] ends a part of `form`."""
    fields = dict(zip(("{answer}", "{passage}"), source, strict=True))
    pieces = [re.split(r"(\{answer\}|\{passage\})", part) for part in form.split("[SEP]")]
    return ["".join(fields.get(piece, piece) for piece in part).strip() for part in pieces]


def whole(path: Path) -> str:
    """The text of a file that cannot be read in blocks."""
    data = b"".join(piece for piece, _ in pieces(path))
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}, line {line}: not UTF-8") from error


def parse_json(text: str, where: str) -> Any:
    """What a json says, or a `DataError` that names the place."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise DataError(f"{where}: no JSON ({error})") from error


def _found(answer: str, passage: str, start: Any) -> tuple[int, int] | None:
    """The characters of the stripped passage that are the answer: where it is said to start if
    that is true, else the first such ones, if any."""
    said = isinstance(start, int) and start >= 0 and passage.startswith(answer, start)
    first = start if said else passage.find(answer)
    cut = len(passage) - len(passage.lstrip())
    return (first - cut, first - cut + len(answer)) if answer and first >= 0 else None


def characters(text: str, where: str) -> str:
    """The text, which is refused where an escape made half a character."""
    if HALF.search(text):
        raise DataError(f"{where}: half a surrogate pair, which is no character")
    return text


def _member(node: Any, name: str, kind: type, where: str) -> Any:
    if not isinstance(node, dict) or not isinstance(node.get(name), kind):
        noun = "list" if kind is list else "text"
        raise DataError(f"{where} has no {noun} {name!r}, so this is no SQuAD json")
    return characters(node[name], where) if kind is str else node[name]


def by_blank(reading: Reading) -> bool:
    """Whether blank lines end documents."""
    return reading.format == "text" and reading.documents == "blank"
