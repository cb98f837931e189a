"""Files of retrieval: texts with ids, what was found for queries, and what should be."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from unitk.data.files.lines import name_file, numbered_lines
from unitk.data.files.pairs import Fields, source_of
from unitk.data.files.readers import Record, format_of, records
from unitk.errors import DataError, UsageError


class Passage(NamedTuple):
    """A query or a document."""

    id: str
    parts: list[str]

    @property
    def text(self) -> str | list[str]:
        """The text, or its parts if there are several."""
        return self.parts[0] if len(self.parts) == 1 else self.parts


def read_passages(
    paths: Sequence[Path], option: str, usual: str, fields: tuple[str, ...], id_field: str
) -> list[Passage]:
    """The texts of files, and of all files of folders, in the order of their names.

    A line is a text, a tab is between its parts. Of tables `fields` are read, or the `usual`
    one. Raises DataError where an id comes twice.
    """
    files = list[Path]()
    for path in paths:
        files += sorted(filter(Path.is_file, path.rglob("*"))) if path.is_dir() else [path]
    passages, seen = list[Passage](), set[str]()
    for path in files:
        for own_id, parts, where in _texts(path, option, fields, usual, id_field):
            text = Passage(str(len(passages)) if own_id is None else str(own_id), parts)
            if text.id in seen:
                raise DataError(f"{where}: id {text.id!r} comes twice")
            seen.add(text.id)
            passages.append(text)
    if not passages:
        raise DataError(f"{option} {' '.join(map(str, paths))} holds no text")
    return passages


def _texts(
    path: Path, option: str, fields: tuple[str, ...], usual: str, id_field: str
) -> Iterator[tuple[Any, list[str], str]]:
    """The id of each text, None if it has none, its parts, and its place."""
    if format_of(path) == "text":
        if fields:
            named = "--source-field" if option == "--input" else "--document-field"
            raise UsageError(f"{named} has no effect on {name_file(path)}, which is text")
        for line, where in numbered_lines(path):
            yield None, [part.strip() for part in line.split("\t")], where
        return
    read = Fields(fields or (usual,), ())
    needed = id_field != "id" and option == "--documents"  # queries may have none
    for record in records(path, (*read.source, id_field)):
        needed = needed or id_field in record
        if needed and record.get(id_field) is None:
            record.need(id_field, option="--id-field")
            raise DataError(f"{record.where(id_field)} is empty")
        yield record.get(id_field), source_of(record, read), record.place


def read_run(path: Path) -> dict[str, list[str]]:
    """Query -> the ids that were found for it, the best one first.

    Lines of a TREC run (query, Q0, id, rank, score, name), which are sorted by their scores, or
    what `unitk search` writes as json-lines.
    """
    scored: dict[str, dict[str, float]] = {}
    if format_of(path) == "text":
        for line, where in numbered_lines(path):
            if line.strip():
                query, _, document, _, score, _ = _columns(line, 6, "of a TREC run", where)
                _add(scored.setdefault(query, {}), document, _number(score, where), where)
    else:
        for record in records(path, ("id", "found")):
            record.need("id")
            record.need("found")
            scores = scored.setdefault(str(record.get("id")), {})
            ranked = record.get("found")
            if not isinstance(ranked, list) or not all(isinstance(hit, dict) for hit in ranked):
                raise DataError(f"{record.where('found')} must be a list of objects")
            for hit in ranked:
                _add(scores, str(hit.get("id")), -float(len(scores)), record.place)
    # sorting is stable: equal scores stay in the order of the file
    return {query: sorted(scores, key=lambda id_: -scores[id_]) for query, scores in scored.items()}


def read_judgements(paths: Sequence[Path]) -> dict[str, dict[str, float]]:
    """Query -> id -> how relevant it is, in all files together: 0 is not at all.

    Lines of TREC's qrels (query, 0, id, relevance), or a table with the fields query-id, corpus-id
    and score (BEIR).
    """
    judgements: dict[str, dict[str, float]] = {}
    for query, document, gain, where in chain.from_iterable(map(_judged, paths)):
        _add(judgements.setdefault(query, {}), document, _number(gain, where), where)
    return judgements


def _judged(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """The query, the id and the relevance of each line, and its place."""
    if format_of(path) == "text":
        for line, where in numbered_lines(path):
            if line.strip():
                query, _, document, gain = _columns(line, 4, "of qrels", where)
                yield query, document, gain, where
        return
    names = "query-id", "corpus-id", "score"
    for record in records(path, names):
        query, document, gain = (_field(record, name) for name in names)
        yield query, document, gain, record.place


def _field(record: Record, name: str) -> str:
    record.need(name)
    return str(record.get(name))


def _columns(line: str, count: int, kind: str, where: str) -> list[str]:
    columns = line.split()
    if len(columns) != count:
        raise DataError(f"{where}: a line {kind} has {count} columns, not {len(columns)}")
    return columns


def _number(text: str, where: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise DataError(f"{where}: {text!r} is no number")
    return number


def _add(scores: dict[str, float], document: str, score: float, where: str) -> None:
    if document in scores:
        raise DataError(f"{where}: id {document!r} comes twice for its query")
    scores[document] = score
