"""Made-up reviews with and without labels, where no real ones are there."""

from __future__ import annotations

import json
import random
from pathlib import Path

from shared import parse_arguments

WHAT = "plot cast film music story ending".split()
SAYS = {0: "dull flat slow weak".split(), 1: "fresh warm bright lovely".split()}


def main(dest: Path) -> None:
    """Write the files."""
    rng = random.Random(1)
    dest.mkdir(parents=True, exist_ok=True)

    def phrase(label: int) -> str:
        return f"the {rng.choice(WHAT)} is {rng.choice(SAYS[label])}"

    texts = [" . ".join(phrase(number % 2) for _ in range(4)) for number in range(400)]
    lines = (json.dumps({"text": text}) + "\n" for text in texts)
    (dest / "texts.jsonl").write_text("".join(lines), encoding="utf-8")
    for name, count in {"train": 60, "test": 40}.items():
        rows = (f"{phrase(number % 2)}\t{number % 2}\n" for number in range(count))
        (dest / f"{name}.tsv").write_text("sentence\tlabel\n" + "".join(rows), encoding="utf-8")


if __name__ == "__main__":
    main(*parse_arguments(__doc__, dest=Path))
