"""The outputs of `unitk latent`: rows of numbers, and walks (texts of points along a path)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unitk.decoding.files.outputs import list_numbers, one_line
from unitk.families.latent.space.geometry import Points

if TYPE_CHECKING:
    from unitk.decoding.texts.outputs import Output


@dataclass(frozen=True)
class Outcome:
    """The result of a verb: a value for Python, and the lines of an output format."""

    value: Any
    lines: Callable[[str], Iterator[str]]


@dataclass(frozen=True)
class Walk:
    """Points of one path, and a label for each such as {"t": 0.5}, or none."""

    source: list[str]  # the texts it was made of
    at: list[dict[str, float]]
    points: Points  # [len(at), Z]


def walk_lines(
    walks: Sequence[Walk], decoded: Sequence[Sequence[Output]], format: str, nbest: int
) -> Iterator[str]:
    """The lines of all walks; `decoded` are the outputs of all their points, in order.

    text: the point's label, a tab, and the text. A blank line separates walks of several points.
    """
    if format == "jsonl":
        for record in walk_records(walks, decoded):
            yield json.dumps(record, ensure_ascii=False)
        return
    outputs = iter(decoded)
    for number, walk in enumerate(walks):
        keyed = any(walk.at)
        if keyed and number:
            yield ""
        for at in walk.at:
            known = "".join(f"{value:g}\t" for value in at.values())
            texts = [one_line(output.text) for output in next(outputs)]
            # empty ones where there are fewer outputs, so that no line is shifted
            yield from (known + text for text in [*texts, *[""] * (nbest - len(texts))])


def walk_records(
    walks: Sequence[Walk], decoded: Sequence[Sequence[Output]]
) -> Iterator[dict[str, Any]]:
    """A dict for each walk: its number, its source, if any, and the outputs of its points."""
    # the points of all walks were decoded together; each walk takes as many as it has
    outputs = iter(decoded)
    for number, walk in enumerate(walks):
        written = [
            {**at, "text": output.text, "score": round(output.hypothesis.score, 6)}
            for at in walk.at
            for output in next(outputs)
        ]
        source: dict[str, Any] = {}
        if walk.source:
            source["source"] = walk.source[0] if len(walk.source) == 1 else walk.source
        yield {"id": number, **source, "outputs": written}


def rows_of_numbers(texts: Sequence[str], name: str, table: Points, format: str) -> Iterator[str]:
    """A line for each text: its row of numbers, separated by tabs, or as a json object."""
    for number, (text, row) in enumerate(zip(texts, table, strict=True)):
        if format == "jsonl":
            yield json.dumps(
                {"id": number, "source": text, name: list_numbers(row)}, ensure_ascii=False
            )
        else:
            yield "\t".join(map(str, list_numbers(row)))


def neighbor_records(
    texts: Sequence[str], nearest: Sequence[tuple[np.ndarray, np.ndarray]], among: Sequence[str]
) -> list[dict[str, Any]]:
    """A dict for each text with its neighbours among others: distance, line and text of each."""
    return [
        {
            "id": number,
            "source": text,
            "neighbors": [
                {"distance": round(float(d), 6), "line": int(row) + 1, "text": among[row]}
                for row, d in zip(rows, far, strict=True)
            ],
        }
        for number, (text, (rows, far)) in enumerate(zip(texts, nearest, strict=True))
    ]


def neighbor_lines(records: Sequence[dict[str, Any]], format: str) -> Iterator[str]:
    """For each text, the distances of its neighbours, each with a tab and the neighbour."""
    for number, record in enumerate(records):
        if format == "jsonl":
            yield json.dumps(record, ensure_ascii=False)
            continue
        if number:
            yield ""
        for neighbor in record["neighbors"]:
            yield f"{neighbor['distance']:.4f}\t{one_line(neighbor['text'])}"


def probe_lines(rows: Sequence[dict[str, Any]], frequent: float, format: str) -> Iterator[str]:
    """The table of a probe; `frequent` is the share of the most frequent label."""
    if format == "jsonl":
        yield from map(json.dumps, rows)
        return
    yield "labels a class\taccuracy\tdeviation"
    for row in rows:
        spread = "" if row["deviation"] is None else f"{row['deviation']:.3f}"
        yield f"{row['per_class'] or 'all'}\t{row['mean']:.3f}\t{spread}"
    yield f"commonest label\t{frequent:.3f}\t"
