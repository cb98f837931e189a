"""Tables: json-lines, lists and columns in json, CSV and TSV, parquet, and Arrow.

CSV is what Python's `csv` reads, its first row the names; in TSV, quotes are characters like any
other. A column of class labels holds numbers; the names are in the schema, and are read in their
place.
"""

from __future__ import annotations

import csv
import re
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import IO, Any

from unitk.data.files import lines
from unitk.data.files.readers import LineReader, Reader, Record
from unitk.errors import DataError, amount
from unitk.foreign import parse_json
from unitk.registry import register

LARGEST = (1 << 31) - 1  # bytes of a field of CSV; what `csv` takes anywhere
COLUMNS = re.compile(rb'\{\s*"(?!data")[^"]+"\s*:\s*(\[|\{\s*"0"\s*:)')
"""How columns of JSON begin: with a list, or with the value of row 0. `data` is SQuAD's."""
Row = tuple[list[str], str, int]  # cells, the place of the first line, bytes before its block


@register("reader", "jsonl")
class JsonLines(LineReader):
    """An object a line; a file that is one list of objects is read, too."""

    endings = (".jsonl", ".ndjson", ".json")

    def recognizes(self, ending: str, start: bytes) -> bool:
        return kind_of_json(start) == "jsonl" if ending == ".json" else not start.startswith(b"[")

    def by_line(self, path: Path) -> bool:
        return not lines.head(path).lstrip().startswith(b"[")

    def values(self, line: str, place: str) -> dict[str, Any]:
        if line.strip() in ("{", "["):
            raise DataError(
                f"{place}: not JSON (it ends with the line; `jq -c` writes each record on one line)"
            )
        return _object(parse_json(line, place), place)

    def records(self, path: Path, fields: Sequence[str] = ()) -> Iterator[Record]:
        return super().records(path) if self.by_line(path) else JsonList().records(path)


@register("reader", "json")
class JsonList(Reader):
    """A list of objects, or an object of columns, as pandas writes tables.

    A column is a list, or an object with the values of all rows by the names of these."""

    endings = (".json", ".jsonl", ".ndjson")

    def recognizes(self, ending: str, start: bytes) -> bool:
        return start.startswith(b"[") or (ending == ".json" and kind_of_json(start) == "json")

    def records(self, path: Path, fields: Sequence[str] = ()) -> Iterator[Record]:
        items = parse_json(lines.read_text(path), lines.name_file(path))
        if isinstance(items, dict):
            items = rows_of_columns(items)
        if not isinstance(items, list):
            raise DataError(f"{lines.name_file(path)}: not a JSON list of records, nor of columns")
        step = lines.size_of(path) / max(len(items), 1)
        for i, item in enumerate(items):
            place = f"{lines.name_file(path)}: [{i}]"
            yield Record(_object(item, place), place, int(i * step))


def kind_of_json(start: bytes) -> str:
    """The format of a json by its beginning: a list or columns (json), a record a line (jsonl), or
    one object, as SQuAD's (squad)."""
    if start.startswith(b"["):
        return "json"
    line, newline, rest = start.partition(b"\n")
    try:
        first = parse_json(line, "", hooks={"object_pairs_hook": dict})  # keys may be there twice
    except DataError:  # goes on in the next line; or it is long, and SQuAD's key is in front
        if COLUMNS.match(start):
            return "json"
        return "squad" if newline or re.search(rb'(?<!\\)"data"\s*:', line) else "jsonl"
    if not isinstance(first, dict) or "data" in first:
        return "squad"
    # a record by itself may have a list; columns are all of one length, and more than one row
    sizes = {len(value) if isinstance(value, list | dict) else 0 for value in first.values()}
    columns = COLUMNS.match(line) and not rest.strip() and len(sizes) == 1 and max(sizes) > 1
    return "json" if columns else "jsonl"


