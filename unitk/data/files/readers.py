"""Readers: files of any format as records, which have named fields and know their places.

A format is a registered reader, so that one of a plug-in (`recipes/plugin/fasttext.py`) works
wherever files are read. The ending of a file tells its format; where several formats share an
ending, its beginning does.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from unitk import registry
from unitk.data.files.lines import Block, blocks, head, is_stream, number_lines, strip_packing
from unitk.errors import DataError, UsageError, show_value
from unitk.foreign import parse_json
from unitk.options.fields import Named

Format = Annotated[str, Named("reader", "auto")]
"""Type of an option: the name of a reader, or auto."""
OBJECT = re.compile(rb'(\[\s*)?\{\s*"[^"]+"\s*:')
"""How records of JSON begin."""


@dataclass(frozen=True, slots=True)
class Record:
    """A row of a file, whose fields are read by name; what is wrong with one is a `DataError`.

    A name with a dot goes into objects: `translation.de` is the field de of the object translation;
    of a list of objects, it is the list of their values. A text that is their json, as in a cell of
    CSV, counts as they do. A field whose own name has the dot is that field.
    """

    values: dict[str, Any]
    place: str
    """Its file and line, or row, for messages."""
    at: int = 0
    """Bytes on disk before it, or before the block of lines that it is in."""

    def __contains__(self, name: str) -> bool:
        return name in self.values or bool(_find_values(self.values, name))

    def get(self, name: str) -> Any:
        """The value of a field, None if there is none."""
        value = self.values.get(name)  # of most names, at once
        return next(iter(_find_values(self.values, name)), None) if value is None else value

    def where(self, name: str) -> str:
        """The place of a field, for messages."""
        return f"{self.place}: field {name!r}"

    def need(self, *names: str, option: str = "") -> None:
        """Raise DataError unless there is one of these fields, which `option` names."""
        if not any(name in self for name in names):
            needed = " or ".join(map(repr, names))
            see = f", see {option}" if option else ""
            raise DataError(f"{self.place}: no field {needed}{see}; there are {self.names(*names)}")

    def text(self, name: str, option: str = "", blank: bool = True) -> str:
        """The text in a field, which may be `blank` or not."""
        if not isinstance(text := self.get(name), str):
            self.need(name, option=option)
            raise DataError(f"{self.where(name)} must be a text")
        if not (blank or text.strip()):
            raise DataError(f"{self.where(name)} is empty")
        return text

    def texts(self, name: str, option: str = "", least: int = 0, blank: bool = True) -> list[str]:
        """The texts in a field that holds a list of them, or one; `least` of them at least."""
        value = self.get(name)
        if value is None and name in self:
            raise EmptyField(f"{self.where(name)} is empty (null)")
        several = value if isinstance(value, list) else [value]
        if len(several) < least or not all(isinstance(text, str) for text in several):
            self.need(name, option=option)
            texts = "a text or a list of texts" if least < 2 else f"a list of {least} texts or more"
            raise DataError(f"{self.where(name)} must be {texts}")
        if not (blank or all(map(str.strip, several))):
            raise DataError(f"{self.where(name)} has an empty text")
        return several

    def names(self, *missing: str) -> str:
        """The names of its fields, those of objects within included, cut short for a message, and
        those near to what is missing."""
        short = (name if len(name) <= 30 else f"{name[:30]}..." for name in _names(self.values))
        names = [*dict.fromkeys(short)]
        near = "".join(registry.nearest(name, names) for name in missing[:1])
        shown = names if len(names) <= 12 else [*names[:12], "..."]
        return ", ".join(shown) + near or "none"


def _find_values(node: Any, name: str) -> list[Any]:
    """The value of a field of an object or of each object of a list, or of one item by its number;
    nothing if it is not there."""
    if isinstance(node, str):  # as cells of CSV hold objects
        with suppress(DataError):
            node = parse_json(node, name)
    first, _, rest = name.partition(".")
    if isinstance(node, list) and first.isdecimal():
        item = node[int(first) : int(first) + 1]
        return _find_values(item[0], rest) if item and rest else item
    if isinstance(node, list):
        of_items = [_find_values(item, name) for item in node]
        return [[value for (value,) in of_items]] if node and all(of_items) else []
    if not isinstance(node, dict):
        return []
    if name in node:
        return [node[name]]
    # a dot may belong to the name of a field: the longest beginning that is one goes first
    for end in (at for at in range(len(name) - 1, 0, -1) if name[at] == "."):
        if values := _find_values(node.get(name[:end]), name[end + 1 :]):
            return values
    return []


def _names(values: dict[str, Any]) -> Iterator[str]:
    for name, value in values.items():
        inner = value[0] if isinstance(value, list) and value else value
        if isinstance(inner, dict) and inner:
            yield from (f"{name}.{field}" for field in _names(inner))
        else:
            yield name


class EmptyField(DataError):
    """A field that is there, but has no value."""


class Reader(ABC):
    """A file format; its class is registered."""

    endings: ClassVar[tuple[str, ...]] = ()
    """How names of its files end, in lower case and without the ending of a packed file."""
    holds: ClassVar[Literal["records", "text", "questions"]] = "records"
    """records: a table, whose fields the user names; text: documents of lines; questions: SQuAD."""

    def recognizes(self, ending: str, start: bytes) -> bool:
        """Whether a file that ends and starts so is of this format; asked if several might be."""
        return True

    def by_line(self, path: Path) -> bool:
        """Whether each line of a file is a record by itself."""
        return False

    @abstractmethod
    def records(self, path: Path, fields: Sequence[str] = ()) -> Iterator[Record]:
        """The records of a file in order; only `fields` need be read, where all of them exist."""

    def read(self, path: Path, fields: Sequence[str] = ()) -> Iterator[Record]:
        """`records`, which a plug-in may have written, checked."""
        return map(self.check, self.records(path, fields))

    def check(self, record: Any) -> Record:
        """The same record; `UsageError` names the reader if it is none."""
        if isinstance(record, Record) and isinstance(record.values, dict):
            return record
        name = registry.name_of("reader", type(self))
        raise UsageError(
            f"reader {name!r} of {registry.sources('reader')[name]} must give a Record, whose "
            f"values are a dict, got {show_value(record)}"
        )


class LineReader(Reader):
    """A format in which each line is a record by itself.

    `unitk preprocess` parses its files in all of its processes, and `unitk generate` answers the
    lines of a stream as they arrive.
    """

    @abstractmethod
    def values(self, line: str, place: str) -> dict[str, Any]:
        """The fields of a line that is not blank; errors name its `place`."""

    def by_line(self, path: Path) -> bool:
        return True

    def parse(self, block: Block) -> Iterator[Record]:
        """The records of some lines."""
        for line, place in number_lines(block):
            if line.strip():
                yield self.check(Record(self.values(line, place), place, block.at))

    def records(self, path: Path, fields: Sequence[str] = ()) -> Iterator[Record]:
        for block in blocks(path):
            yield from self.parse(block)


def reader(name: str) -> Reader:
    """The reader of that name."""
    own: Reader = registry.get("reader", name, "--input-format")()
    # of endings in one text, any part would be an ending
    if not isinstance(own, Reader) or isinstance(own.endings, str):
        raise UsageError(
            f"reader {name!r} of {registry.sources('reader')[name]} must be a Reader with a tuple "
            f"of endings, got {show_value(own)}"
        )
    return own


def line_reader(name: str) -> LineReader | None:
    """The reader of that name if each line of its files is a record by itself."""
    return own if isinstance(own := reader(name), LineReader) else None


def readers() -> dict[str, Reader]:
    """Every reader by its name."""
    return {name: reader(name) for name in registry.names("reader")}


def format_of(path: Path, given: str = "auto", option: str = "") -> str:
    """The format of a file: the one given, else by its ending and beginning, else text.

    Records of JSON are found in a file of text, too. With an `option`, which has --input-format
    beside it, they are refused there, and so is a table or binary data with an unknown ending.
    """
    if given != "auto":
        return given
    ending = "" if is_stream(path) else strip_packing(path).suffix.lower()
    names = [name for name, reads in readers().items() if ending in reads.endings]
    if len(names) > 1:
        start = head(path).lstrip()
        names = [name for name in names if reader(name).recognizes(ending, start)]
    if len(names) > 1:
        raise UsageError(f"{path} may be {' or '.join(names)}; --input-format says which")
    return names[0] if names not in ([], ["text"]) else _look(path, option, not names)


def json_format(start: bytes) -> str:
    """The format of records in a json that begins so; "" if it has none, as SQuAD's."""
    names = (name for name in ("json", "jsonl") if reader(name).recognizes(".json", start))
    return next(names, "")


