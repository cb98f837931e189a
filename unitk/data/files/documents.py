"""Documents of sentences, from plain text or from fields of records."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Literal

import numpy as np

from unitk.data.files.lines import Block, lines_of, text_of
from unitk.data.files.readers import LineReader, Record, line_reader
from unitk.registry import register
from unitk.slots import Ids
from unitk.vocab.scripts import STOP

Documents = Literal["blank", "line"]
Sentences = Literal["lines", "punct"]


@register("reader", "text")
class PlainText(LineReader):
    """Plain text. It is read as documents; a line of it is a record if records are needed."""

    endings = (".txt",)
    holds = "text"

    def values(self, line: str, place: str) -> dict[str, Any]:
        return {"text": line}


@dataclass(frozen=True, kw_only=True)
class Separators:
    """How documents and sentences are separated in a file."""

    format: str = "text"
    documents: Documents = "blank"
    document_mark: str = ""  # ends a document instead of a blank line
    sentences: Sentences = "lines"
    field: tuple[str, ...] = ("text",)
    """Fields of a record that hold texts, each a document of its own."""


@dataclass(frozen=True)
class ParsedBlock:
    """The sentences of a block, how many each document has, and their text."""

    sentences: list[str]
    sizes: Ids
    goes_on: bool  # the first document began before the block
    text: bytes


def texts_of(record: Record, fields: Sequence[str]) -> list[str]:
    """The texts of the given fields that a record has; it must have at least one."""
    if not (texts := [record.text(name) for name in fields if name in record]):
        record.need(*fields, option="--field, or --source-field")
    return texts


def split_sentences(text: str, how: Sentences) -> list[str]:
    """The sentences of a text: its lines, or by full stops; the end of a line always ends one."""
    if how == "punct":
        text = STOP.sub(lambda match: match[0].rstrip() + "\n", text)
    return [sentence for line in text.split("\n") if (sentence := line.strip())]


def parse_block(block: Block, reading: Separators) -> ParsedBlock:
    """Parse the documents of a block."""
    if block.texts is not None:
        return _documents(block.texts, reading)
    own = line_reader(block.format)
    assert own is not None
    if own.holds == "records":
        texts = (texts_of(record, reading.field) for record in own.parse(block))
        return _documents([*chain(*texts)], reading)
    # with array operations, since this is done for every line
    lines = list(map(str.strip, lines_of(block)))
    if mark := reading.document_mark:  # in its place a blank line, and no others
        parted = "\n".join(lines).replace(mark, f"\n{mark}\n").split("\n")
        lines = [line if line != mark else "" for line in map(str.strip, parted) if line]
    sentences = [line for line in lines if line]
    sizes = np.ones(len(sentences), np.int64)
    if reading.sentences == "punct":
        split = [split_sentences(line, "punct") for line in sentences]
        sentences = [*chain(*split)]
        sizes = _sizes(split)
    if reading.documents == "line" or not sentences:
        return ParsedBlock(sentences, sizes, False, text_of(block))
    # runs of filled lines: 0 -> 1 where a document begins, 1 -> 0 after its end
    filled = np.fromiter(map(bool, lines), np.int8, len(lines))
    edges = np.flatnonzero(np.diff(filled, prepend=0, append=0)).reshape(-1, 2)
    height = edges[:, 1] - edges[:, 0]  # lines of each document, between blank ones
    sizes = np.add.reduceat(sizes, np.cumsum(height) - height)  # sentences of a run's lines
    return ParsedBlock(sentences, sizes, not block.fresh and bool(lines[0]), text_of(block))


def _documents(texts: Sequence[str], reading: Separators) -> ParsedBlock:
    split = [split_sentences(text, reading.sentences) for text in texts]
    return ParsedBlock([*chain(*split)], _sizes(split), False, "\n".join(texts).encode())


def _sizes(split: Sequence[Sequence[str]]) -> Ids:
    return np.fromiter(map(len, split), np.int64, len(split))