def rows_of_columns(table: dict[str, Any]) -> list[dict[str, Any]] | None:
    """The rows of a table of columns; None if these are not equally long, or have other rows."""
    columns = [*table.values()]
    if all(isinstance(column, dict) for column in columns):
        if any(column.keys() != columns[0].keys() for column in columns):
            return None
        columns = [[column[row] for row in columns[0]] for column in columns]
    if not all(isinstance(column, list) and len(column) == len(columns[0]) for column in columns):
        return None
    return [dict(zip(table, row, strict=True)) for row in zip(*columns, strict=True)]


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise DataError(f"{place}: not a JSON object, so it has no fields")
    return value


class Cells(Reader):
    """Rows of cells, of which the first has the names of the fields."""

    @abstractmethod
    def rows(self, path: Path) -> Iterator[Row]:
        """The rows of a file; a blank line has no cells."""

    def records(self, path: Path, fields: Sequence[str] = ()) -> Iterator[Record]:
        names: list[str] = []
        # not DictReader, which skips the line's number and takes rows that are too short
        for row, place, at in self.rows(path):
            if names and row and len(row) != len(names):
                has = amount(len(row), "cells")
                raise DataError(f"{place}: {has}, but the header has {len(names)}")
            if names and row:
                yield Record(dict(zip(names, row, strict=True)), place, at)
            if not names:
                for name in fields:
                    if (count := row.count(name)) > 1:
                        raise DataError(f"{place}: {count} columns are named {name!r}")
                names = row


@register("reader", "tsv")
class Tsv(Cells):
    """Cells between tabs. Quotes mean nothing, so that a tab always ends a cell."""

    endings = (".tsv",)

    def rows(self, path: Path) -> Iterator[Row]:
        for block in lines.blocks(path):
            for line, place in lines.number_lines(block):
                line = line.removesuffix("\r")
                yield line.split("\t") if line else [], place, block.at


@register("reader", "csv")
class Csv(Cells):
    """Cells end at commas, or at semicolons or tabs if the first row has no comma.

    So do Excel's files in many countries. A first line such as `sep=;` names another mark."""

    endings = (".csv",)

    def rows(self, path: Path) -> Iterator[Row]:
        at = 0
        line = ""

        def read_lines() -> Iterator[str]:
            nonlocal at, line
            for block in lines.blocks(path):
                at = block.at
                for line in lines.lines_of(block):
                    yield f"{line}\n"
            line = ""

        following = read_lines()
        first = next(following, "")
        mark = re.fullmatch(r"sep=(.)\r?\n", first)
        if mark:
            delimiter = mark[1]
        else:
            unquoted = re.sub('"[^"]*"', "", first)
            delimiter = next((char for char in ",;\t" if char in unquoted), ",")
            following = chain([first], following)
        csv.field_size_limit(LARGEST)
        rows = csv.reader(following, strict=True, delimiter=delimiter)
        while True:
            place = f"{lines.name_file(path)}, line {rows.line_num + (2 if mark else 1)}"
            try:
                row = next(rows, None)
            except csv.Error as error:
                reason = "a cell goes on after its closing quote; in a cell, quotes are doubled"
                if not line:
                    reason = "a quote is opened and not closed"
                elif "\r" in line.removesuffix("\r"):
                    reason = "a carriage return in a cell without quotes"
                raise DataError(f"{place}: no CSV ({reason})") from error
            if row is None:
                return
            yield row, place, at


