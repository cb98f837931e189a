"""Readers of pairs beside lines and SQuAD: json records, and two news sets as they are published.

Records are json-lines or one json list (SAMSum). The user names their fields: a source may have
several, its parts, and so may a target, equally good ones of which the first is learnt. A value is
a text or a list: of the sentences of a source, which blanks join, or of equally good targets.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from unitk.data import sources
from unitk.data.sources import (
    PairBlock,
    PairText,
    blocks,
    characters,
    lines_of,
    parse_json,
    pieces,
    whole,
)
from unitk.errors import DataError

HIGHLIGHT = "@highlight"
SECTION = re.compile(r"\[SN\]([A-Z-]+)\[SN\]")
"""What stands before each section of a page of XSum's."""
BUTTONS = {"Share this with", "Email", "Facebook", "Messenger", "Twitter", "Pinterest", "WhatsApp"}
BUTTONS |= {"Linkedin", "LinkedIn", "Copy this link"}
BUTTONS |= {"These are external links and will open in a new window"}
"""Lines of such a page that are no text."""


@dataclass(frozen=True)
class Fields:
    """What is read of a record."""

    source: tuple[str, ...]
    """Its parts, in this order."""
    target: tuple[str, ...]
    """Those of these that a record has."""
    mark: str = ""
    """Stands between the sentences of a target, which are its lines."""
    skip_empty: bool = False
    """Leave out records without a source or a target, instead of refusing them."""


def read_records(path: Path, fields: Fields) -> Iterator[PairText]:
    """The pairs of a file of records."""
    for block in record_blocks(path, fields):
        yield from block.pairs


def record_blocks(path: Path, fields: Fields, base: int = 0) -> Iterator[PairBlock]:
    """`read_records`, some pairs at a time."""
    found = _listed(path) if _is_list(path) else _lines(path)
    while some := list(islice(found, sources.PAIRS_IN_BLOCK)):
        pairs = [pair for record, where, _ in some if (pair := _pair(record, where, fields))]
        yield PairBlock(path, base + some[0][2], pairs)


def _is_list(path: Path) -> bool:
    start = next((piece for piece, _ in pieces(path)), b"")
    return start.removeprefix(b"\xef\xbb\xbf").lstrip().startswith(b"[")


def _lines(path: Path) -> Iterator[tuple[Any, str, int]]:
    """Records, the place of each for messages, and in bytes."""
    for block in blocks(path):
        for number, line in enumerate(lines_of(block), block.line):
            if line.strip():
                where = f"{path}, line {number}"
                yield parse_json(line, where), where, block.at


def _listed(path: Path) -> Iterator[tuple[Any, str, int]]:
    records = parse_json(whole(path), str(path))
    step = path.stat().st_size / max(len(records), 1)
    for i, record in enumerate(records):
        yield record, f"{path}: [{i}]", int(i * step)


def _pair(record: Any, where: str, fields: Fields) -> PairText | None:
    if not isinstance(record, dict):
        raise DataError(f"{where}: no JSON object with fields")
    known = ", ".join(record)
    for name in fields.source:
        if name not in record:
            raise DataError(f"{where}: no field {name!r}, see --source-field; there are {known}")
    present = [name for name in fields.target if name in record]
    if not present:
        wanted = " or ".join(map(repr, fields.target))
        raise DataError(f"{where}: no field {wanted}, see --target-field; there are {known}")
    source = [" ".join(_texts(record[name], name, where)).strip() for name in fields.source]
    found = [
        one
        for name in present
        for text in _texts(record[name], name, where)
        if (one := joined(text.split("\n"), fields.mark))
    ]
    if not found or not all(source):
        if fields.skip_empty:
            return None
        empty = ", ".join(present if all(source) else fields.source)
        raise DataError(f"{where}: {empty} is empty; --skip-empty leaves such records out")
    return PairText(source, found[0], tuple(found[1:]))


def joined(lines: list[str], mark: str) -> str:
    """Sentences as one line, with a mark between them."""
    return (f" {mark} " if mark else " ").join(line for text in lines if (line := text.strip()))


def _texts(value: Any, name: str, where: str) -> list[str]:
    several = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in several):
        raise DataError(f"{where}: field {name!r} must be a text or a list of texts")
    return [characters(text, where) for text in several]


def read_story(path: Path) -> PairText:
    """A .story file of CNN/DailyMail (Hermann et al. 2015): article -> highlights, one a line."""
    article, *highlights = whole(path).split(HIGHLIGHT)
    lines = [joined(text.split("\n"), "") for text in highlights]
    return PairText([joined(article.split("\n"), "")], "\n".join(lines))


def read_bbc(path: Path) -> PairText:
    """A .summary file of XSum (Narayan et al. 2018): the rest of a page -> its first sentence."""
    names_and_texts = SECTION.split(whole(path))[1:]
    sections = dict(zip(names_and_texts[::2], names_and_texts[1::2], strict=True))
    for name in ("FIRST-SENTENCE", "RESTBODY"):
        if name not in sections:
            raise DataError(f"{path}: no section [SN]{name}[SN], so this is no page of XSum's")
    rest = [line for line in sections["RESTBODY"].split("\n") if line.strip() not in BUTTONS]
    return PairText([joined(rest, "")], joined(sections["FIRST-SENTENCE"].split("\n"), ""))
