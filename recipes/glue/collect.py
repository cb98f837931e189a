"""GLUE's sets as json-lines, from the files as they are published.

    python3 collect.py FOLDER DEST SETS... [--rows N] [--valid N]

FOLDER has GLUE's folders (CoLA/train.tsv, SST-2/dev.tsv, ...) or those of the sets' authors (cola/,
sst2/, ...), each file also as .gz. DEST/SET.train.jsonl has N rows from all over the training set,
or all of them; DEST/SET.dev.jsonl has all. With --valid, DEST/SET.valid.jsonl has N other rows of
the training set, at most a quarter of it, to choose rates and checkpoints by. A record has the
field sentence, or sentence1 and sentence2, and label.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shared import find_file, open_packed


@dataclass(frozen=True)
class Known:
    """Files of a set, each with what else they may be called; and their columns."""

    train: list[str]
    dev: list[str]
    sentences: list[str]
    label: str = "label"
    columns: dict[str, list[str]] | None = None
    """Ending of a file without a row of names -> its columns."""
    ragged: bool = False
    """Whether the published files have rows that lack cells, which everybody leaves out."""


TWO = ["sentence1", "sentence2"]
MRPC = "mrpc/msr_paraphrase_{}.tsv MRPC/msr_paraphrase_{}.txt"
STSB = ["genre", "file", "year", "number", "score", *TWO]
SETS = {
    "cola": Known(
        ["cola/train.tsv CoLA/train.tsv"],
        ["cola/dev.in_domain.tsv CoLA/dev.tsv", "cola/dev.out_of_domain.tsv CoLA/dev.tsv"],
        ["sentence"],
        columns={".tsv": ["source", "label", "star", "sentence"]},
    ),
    "sst2": Known(["sst2/train.tsv SST-2/train.tsv"], ["sst2/dev.tsv SST-2/dev.tsv"], ["sentence"]),
    "rte": Known(["rte/train.tsv RTE/train.tsv"], ["rte/dev.tsv RTE/dev.tsv"], TWO),
    "mrpc": Known(
        [MRPC.replace("{}", "train")],
        [MRPC.replace("{}", "test")],  # it has labels, and no dev set was published beside it
        ["#1 String", "#2 String"],
        "Quality",
    ),
    "stsb": Known(
        ["stsb/sts-train.csv STS-B/train.tsv"],
        ["stsb/sts-dev.csv STS-B/dev.tsv"],
        TWO,
        "score",
        {".csv": STSB},
    ),
    "mnli": Known(["MNLI/train.tsv"], ["MNLI/dev_matched.tsv"], TWO, "gold_label"),
    "qnli": Known(["QNLI/train.tsv"], ["QNLI/dev.tsv"], ["question", "sentence"]),
    "qqp": Known(
        ["QQP/train.tsv"], ["QQP/dev.tsv"], ["question1", "question2"], "is_duplicate", ragged=True
    ),
}


def rows(path: Path, known: Known) -> Iterator[dict[str, str]]:
    """The records of a file of cells between tabs, in which quotes are characters."""
    ending = path.with_suffix("").suffix if path.suffix == ".gz" else path.suffix
    names = (known.columns or {}).get(ending)
    with open_packed(path, encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            cells = line.rstrip("\r\n").split("\t")
            if names is None:
                names = cells
            elif len(cells) < len(names):
                if known.ragged:
                    continue
                raise SystemExit(f"{path}, line {number}: {len(cells)} cells, not {len(names)}")
            else:
                yield dict(zip(names, cells, strict=False))


def read_part(folder: Path, files: list[str], known: Known) -> list[dict[str, str]]:
    """The records of all files of a part."""
    paths = dict.fromkeys(find_file(*(folder / name for name in names.split())) for names in files)
    return [row for path in paths for row in rows(path, known)]


def spread(records: list[dict[str, str]], limit: int | None) -> list[dict[str, str]]:
    """`limit` rows from all over a set: many are in the order of their sources."""
    step = max(1, len(records) // limit) if limit else 1
    return records[::step][:limit]


def collect(folder: Path, dest: Path, name: str, limit: int | None, held_out: int) -> None:
    """Write the parts of a set, of which `limit` bounds the training, without `held_out` rows."""
    known = SETS[name]
    train, dev = (read_part(folder, files, known) for files in (known.train, known.dev))
    valid = spread(train, min(held_out, len(train) // 4)) if held_out else []
    chosen = {id(row) for row in valid}
    parts = {"train": spread([row for row in train if id(row) not in chosen], limit), "dev": dev}
    titles = ["sentence"] if len(known.sentences) == 1 else TWO
    for part, records in (parts | ({"valid": valid} if valid else {})).items():
        with (dest / f"{name}.{part}.jsonl").open("w", encoding="utf-8") as file:
            for row in records:
                texts = {
                    to: row[column] for to, column in zip(titles, known.sentences, strict=True)
                }
                file.write(json.dumps({**texts, "label": row[known.label]}) + "\n")


def main() -> None:
    """Collect the sets that were asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("dest", type=Path)
    parser.add_argument("sets", nargs="+", choices=list(SETS))
    parser.add_argument("--rows", type=int)
    parser.add_argument("--valid", type=int, default=0)
    args = parser.parse_args()
    args.dest.mkdir(parents=True, exist_ok=True)
    for name in args.sets:
        collect(args.folder, args.dest, name, args.rows, args.valid)


if __name__ == "__main__":
    main()
