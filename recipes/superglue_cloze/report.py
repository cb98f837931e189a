"""The table of SuperGLUE's sets."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from stages import arguments, publish, records, table

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
        return [str(first_named(one)) for one in dev]
    [(most, _)] = Counter(str(one["label"]) for one in train).most_common(1)
    return [most] * len(dev)


def first_named(one: dict[str, Any]) -> int:
    """The number of the entity that stands first in the passage."""
    return min(range(len(one["choices"])), key=lambda i: one["passage"].find(one["choices"][i]))


def judged(name: str, said: list[str], dev: list[dict[str, Any]]) -> dict[str, float]:
    """Scores of labels as `unitk predict` writes them."""
    wanted = [str(one["label"]) for one in dev]
    if name == "record":
        found = [[one["choices"][int(label)]] for label, one in zip(said, dev, strict=True)]
        return answers(found, [one["answers"] for one in dev]).figures
    if name == "wsc":  # the noun of the question is choice 0
        said, wanted = [str(one == "0") for one in said], [str(one["right"]) for one in dev]
    found = dict(classes(said, wanted).figures)
    if name == "multirc":
        whole = defaultdict(list)
        for label, right, one in zip(said, wanted, dev, strict=True):
            whole[one["number"]].append(label == right)
        found["em"] = 100 * sum(map(all, whole.values())) / len(whole)
        found["f1"] = found.get("f1:True", 0.0)  # of the answers that are right
    return found


def main(run: Path, sets: list[str]) -> None:
    """Print and write the table."""
    lines = []
    for row in ("majority class", "scratch", "pretrained"):
        cells = [row]
        for name in sets:
            train, dev = (
                records(run / "text" / f"{name}.{part}.jsonl") for part in ("train", "dev")
            )
            if row.startswith("majority"):
                said = trivial(name, train, dev)
            else:
                said = [str(one["label"]) for one in records(run / name / f"{row}.jsonl")]
            scores = judged(name, said, dev)
            cells.append(" / ".join(f"{scores[figure]:.1f}" for figure in FIGURES[name]))
        lines.append(cells)
    titles = [f"{name} {' / '.join(FIGURES[name])}" for name in sets]
    publish(run, table(["", *titles], lines))


if __name__ == "__main__":
    main(*arguments(__doc__, run=Path, sets=[str]))
