"""Columns of words, in CoNLL's formats: a word a line, and a blank line after each sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from unitk.data.files.lines import blocks, number_lines, numbered_lines, size_of
from unitk.data.files.readers import Reader, Record
from unitk.errors import DataError, amount
from unitk.registry import register

UNIVERSAL = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")
"""The columns of CoNLL-U."""
BLANK = " \t\r"  # all others, such as the no-break space, are characters of a word
COMMENT = re.compile(r"#\s*(\S+ = |newdoc\b|newpar\b)")
NUMBER = re.compile(r"\d+([.]\d+)?")  # of a word, or of an empty node (1.1)
Row = list[str]


@register("reader", "conll")
class Conll(Reader):
    """Sentences as records of lists.

    The fields are 0, 1, ... for each column, words (the first column) and tags (the last one); of
    CoNLL-U also its names, and words are its forms and tags its parts of speech.
    """

    endings = (".conll", ".conllu", ".iob", ".iob2", ".bio")

    def records(self, path: Path, fields: Sequence[str] = ()) -> Iterator[Record]:
        by_tabs, width = _shape(path)
        rows: list[Row] = []
        first = ""
        for block in blocks(path):
            for line, place in number_lines(block):
                row = _cells(line, by_tabs)
                if not rows and _is_comment(line, row, by_tabs, width):
                    continue
                if row and rows and len(row) != len(rows[0]):
                    has = amount(len(row), "columns")
                    raise DataError(f"{place}: {has}, but {len(rows[0])} before")
                if rows and not row:
                    yield Record(_fields(rows), first, block.at)
                    rows = []
                if row:
                    first = first if rows else place
                    rows.append(row)
        if rows:
            yield Record(_fields(rows), first, size_of(path))


def _shape(path: Path) -> tuple[bool, int]:
    """Whether columns end at tabs, and how many there are: as in the first line of a word."""
    for line, _ in numbered_lines(path):
        by_tabs = "\t" in line.strip(BLANK)
        if (row := _cells(line, by_tabs)) and not line.startswith("#"):
            return by_tabs, len(row)
    return True, 0


def _cells(line: str, by_tabs: bool) -> Row:
    """The columns of a line; none of a blank one, and of one between documents."""
    line = line.strip(BLANK)
    if not line or line.startswith("-DOCSTART-"):
        return []
    return re.split(r" *\t[\t ]*" if by_tabs else r"[ \t]+", line)


def _is_comment(line: str, row: Row, by_tabs: bool, width: int) -> bool:
    """Whether a line before the first word of a sentence is a comment, and not the word #."""
    other = len(row) != width or ("\t" in line.strip(BLANK)) != by_tabs
    return line.startswith("#") and (other or COMMENT.match(line) is not None)


def _fields(rows: list[Row]) -> dict[str, list[str]]:
    # several words (1-2) and an empty node (1.1) are no words of their own
    words = [row for row in rows if row[0].isdecimal()]
    counted = [row[0] for row in words] == [str(1 + i) for i in range(len(words))] != []
    numbered = counted and all(_is_number(row[0]) for row in rows)
    columns = [list(column) for column in zip(*(words if numbered else rows), strict=True)]
    record = {str(i): column for i, column in enumerate(columns)}
    if numbered and len(columns) == len(UNIVERSAL):
        names = dict(zip(UNIVERSAL, columns, strict=True))
        return record | names | {"words": names["form"], "tags": names["upos"]}
    return record | {"words": columns[0], "tags": columns[-1]}


def _is_number(cell: str) -> bool:
    first, dash, last = cell.partition("-")
    if dash:
        return first.isdecimal() and last.isdecimal() and int(first) < int(last)
    return NUMBER.fullmatch(cell) is not None
