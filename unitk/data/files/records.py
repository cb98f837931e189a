"""Tables whose records have named fields: json-lines, a json list, CSV, TSV, Arrow and CoNLL.

CSV is what Python's `csv` reads, its first row the names; in TSV, quotes are characters like any
other. A json list and parquet are read whole or in groups of rows. A record of CoNLL's columns is a
sentence, whose fields are lists.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from unitk.data.files import arrow, conll, sources
from unitk.data.files.lines import Block, blocks, head, lines_of, name_of, size_of, whole
from unitk.data.files.sources import Reading, json_lines, parse, texts_of, unnest
from unitk.errors import DataError
from unitk.foreign import parse_json

Record = tuple[Any, str, int]  # a record, its place for messages, and in bytes
Row = tuple[list[str], int, int]  # cells, the number of the first line, bytes before its block
LARGEST = (1 << 31) - 1  # bytes of a field of CSV; what `csv` takes anywhere


def records(path: Path, name: str, fields: tuple[str, ...]) -> Iterator[Record]:
    """The records of a table; of columns, only these fields are read where all of them exist.

    `name` is its format; a file of any other format, such as SQuAD's, is read as json-lines. A
    field may be nested (`unnest`).
    """
    return ((unnest(record, fields), *place) for record, *place in _records(path, name, fields))


def _records(path: Path, name: str, fields: tuple[str, ...]) -> Iterator[Record]:
    if name in ("parquet", "arrow"):
        return arrow.rows(path, name, fields)
    if name in ("csv", "tsv"):
        return _cells(path, name, fields)
    if name == "conll":
        return conll.sentences(path)
    if name == "json" or head(path).lstrip().startswith(b"["):
        return _listed(path)
    return _lines(path)


def numbered_lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a text file, each with its place for messages."""
    name = name_of(path)
    for block in blocks(path):
        for number, line in enumerate(lines_of(block), block.line):
            yield line, f"{name}, line {number}"


def _lines(path: Path) -> Iterator[Record]:
    for block in blocks(path):
        for record, where in json_lines(block):
            yield record, where, block.at


def _listed(path: Path) -> Iterator[Record]:
    found = parse_json(whole(path), name_of(path))
    if not isinstance(found, list):
        raise DataError(f"{name_of(path)}: not a JSON list of records")
    step = size_of(path) / max(len(found), 1)
    for i, record in enumerate(found):
        yield record, f"{name_of(path)}: [{i}]", int(i * step)


def _cells(path: Path, name: str, fields: tuple[str, ...]) -> Iterator[Record]:
    names: list[str] = []
    # not DictReader, which skips the line's number and takes rows that are too short
    for row, number, at in (_tsv if name == "tsv" else _csv)(path):
        where = f"{name_of(path)}, line {number}"
        if names and row and len(row) != len(names):
            raise DataError(f"{where}: {len(row)} cells, but {len(names)} columns are named")
        if names and row:
            yield dict(zip(names, row, strict=True)), where, at
        if not names and (twice := next((one for one in fields if row.count(one) > 1), "")):
            raise DataError(f"{where}: {row.count(twice)} columns are named {twice!r}")
        names = names or row


def _tsv(path: Path) -> Iterator[Row]:
    """The rows of a file in which quotes mean nothing, so that a tab always ends a cell."""
    for block in blocks(path):
        for number, line in enumerate(lines_of(block), block.line):
            line = line.removesuffix("\r")
            yield line.split("\t") if line else [], number, block.at


def _csv(path: Path) -> Iterator[Row]:
    """The rows of a file whose cells end at commas, or at semicolons or tabs if its first row has
    no comma (Excel's files in many countries); a first line such as `sep=;` names another one."""
    at, line = 0, ""

    def lines() -> Iterator[str]:
        nonlocal at, line
        for block in blocks(path):
            at = block.at
            for line in lines_of(block):
                yield f"{line}\n"
        line = ""

    given = lines()
    first = next(given, "")
    mark = re.fullmatch(r"sep=(.)\r?\n", first)
    named = re.sub('"[^"]*"', "", first)
    delimiter = mark[1] if mark else next((one for one in ",;\t" if one in named), ",")
    csv.field_size_limit(LARGEST)
    rows = csv.reader(given if mark else chain([first], given), strict=True, delimiter=delimiter)
    while True:
        number = rows.line_num + (2 if mark else 1)
        try:
            row = next(rows, None)
        except csv.Error as error:
            reason = "a cell goes on behind its closing quote; in a cell, quotes are doubled"
            if not line:
                reason = "a quote is opened and not closed"
            elif "\r" in line.removesuffix("\r"):
                reason = "a carriage return in a cell without quotes"
            raise DataError(f"{name_of(path)}, line {number}: no CSV ({reason})") from error
        if row is None:
            return
        yield row, number, at


def text_blocks(path: Path, reading: Reading, base: int = 0) -> Iterator[Block]:
    """The texts of a file: its lines, or the texts of a table."""
    listed = reading.format == "jsonl" and head(path).lstrip().startswith(b"[")
    if reading.format in ("text", "jsonl") and not listed:
        by_line = reading.format != "text" or reading.documents == "line"
        for block in blocks(path, None if by_line else reading.document_mark, base):
            yield replace(block, format=reading.format)
        return
    found = records(path, reading.format, reading.field)
    while some := list(islice(found, sources.PAIRS_IN_BLOCK)):
        texts = [text for record, at, _ in some for text in texts_of(record, reading.field, at)]
        yield Block(path, 1, base + some[0][2], True, b"", reading.format, tuple(texts))


def read_documents(path: Path, reading: Reading) -> Iterator[list[str]]:
    """The sentences of each document of a text file or a table, separated as `reading` says."""
    waiting: list[str] = []
    for block in text_blocks(path, reading):
        parsed = parse(block, reading)
        stream = iter(parsed.sentences)
        for i, size in enumerate(parsed.sizes):
            if waiting and not (i == 0 and parsed.goes_on):
                yield waiting
                waiting = []
            waiting += islice(stream, int(size))
    if waiting:
        yield waiting
