"""Questions to learn and to be judged on, from SQuAD's files.

    python3 collect.py FOLDER DEST [--rows N]

FOLDER has train.json and dev.json, or train-v1.1.json and dev-v1.1.json (or v2.0), each also as
.gz. DEST/train.json has N questions from all over the training set, or all of them; DEST/dev.json
has all. Training leaves out answers whose place is not known: where the file says `occurrences`,
the answer is in the passage several times, and `answer_start` is only the first.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from shared import find_file, open_packed


def read(folder: Path, part: str) -> Any:
    """The first file of a part that is there."""
    names = [f"{part}{version}.json" for version in ("", "-v1.1", "-v2.0")]
    with open_packed(find_file(*(folder / name for name in names)), "rb") as file:
        return json.load(file)


def thinned(squad: Any, limit: int | None) -> Any:
    """The questions whose answer has one place; of these `limit`, evenly spaced."""
    paragraphs = [paragraph for article in squad["data"] for paragraph in article["paragraphs"]]
    for paragraph in paragraphs:
        paragraph["qas"] = [question for question in paragraph["qas"] if placed(question)]
    total = sum(len(paragraph["qas"]) for paragraph in paragraphs)
    step, number = max(1, total // limit) if limit else 1, 0
    for paragraph in paragraphs:
        own = range(number, number + len(paragraph["qas"]))
        number += len(own)
        kept = [i % step == 0 and (limit is None or i // step < limit) for i in own]
        paragraph["qas"] = [
            question for question, keep in zip(paragraph["qas"], kept, strict=True) if keep
        ]
    return squad


def placed(question: Any) -> bool:
    """Whether the place of its answer is known."""
    return all(answer.get("occurrences", 1) == 1 for answer in question["answers"])


def main() -> None:
    """Write both parts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("dest", type=Path)
    parser.add_argument("--rows", type=int)
    args = parser.parse_args()
    parts = {
        "train": thinned(read(args.folder, "train"), args.rows),
        "dev": read(args.folder, "dev"),
    }
    args.dest.mkdir(parents=True, exist_ok=True)
    for part, squad in parts.items():
        text = json.dumps(squad, ensure_ascii=False)
        (args.dest / f"{part}.json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
