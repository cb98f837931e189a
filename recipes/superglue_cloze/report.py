"""The table of SuperGLUE's sets."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from shared import markdown_table, parse_arguments, publish_table, read_jsonl

from unitk.metrics.labels import answers, classes

FIGURES = {
    **dict.fromkeys(("boolq", "copa", "rte", "wic", "wsc"), ["accuracy"]),
    **{"cb": ["accuracy", "f1_macro"], "multirc": ["f1", "em"], "record": ["f1", "em"]},
}
"""Figures of each set, as SuperGLUE reports them (Wang et al. 2019, arXiv 1905.00537, table 1)."""


def trivial(name: str, train: list[dict[str, Any]], dev: list[dict[str, Any]]) -> list[str]:
    """The label most frequent in training; of WSC that the noun is not meant, of ReCoRD the entity
    that the passage names first."""
    if name == "wsc":
        return ["1"] * len(dev)
    if name == "record":
        return [str(first_named(record)) for record in dev]
    [(commonest, _)] = Counter(str(record["label"]) for record in train).most_common(1)
    return [commonest] * len(dev)


def first_named(record: dict[str, Any]) -> int:
    """The number of the entity that comes first in the passage."""
    return min(
        range(len(record["choices"])), key=lambda i: record["passage"].find(record["choices"][i])
    )


def judged(name: str, predicted: list[str], dev: list[dict[str, Any]]) -> dict[str, float]:
    """Scores of labels as `unitk predict` writes them."""
    expected = [str(record["label"]) for record in dev]
    if name == "record":
        chosen = [
            [record["choices"][int(label)]] for label, record in zip(predicted, dev, strict=True)
        ]
        return answers(chosen, [record["answers"] for record in dev]).figures
    if name == "wsc":  # the noun of the question is choice 0
        predicted, expected = (
            [str(label == "0") for label in predicted],
            [str(record["right"]) for record in dev],
        )
    figures = dict(classes(predicted, expected).figures)
    if name == "multirc":
        whole = defaultdict(list)
        for label, right, record in zip(predicted, expected, dev, strict=True):
            whole[record["number"]].append(label == right)
        figures["em"] = 100 * sum(map(all, whole.values())) / len(whole)
        figures["f1"] = figures.get("f1:True", 0.0)  # of the answers that are right
    return figures


def main(run: Path, sets: list[str]) -> None:
    """Print and write the table."""
    lines = []
    for row in ("majority class", "scratch", "pretrained"):
        cells = [row]
        for name in sets:
            train, dev = (
                read_jsonl(run / "text" / f"{name}.{part}.jsonl") for part in ("train", "dev")
            )
            if row.startswith("majority"):
                predicted = trivial(name, train, dev)
            else:
                predicted = [
                    str(record["label"]) for record in read_jsonl(run / name / f"{row}.jsonl")
                ]
            scores = judged(name, predicted, dev)
            cells.append(" / ".join(f"{scores[figure]:.1f}" for figure in FIGURES[name]))
        lines.append(cells)
    titles = [f"{name} {' / '.join(FIGURES[name])}" for name in sets]
    publish_table(run, markdown_table(["", *titles], lines))


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, sets=[str]))
