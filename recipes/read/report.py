"""Outputs beside their inputs with the verdicts of a reader, and how many are good.

RUN has what was written for the files of TEXTS; samples have no input, and of walks the sentences
between the ends count, as one output. VERDICTS are those of an earlier reading. Writes
RUN/report.tsv: verdict, kind, input, output. A verdict holds wherever the same is written for the
same input; one that was written into RUN/report.tsv is kept.
"""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

from shared import markdown_table, parse_arguments

KINDS = ("fills", "continuations", "questions", "analogies", "walks", "samples")
VERDICTS = ("good", "off", "broken")


def known(*paths: Path) -> dict[tuple[str, ...], str]:
    """The verdict on each kind, input and output in tables like RUN/report.tsv."""
    verdict_of = {}
    for path in filter(Path.exists, paths):
        with path.open(encoding="utf-8", newline="") as file:
            for number, (verdict, *what) in enumerate(csv.reader(file, "excel-tab"), 1):
                if verdict not in ("", *VERDICTS):
                    raise SystemExit(f"{path}, line {number}: {verdict} is none of {VERDICTS}")
                if verdict:
                    verdict_of[tuple(what)] = verdict
    return verdict_of


def read(path: Path) -> list[str]:
    """The inputs or outputs of a kind, none without a file; a walk has several lines."""
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    walks = text.rstrip().split("\n\n")
    if len(walks) == 1:
        return text.splitlines()
    return [" / ".join(line.split("\t")[1] for line in walk.split("\n")[1:-1]) for walk in walks]


def main(run: Path, texts: Path, verdicts: Path) -> None:
    """Write the table, print the counts."""
    verdict_of = known(verdicts, run / "report.tsv")
    rows = []
    for kind in KINDS:
        prompts, written = (read(folder / f"{kind}.txt") for folder in (texts, run))
        for prompt, output in zip(prompts or [""] * len(written), written, strict=True):
            what = kind, prompt.replace("\t", " | "), output.replace("\t", " ")
            rows.append((verdict_of.get(what, ""), *what))
    with (run / "report.tsv").open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, "excel-tab", lineterminator="\n").writerows(rows)
    counts = Counter((kind, verdict) for verdict, kind, *_ in rows)
    print(
        markdown_table(
            ["", *VERDICTS, "not read"],
            [
                [kind, *(str(counts[kind, verdict]) for verdict in (*VERDICTS, ""))]
                for kind in KINDS
            ],
        )
    )
    print(f"{run / 'report.tsv'}: what is not read has an empty first column")


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, texts=Path, verdicts=Path))
