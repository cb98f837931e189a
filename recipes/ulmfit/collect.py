"""Reviews of IMDb and questions of TREC, as json-lines with the fields text and label.

    python3 collect.py FOLDER DEST SETS... --labels N --unlabelled N --test N --words N

imdb: aclImdb/{train,test}/{pos,neg}/*.txt in FOLDER as they are published, or imdb/train.jsonl and
imdb/test.jsonl with the fields text and label, 1 or 0. trec: train_5500.label and TREC_10.label as
they are published, or TREC.train.raw and TREC.test.raw of sent-conv-torch, in FOLDER, trec or
nlu-small/sent-conv. Each file may be .gz.

Of each set, DEST/SET.texts.txt are the training texts without labels, a line each, at most
--unlabelled of them. SET.train.jsonl has at most --labels of them with their labels, and their last
--words words: reviews end with their verdict. So has SET.test.jsonl, at most --test texts of the
test set. SET.valid.jsonl, and SET.heldout.txt without labels, are at most 500 other training texts.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterable, Iterator
from pathlib import Path

from shared import find_file, open_packed

Rows = list[tuple[str, str]]
"""Texts, each with its label."""
SENTIMENTS = {0: "negative", 1: "positive"}
TREC = {
    "train": ("train_5500.label", "TREC.train.raw"),
    "test": ("TREC_10.label", "TREC.test.raw"),
}


def read(paths: list[Path]) -> Iterator[str]:
    """The lines of the first of these files that is there, or of its .gz."""
    with open_packed(find_file(*paths), "rb") as file:
        for line in file:
            try:
                yield line.decode()
            except UnicodeDecodeError:  # some questions of TREC
                yield line.decode("latin-1")


def imdb(folder: Path, part: str) -> Rows:
    """The reviews of a part."""
    published = folder / "aclImdb" / part
    if published.is_dir():
        return [
            (path.read_text(encoding="utf-8").replace("<br />", " "), SENTIMENTS[number])
            for number, name in enumerate(("neg", "pos"))
            for path in sorted((published / name).glob("*.txt"))
        ]
    rows = map(json.loads, read([folder / "imdb" / f"{part}.jsonl"]))
    return [(row["text"], SENTIMENTS[row["label"]]) for row in rows]


def trec(folder: Path, part: str) -> Rows:
    """The questions of a part, each with the coarse one of its labels."""
    places = (folder, folder / "trec", folder / "nlu-small" / "sent-conv")
    lines = read([folder / name for name in TREC[part] for folder in places])
    rows = (line.partition(" ") for line in lines)
    return [(text, label.partition(":")[0]) for label, _, text in rows]


SETS = {"imdb": imdb, "trec": trec}


def write(path: Path, lines: Iterable[str]) -> None:
    """Write a file of lines."""
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def main() -> None:
    """Write the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("dest", type=Path)
    parser.add_argument("sets", nargs="+", choices=SETS)
    for name in ("labels", "unlabelled", "test", "words"):
        parser.add_argument(f"--{name}", type=int, required=True)
    args = parser.parse_args()
    args.dest.mkdir(parents=True, exist_ok=True)
    for name in args.sets:
        train, test = (SETS[name](args.folder, part) for part in ("train", "test"))
        for rows in (train, test):
            random.Random(1).shuffle(rows)
        valid = train[: min(500, len(train) // 5)]
        train = train[len(valid) :]
        parts = {"train": train[: args.labels], "valid": valid, "test": test[: args.test]}
        for part, rows in parts.items():
            shortened = [(" ".join(text.split()[-args.words :]), label) for text, label in rows]
            lines = (json.dumps({"text": text, "label": label}) for text, label in shortened)
            write(args.dest / f"{name}.{part}.jsonl", lines)
        for part, rows in (("texts", train[: args.unlabelled]), ("heldout", valid)):
            write(args.dest / f"{name}.{part}.txt", (" ".join(text.split()) for text, _ in rows))


if __name__ == "__main__":
    main()
