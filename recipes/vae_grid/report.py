"""The measures of each row (BETA/LAMBDA/TOKENIZER) as a table."""

from __future__ import annotations

import json
from pathlib import Path

from shared import markdown_table, parse_arguments

COLUMNS = {"reconstruction": 2, "kl": 2, "mi": 2, "active": 0, "bound": 2, "ppl_word": 1}
"""Measures of `unitk evaluate` and their digits."""


def main(run: Path, rows: list[str]) -> None:
    """Print a row for each setting, and write the table to RUN/table.md."""
    cells = []
    for row in rows:
        figures = json.loads((run / f"{row.replace('/', '-')}.json").read_text(encoding="utf-8"))
        cells.append(
            [
                *row.split("/"),
                *(f"{figures[column]:.{digits}f}" for column, digits in COLUMNS.items()),
            ]
        )
    text = markdown_table(("beta", "lambda", "tokenizer", *COLUMNS), cells)
    (run / "table.md").write_text(text, encoding="utf-8")
    print("\n" + text)


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, rows=[str]))
