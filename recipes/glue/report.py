"""The table of GLUE's small sets."""

from __future__ import annotations

from pathlib import Path

from shared import GLUE, markdown_table, parse_arguments, publish_table, score_trivial, scores_in

ROWS = {
    "scratch": "scratch",
    "pretrained": "pretrained",
    "together": "pretrained, all sets at once",
    "alone": "the same, then the set alone",
}
"""Name of the files of a row -> what the table calls it."""


def main(run: Path, sets: list[str]) -> None:
    """Print and write the table."""
    lines = []
    learnt = [row for row in ROWS if (run / sets[0] / f"{row}.json").exists()]
    for row in ("majority class, mean", *learnt):
        cells = [ROWS.get(row, row)]
        for name in sets:
            if row.startswith("majority"):
                scores = score_trivial(run, name)
            else:
                scores = scores_in(run / name / f"{row}.json")
            cells.append(" / ".join(f"{scores[figure]:.1f}" for figure in GLUE[name]))
        lines.append(cells)
    publish_table(
        run, markdown_table(["", *(f"{name} {' / '.join(GLUE[name])}" for name in sets)], lines)
    )


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, sets=[str]))
