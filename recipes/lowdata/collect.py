"""Sentences of Yelp with their sentiment, as Shen et al. (2017) published them, as json-lines.

    python3 collect.py FOLDER DEST --rows N

FOLDER has sentiment.dev.0, sentiment.dev.1 and those of train, or of test where there is no train
(each also as .gz): a sentence a line, 0 being negative. DEST/train.jsonl has at most N of them,
drawn from both files, texts.txt the same without labels, to pre-train on. Of dev, at most 500 are
in valid.jsonl and 1,000 others in test.jsonl. A record has the fields text and label.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

from shared import open_packed

NAMES = ("negative", "positive")


def read(folder: Path, part: str) -> list[tuple[str, str]]:
    """The sentences of both files of a part, each with its label; none where they are missing."""
    sentences = []
    for number, name in enumerate(NAMES):
        for path in (folder / f"sentiment.{part}.{number}{end}" for end in ("", ".gz")):
            if path.exists():
                with open_packed(path) as file:
                    sentences += [(line.strip(), name) for line in file if line.strip()]
                break
    return sentences


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("dest", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    args = parser.parse_args()
    train = read(args.folder, "train") or read(args.folder, "test")
    dev = read(args.folder, "dev")
    if not train or not dev:
        raise SystemExit(f"DATA: {args.folder} lacks sentiment.dev.0 or sentiment.train.0 (or .gz)")
    rng = random.Random(1)
    rng.shuffle(train)
    rng.shuffle(dev)
    args.dest.mkdir(parents=True, exist_ok=True)
    parts = {"train": train[: args.rows], "valid": dev[: min(500, len(dev) // 2)]}
    parts["test"] = dev[len(parts["valid"]) :][:1000]
    for name, rows in parts.items():
        lines = (json.dumps({"text": text, "label": label}) + "\n" for text, label in rows)
        (args.dest / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        plain = args.dest / f"{'texts' if name == 'train' else name}.txt"
        plain.write_text("".join(text + "\n" for text, _ in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
