"""Words and their tags as json-lines, from CoNLL's columns.

    python3 collect.py FOLDER DEST SETS... [--rows N]

FOLDER/SET has train.conll and test.conll, each also as .gz. A set that was published as one file
has all.conll instead, the last fifth of whose sentences are its test. DEST/SET.train.jsonl has the
first N sentences of train, or all of them. A record has the lists words (the first column) and tags
(the last one).
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
            found = records(path, given="conll")
            return [{name: record.texts(name) for name in ("words", "tags")} for record in found]
    return None


def split(folder: Path) -> tuple[Sentences, Sentences]:
    """What is learnt and what is judged of a set."""
    train, test, every = (read(folder, part) for part in ("train", "test", "all"))
    if train is not None and test is not None:
        return train, test
    if every is None:
        raise SystemExit(f"DATA: {folder} has neither train.conll and test.conll nor all.conll")
    return every[: len(every) * 4 // 5], every[len(every) * 4 // 5 :]


def main() -> None:
    """Write both parts of each set."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("dest", type=Path)
    parser.add_argument("sets", nargs="+")
    parser.add_argument("--rows", type=int)
    given = parser.parse_args()
    given.dest.mkdir(parents=True, exist_ok=True)
    for name in given.sets:
        train, test = split(given.folder / name)
        for part, some in (("train", train[: given.rows]), ("test", test)):
            lines = (json.dumps(one, ensure_ascii=False) + "\n" for one in some)
            (given.dest / f"{name}.{part}.jsonl").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
