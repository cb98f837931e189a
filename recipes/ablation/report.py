"""The table of an ablation.

Reads the finished rows of RUN, prints the table and writes it to RUN/table.md. The losses are those
after each quarter of a row's updates. `share` is the number of updates after which a row has the
last validation loss of another row, as a share of all updates of that row. The other row is

- the best AdamW row of the same task and architecture;
- for another architecture than the task's first one, the best row of that one with the same
  optimizer;
- for a row with a changed option of the architecture, where neither of these is another row, the
  same row without the change.
"""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from shared import markdown_table, parse_arguments, read_stage_events

TITLES = "task arch optimizer rate change updates 1/4 1/2 3/4 end share of".split()
RATE = re.compile(r"([\d.]*\d(?:[eE][-+]?\d+)?)\.?(.*)")
"""A rate, which may have a point (0.002), and a change."""
Curve = list[tuple[int, float]]


class Row(NamedTuple):
    """A finished run: its settings, and validation losses by update."""

    task: str
    arch: str
    optimizer: str
    rate: str
    change: str
    curve: Curve

    @property
    def updates(self) -> int:
        """All updates of the row."""
        return self.curve[-1][0]

    @property
    def last(self) -> float:
        """The validation loss after the last update."""
        return self.curve[-1][1]


def read(run: Path, name: str) -> Row:
    """The row of a finished run, whose name is TASK.ARCH.OPTIMIZER.RATE[.CHANGE][@UPDATES]."""
    task, arch, optimizer, rest = name.partition("@")[0].split(".", 3)
    rate, change = RATE.fullmatch(rest).groups()
    curve = [
        (event["step"], event["valid/loss"])
        for event in read_stage_events(run / "rows" / name, "valid")
    ]
    return Row(task, arch, optimizer, rate, change, curve)


def reached(curve: Curve, loss: float) -> float | None:
    """The update at which the curve comes down to a loss, between two validations on a line."""
    if curve[0][1] <= loss:
        return curve[0][0]
    for (before, high), (after, low) in pairwise(curve):
        if low <= loss:
            return before + (after - before) * (high - loss) / (high - low)
    return None


def against(row: Row, rows: list[Row]) -> Row | None:
    """The row that another one is measured against."""
    own = [other for other in rows if other.task == row.task]
    first = own[0].arch
    if row.change and (row.arch != first or row.optimizer == "adamw"):
        own = [other for other in own if other[1:4] == row[1:4] and not other.change]
    elif row.arch != first:
        own = [other for other in own if other.arch == first and other.optimizer == row.optimizer]
    else:
        own = [other for other in own if other.arch == first and other.optimizer == "adamw"]
        own = [] if row.optimizer == "adamw" else own
    return min(own, key=lambda other: other.last, default=None)


def main(run: Path) -> None:
    """Print and write the table."""
    marks = sorted(run.glob(".*.*.*.*"), key=lambda path: path.stat().st_mtime)
    rows = [read(run, path.name[1:]) for path in marks if (run / "rows" / path.name[1:]).is_dir()]
    cells = []
    for row in sorted(rows, key=lambda row: [other.task for other in rows].index(row.task)):
        goal = [row.updates * quarter / 4 for quarter in (1, 2, 3)]
        parts = [min(row.curve, key=lambda at: abs(at[0] - step))[1] for step in goal]
        other = against(row, rows)
        step = other and reached(row.curve, other.last)
        share = (
            ""
            if other is None
            else "not reached"
            if step is None
            else f"{step / other.updates:.2f}"
        )
        name = "" if other is None else " ".join(other[1:5]).strip()
        losses = [f"{loss:.3f}" for loss in [*parts, row.last]]
        words = [f"`{word}`" for word in (row.task, row.arch, row.optimizer)]
        cells.append([*words, row.rate, row.change, str(row.updates), *losses, share, name])
    text = markdown_table(TITLES, cells)
    (run / "table.md").write_text(text)
    print(text, end="")


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path))