class Columns(Reader):
    """Columns, of which those that are needed are read, some rows at a time."""

    def records(self, path: Path, fields: Sequence[str] = ()) -> Iterator[Record]:
        name = type(self).__name__.lower()
        if (packed := lines.compression_of(path)) in lines.UNPACK:
            raise DataError(f"{path}: {name} within {lines.PACKED[packed]} is not read: unpack it")
        try:
            import pyarrow
        except ModuleNotFoundError as error:
            raise DataError(
                f"{path}: needs the package pyarrow: pip install unitk[parquet]"
            ) from error
        try:
            with lines.open_file(path) as raw:
                yield from self._read(path, raw, fields)
        except pyarrow.ArrowNotImplementedError as error:
            raise DataError(
                f"{path}: this pyarrow cannot read the compression or type of a column of this "
                f"{name}"
            ) from error
        except KeyError as error:  # of pyarrow: two columns have one name
            raise DataError(f"{path}: {error.args[0]}") from error
        except (pyarrow.ArrowException, OSError) as error:
            reason = getattr(error, "strerror", None) or f"no {name}, or damaged"
            raise DataError(f"{path}: {reason}") from error

    def _read(self, path: Path, raw: Any, fields: Sequence[str]) -> Iterator[Record]:
        schema, count, batches = _open_columns(raw)
        # all of them where one is missing: the error names what there is
        held = [column_of(field, schema.names) for field in fields]
        columns = [*dict.fromkeys(held)] if held and all(held) else schema.names
        classes = classes_of(schema)
        number = 1
        at = 0.0
        for batch in batches(columns):
            # a parquet file is smaller than its columns, an Arrow file is as large
            step = lines.size_of(path) / count if count else batch.nbytes / max(len(batch), 1)
            for values in batch.select(columns).to_pylist():
                for column in classes.keys() & values.keys():
                    values[column] = _name_classes(values[column], classes[column])
                yield Record(values, f"{lines.name_file(path)}, row {number}", int(at))
                number += 1
                at += step


@register("reader", "parquet")
class Parquet(Columns):
    """Parquet."""

    endings = (".parquet",)


@register("reader", "arrow")
class Arrow(Columns):
    """Arrow: streams, which `datasets` writes, and files, which have an index."""

    endings = (".arrow",)


def _open_columns(raw: IO[bytes]) -> tuple[Any, int, Callable[[list[str]], Iterable[Any]]]:
    """The schema of a file, its number of rows (0: unknown), and what reads columns in batches."""
    from pyarrow import ipc, parquet

    magic = raw.read(6)
    raw.seek(0)
    if magic.startswith(b"PAR1"):
        file = parquet.ParquetFile(raw)
        read = partial(file.iter_batches, lines.RECORDS_IN_BLOCK)
        return file.schema_arrow, file.metadata.num_rows, lambda columns: read(columns=columns)
    if magic == b"ARROW1":
        file = ipc.open_file(raw)
        batches = map(file.get_batch, range(file.num_record_batches))
    else:
        file = batches = ipc.open_stream(raw)
    return file.schema, 0, lambda columns: batches


def column_of(field: str, columns: Sequence[str]) -> str:
    """The column that holds a field, which may be nested in it; "" if there is none."""
    within = [name for name in columns if field == name or field.startswith(f"{name}.")]
    return max(within, key=len, default="")


def classes_of(schema: Any) -> dict[str, Any]:
    """Column with class labels -> its feature, as `datasets` describes it in a schema."""
    info = parse_json((schema.metadata or {}).get(b"huggingface", b"{}"), "the schema")
    features = info.get("info", {}).get("features", {}).items()
    return {name: feature for name, feature in features if "ClassLabel" in repr(feature)}


def _name_classes(value: Any, feature: Any) -> Any:
    """A value with its classes by name, wherever they are in it; -1 is no class."""
    if isinstance(feature, dict) and isinstance(feature.get("feature"), dict):  # of a list
        feature = feature["feature"]
    if isinstance(value, list):
        inner = feature[0] if isinstance(feature, list) else feature
        return [_name_classes(item, inner) for item in value]
    if not isinstance(feature, dict):
        return value
    if isinstance(value, dict):
        return {name: _name_classes(item, feature.get(name)) for name, item in value.items()}
    if feature.get("_type") != "ClassLabel" or not isinstance(value, int):
        return value
    return dict(enumerate(feature.get("names", []))).get(value)
