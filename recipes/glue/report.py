"""The table of GLUE's small sets: python3 report.py RUN SETS..."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from stages import records, table

from unitk.score.labels import classes, numbers

FIGURES = {
    "cola": ["matthews"],
    "sst2": ["accuracy"],
    "rte": ["accuracy"],
    "mrpc": ["accuracy", "f1:1"],
    "stsb": ["pearson", "spearman"],
}
"""Figures of each set, as GLUE reports them (Wang et al. 2019, arXiv 1804.07461, table 1)."""


def trivial(run: Path, name: str) -> dict[str, Any]:
    """Scores of one label for every text: the class most frequent in training, or the mean."""
    train, dev = (
        [one["label"] for one in records(run / "text" / f"{name}.{part}.jsonl")]
        for part in ("train", "dev")
    )
    if name == "stsb":
        mean = sum(map(float, train)) / len(train)
        return numbers([mean] * len(dev), [float(label) for label in dev]).figures
    [(most, _)] = Counter(train).most_common(1)
    return classes([most] * len(dev), dev).figures


def main(run: Path, sets: list[str]) -> None:
    """Print and write the table."""
    lines = []
    for row in ("majority class, mean", "scratch", "pretrained"):
        cells = [row]
        for name in sets:
            if row.startswith("majority"):
                scores = trivial(run, name)
            else:
                [scores] = json.loads((run / name / f"{row}.json").read_text()).values()
            cells.append(" / ".join(f"{scores[figure]:.1f}" for figure in FIGURES[name]))
        lines.append(cells)
    text = table(["", *(f"{name} {' / '.join(FIGURES[name])}" for name in sets)], lines)
    (run / "table.md").write_text(text)
    print("\n" + text, end="")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
