"""Reviews of films without labels, and SST-2's phrases with labels, as the recipe reads them.

    python3 collect.py FOLDER DEST

FOLDER has imdb/train.jsonl, nlu-small/sent-conv/stsa.binary.train and
nlu-small/sst2/{train,dev}.tsv, each also as .gz. DEST/texts.jsonl has IMDb's reviews and SST-2's
sentences of training, without labels. train.tsv has 3,000 of SST-2's phrases of training and
test.tsv its dev set, with the columns sentence and label.
"""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path

from shared import find_file, open_packed, parse_arguments

LABELLED = 3000
"""Phrases that labelled ones are drawn from."""


def read(path: Path) -> str:
    """A text file, or the same packed as .gz."""
    with open_packed(find_file(path), errors="replace", newline="") as file:
        return str(file.read())


def lines_of(path: Path) -> list[str]:
    """The lines of a text file. Texts may hold other characters at which `splitlines` cuts."""
    return read(path).removesuffix("\n").split("\n")


def phrases(path: Path) -> list[list[str]]:
    """The rows of a table of GLUE: sentence and label."""
    table = csv.reader(io.StringIO(read(path)), delimiter="\t", quoting=csv.QUOTE_NONE)
    return [[sentence.strip(), label] for sentence, label in table][1:]


def main(folder: Path, dest: Path) -> None:
    """Write the files."""
    reviews = [json.loads(line)["text"] for line in lines_of(folder / "imdb/train.jsonl")]
    train = phrases(folder / "nlu-small/sst2/train.tsv")
    random.Random(1).shuffle(train)
    dest.mkdir(parents=True, exist_ok=True)
    lines = lines_of(folder / "nlu-small/sent-conv/stsa.binary.train")
    texts = [*reviews, *(line.split(" ", 1)[1] for line in lines)]  # a line begins with its label
    text = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (dest / "texts.jsonl").write_text(text, encoding="utf-8")
    tables = {"train": train[:LABELLED], "test": phrases(folder / "nlu-small/sst2/dev.tsv")}
    for name, rows in tables.items():
        text = "".join("\t".join(row) + "\n" for row in [["sentence", "label"], *rows])
        (dest / f"{name}.tsv").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*parse_arguments(__doc__, folder=Path, dest=Path))
