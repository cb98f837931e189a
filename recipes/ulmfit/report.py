"""The accuracies of IMDb and TREC."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from stages import arguments, events, records, table


def majority(run: Path, name: str) -> float:
    """The accuracy of the class that is most frequent in training, in per cent."""
    train, test = (
        [one["label"] for one in records(run / "text" / f"{name}.{part}.jsonl")]
        for part in ("train", "test")
    )
    [(most, _)] = Counter(train).most_common(1)
    return 100 * test.count(most) / len(test)


def accuracy(run: Path, name: str, row: str) -> float:
    """That of a row on the test set, in per cent."""
    [scores] = json.loads((run / name / f"{row}.json").read_text()).values()
    found: float = scores["accuracy"]
    return found


def main(run: Path, sets: list[str], rows: list[str]) -> None:
    """Print and write the table."""
    lines = [["majority class", *(f"{majority(run, name):.1f}" for name in sets)]]
    lines += [[row, *(f"{accuracy(run, name, row):.1f}" for name in sets)] for row in rows]
    text = table(["accuracy", *sets], lines)
    (run / "table.md").write_text(text)
    print("\n" + text)
    for name in ("general", *(f"{name}.lm" for name in sets)):
        for path in (run / name, run / f"{name}.backward"):
            if path.exists():
                last = events(path, "valid")[-1]
                print(f"{path.name}: perplexity {last['valid/lm/ppl']:.1f} of held-out text")


if __name__ == "__main__":
    main(*arguments(__doc__, run=Path, sets=str.split, rows=[str]))
