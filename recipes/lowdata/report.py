"""The accuracies at few labels."""

from __future__ import annotations

import json
from pathlib import Path

from shared import markdown_table, parse_arguments, publish_table, score_majority

SCORE = "test/class/correct"


def cell(path: Path) -> str:
    """Mean and standard deviation over the seeds, in per cent."""
    score = json.loads(path.read_text())["scores"][SCORE]
    spread = "" if score["std"] is None else f" ± {100 * score['std']:.1f}"
    return f"{100 * score['mean']:.1f}{spread}"


def main(run: Path, models: list[str], labels: list[str]) -> None:
    """Print and write the table."""
    rows = [["majority class", *[f"{score_majority(run):.1f}"] * len(labels)]]
    for model in models:
        rows.append([model, *(cell(run / f"{model}-{n}" / "seeds.json") for n in labels)])
    publish_table(run, markdown_table(["labels a class", *labels], rows))


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, models=str.split, labels=[str]))
