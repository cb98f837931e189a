"""The accuracies at few labels."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from stages import arguments, records, table

SCORE = "test/class/correct"


def majority(run: Path) -> float:
    """The accuracy of the class that is most frequent in training."""
    train, test = (
        [one["label"] for one in records(run / "text" / f"{part}.jsonl")]
        for part in ("train", "test")
    )
    [(most, _)] = Counter(train).most_common(1)
    return sum(label == most for label in test) / len(test)


def cell(path: Path) -> str:
    """Mean and standard deviation over the seeds, in per cent."""
    score = json.loads(path.read_text())["scores"][SCORE]
    spread = "" if score["std"] is None else f" ± {100 * score['std']:.1f}"
    return f"{100 * score['mean']:.1f}{spread}"


def main(run: Path, models: list[str], labels: list[str]) -> None:
    """Print and write the table."""
    rows = [["majority class", *[f"{100 * majority(run):.1f}"] * len(labels)]]
    for model in models:
        rows.append([model, *(cell(run / f"{model}-{n}" / "seeds.json") for n in labels)])
    text = table(["labels a class", *labels], rows)
    (run / "table.md").write_text(text)
    print("\n" + text, end="")


if __name__ == "__main__":
    main(*arguments(__doc__, run=Path, models=str.split, labels=[str]))
