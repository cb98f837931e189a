"""Readers: lines of text become documents of sentences, or pairs of a source and a target.

The lines come from `lines.py`. Records of tables (json, CSV, parquet) are read in `records.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unitk.data.files.lines import (
    Block,
    blocks,
    head,
    is_stream,
    lines_of,
    name_of,
    read_lines,
    text_of,
    unpacked,
)
from unitk.errors import DataError, UsageError
from unitk.foreign import parse_json
from unitk.slots import Ids
from unitk.vocab.scripts import STOP

PAIRS_IN_BLOCK = 2000
Format = Literal[
    "auto", "text", "jsonl", "json", "csv", "tsv", "parquet", "arrow", "conll", "squad"
]
FORMATS = {
    **{"": "text", ".txt": "text", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "json"},
    **{".csv": "csv", ".tsv": "tsv", ".parquet": "parquet", ".arrow": "arrow"},
    **dict.fromkeys((".conll", ".conllu", ".iob", ".iob2", ".bio"), "conll"),
}
TABLES = ("jsonl", "json", "csv", "tsv", "parquet", "arrow", "conll")  # records with named fields
Documents = Literal["blank", "line"]
Sentences = Literal["lines", "punct"]


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
    moved: bool = False  # the answer stands elsewhere than the file says


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How documents and sentences are separated in a file."""

    format: str = "text"
    documents: Documents = "blank"
    document_mark: str = ""  # ends a document instead of a blank line
    sentences: Sentences = "lines"
    field: tuple[str, ...] = ("text",)
    """Fields of a record that hold texts, each a document of its own."""


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
    if FORMATS.get(ending) == "jsonl" and head(path).lstrip().startswith(b"["):
        return "json"  # one list of records
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


def split_sentences(text: str, how: Sentences) -> list[str]:
    """The sentences of a text: its lines, or by full stops; the end of a line always ends one."""
    if how == "punct":
        text = STOP.sub(lambda found: found[0].rstrip() + "\n", text)
    return [sentence for line in text.split("\n") if (sentence := line.strip())]


def parse(block: Block, reading: Reading) -> Parsed:
    """Parse the documents of a block, with array operations, since this is done for every line."""
    if block.texts is not None:
        return _documents(block.texts, reading)
    if block.format == "jsonl":
        each = (texts_of(one, reading.field, where) for one, where in json_lines(block))
        return _documents([*chain(*each)], reading)
    lines = list(map(str.strip, lines_of(block)))
    if mark := reading.document_mark:  # in its place a blank line, and no others
        parted = "\n".join(lines).replace(mark, f"\n{mark}\n").split("\n")
        lines = [line if line != mark else "" for line in map(str.strip, parted) if line]
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
            if line.strip() in ("{", "["):
                cure = "it ends with the line; `jq -c` writes each record on one line"
                raise DataError(f"{where}: not JSON ({cure})")
            yield parse_json(line, where), where


def unnest(record: Any, names: Sequence[str]) -> Any:
    """A record with the values of nested fields under their names: `translation.de` is the field de
    of the object translation.

    Of a list of objects, it is the list of their values. A field whose own name has a dot is that
    field.
    """
    if not isinstance(record, dict) or not any("." in name for name in names):
        return record
    found = {name: _inside(record, name) for name in names if name not in record}
    return record | {name: values[0] for name, values in found.items() if values}


def _inside(node: Any, name: str) -> list[Any]:
    """The value of a field of an object or of each object of a list; nothing if it is not there."""
    if isinstance(node, list):
        each = [_inside(one, name) for one in node]
        return [[value for (value,) in each]] if node and all(each) else []
    if not isinstance(node, dict) or name in node:
        return [node[name]] if isinstance(node, dict) else []
    for end in (at for at in range(len(name) - 1, 0, -1) if name[at] == "."):
        if found := _inside(node.get(name[:end]), name[end + 1 :]):
            return found
    return []


def check_fields(record: Any, names: Sequence[str], option: str, where: str) -> None:
    """Raise DataError unless a record has at least one of these fields, which `option` names."""
    wanted = " or ".join(map(repr, names))
    if not isinstance(record, dict):
        raise DataError(f"{where}: not a JSON object, so it has no field {wanted}")
    if record.keys().isdisjoint(names):
        raise DataError(f"{where}: no field {wanted}, see {option}; there are {named(record)}")


def texts_of(record: Any, fields: tuple[str, ...], where: str) -> list[str]:
    """The texts of the given fields that a record has; it must have at least one."""
    record = unnest(record, fields)
    check_fields(record, fields, "--field, or --source-field", where)
    for name in fields:
        if not isinstance(record.get(name, ""), str):
            raise DataError(f"{where}: field {name!r} is not a text")
    return [record[name] for name in fields if name in record]


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


def named(record: dict[str, Any]) -> str:
    """The names of the fields of a record, for an error, with those of objects in it.

    A row of texts that was read as names is cut short.
    """
    names = [
        name if len(name) <= 30 else name[:30] + "..." for name in dict.fromkeys(_names(record))
    ]
    return ", ".join(names[:12] + ["..."] * (len(names) > 12))


def _names(record: dict[str, Any]) -> Iterator[str]:
    for name, value in record.items():
        inner = value[0] if isinstance(value, list) and value else value
        within = _names(inner) if isinstance(inner, dict) and inner else None
        yield from (f"{name}.{one}" for one in within) if within else [name]