def _look(path: Path, option: str, unknown: bool) -> str:
    """The format of a file whose ending names no records: what JSON in it has, else text."""
    start = head(path).lstrip(b" \r\n")
    name = ""
    if OBJECT.match(start) and (found := json_format(start)):
        name = found
    elif option and unknown:
        if b"\0" in start:
            raise DataError(f"{path} looks like binary data, not like UTF-8 text")
        lines = [*filter(bytes.strip, start.split(b"\n")[:-1][:20])]
        counts = ([line.count(mark) for line in lines] for mark in b"\t,;")
        # a mark that occurs equally often in every line
        if len(lines) > 2 and any(min(of_mark) == max(of_mark) > 0 for of_mark in counts):
            name = "csv or tsv"
    if option and name:
        raise UsageError(
            f"{path} looks like {name}; give --input-format {name}, or text if it is none"
        )
    return name or "text"


def records(
    path: Path, fields: Sequence[str] = (), given: str = "auto", plain: str = "jsonl"
) -> Iterator[Record]:
    """The records of a file of this format; of columns, only these fields are read.

    A file of text, or of questions as SQuAD has them, is read as `plain`: its lines are records.
    """
    own = reader(format_of(path, given))
    return (own if own.holds == "records" else reader(plain)).read(path, fields)
