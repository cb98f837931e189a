"""Words and their tags as json-lines, from CoNLL's columns.

    python3 collect.py FOLDER DEST SETS... [--rows N]

FOLDER/SET has train.conll, test.conll and maybe dev.conll, each also as .gz. A set that was
published as one file has all.conll instead, the last fifth of whose sentences are its test. Without
dev.conll, the last tenth of the sentences before the test are held out for validation.
DEST/SET.train.jsonl has the first N sentences of the others, or all of them. A record has the lists
words (the first column) and tags (the last one).
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from unitk.data.files.readers import records

Sentences = list[dict[str, list[str]]]


def read(folder: Path, part: str) -> Sentences | None:
    """The sentences of a file, if it is there."""
    for path in (folder / f"{part}.conll", folder / f"{part}.conll.gz"):
        if path.exists():
            rows = records(path, given="conll")
            return [{name: record.texts(name) for name in ("words", "tags")} for record in rows]
    return None


def split(folder: Path) -> dict[str, Sentences]:
    """The parts train, dev and test of a set."""
    train, dev, test, every = (read(folder, part) for part in ("train", "dev", "test", "all"))
    if train is None or test is None:
        if every is None:
            raise SystemExit(f"DATA: {folder} has neither train.conll and test.conll nor all.conll")
        train, test = every[: len(every) * 4 // 5], every[len(every) * 4 // 5 :]
    if dev is None:
        train, dev = train[: len(train) * 9 // 10], train[len(train) * 9 // 10 :]
    return {"train": train, "dev": dev, "test": test}


def main() -> None:
    """Write the parts of each set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("dest", type=Path)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--rows", type=int)
    args = parser.parse_args()
    args.dest.mkdir(parents=True, exist_ok=True)
    for name in args.sets:
        for part, some in split(args.folder / name).items():
            some = some[: args.rows] if part == "train" else some
            lines = (json.dumps(sentence, ensure_ascii=False) + "\n" for sentence in some)
            (args.dest / f"{name}.{part}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
