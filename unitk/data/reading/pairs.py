"""Readers of pairs beside lines: records and SQuAD.

Records are those of any table (`records.py`). The user names their fields: a source may have
several, its parts, and so may a target, equally good ones of which the first is learnt. A value is
a text or a list: of the sentences of a source, which blanks join, or of equally good targets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from unitk.data.reading import sources
from unitk.data.reading.records import records
from unitk.data.reading.sources import PairBlock, PairText, characters, whole
from unitk.errors import DataError
from unitk.foreign import parse_json


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


def record_blocks(
    path: Path, fields: Fields, base: int = 0, name: str = "jsonl"
) -> Iterator[PairBlock]:
    """`read_records`, some pairs at a time."""
    found = records(path, name, (*fields.source, *fields.target))
    while some := list(islice(found, sources.PAIRS_IN_BLOCK)):
        pairs = [pair for record, where, _ in some if (pair := _pair(record, where, fields))]
        yield PairBlock(path, base + some[0][2], pairs)


def _pair(record: Any, where: str, fields: Fields) -> PairText | None:
    source, found = source_of(record, where, fields), targets_of(record, where, fields)
    if not found or not all(source):
        if fields.skip_empty:
            return None
        empty = ", ".join(fields.target if all(source) else fields.source)
        raise DataError(f"{where}: {empty} is empty; --skip-empty leaves such records out")
    return PairText(source, found[0], tuple(found[1:]))


def source_of(record: Any, where: str, fields: Fields) -> list[str]:
    """The parts of a record's source."""
    known = _names(record, where)
    for name in fields.source:
        if name not in record:
            raise DataError(f"{where}: no field {name!r}, see --source-field; there are {known}")
    return [" ".join(_texts(record[name], name, where)).strip() for name in fields.source]


def targets_of(record: Any, where: str, fields: Fields) -> list[str]:
    """The targets of a record, the first one first, each on one line; empty ones are left out."""
    known = _names(record, where)
    present = [name for name in fields.target if name in record]
    if not present:
        wanted = " or ".join(map(repr, fields.target))
        raise DataError(f"{where}: no field {wanted}, see --target-field; there are {known}")
    return [
        one
        for name in present
        for text in _texts(record[name], name, where)
        if (one := joined(text.split("\n"), fields.mark))
    ]


def _names(record: Any, where: str) -> str:
    if not isinstance(record, dict):
        raise DataError(f"{where}: no JSON object with fields")
    return ", ".join(record)


def joined(lines: Iterable[str], mark: str) -> str:
    """Sentences as one line, with a mark between them."""
    return (f" {mark} " if mark else " ").join(line for text in lines if (line := text.strip()))


def _texts(value: Any, name: str, where: str) -> list[str]:
    several = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in several):
        raise DataError(f"{where}: field {name!r} must be a text or a list of texts")
    return [characters(text, where) for text in several]


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


def _found(answer: str, passage: str, start: Any) -> tuple[int, int] | None:
    """The characters of the stripped passage that are the answer: where it is said to start if
    that is true, else the first such ones, if any."""
    said = isinstance(start, int) and start >= 0 and passage.startswith(answer, start)
    first = start if said else passage.find(answer)
    cut = len(passage) - len(passage.lstrip())
    return (first - cut, first - cut + len(answer)) if answer and first >= 0 else None


def _member(node: Any, name: str, kind: type, where: str) -> Any:
    if not isinstance(node, dict) or not isinstance(node.get(name), kind):
        noun = "list" if kind is list else "text"
        raise DataError(f"{where} has no {noun} {name!r}, so this is no SQuAD json")
    return characters(node[name], where) if kind is str else node[name]
