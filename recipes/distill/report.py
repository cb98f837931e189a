"""The table of a distillation: the validation loss of each row, and how much it differs from the
same model alone. Writes RUN/table.md.
"""

from __future__ import annotations

from pathlib import Path

from shared import markdown_table, parse_arguments, read_stage_events


def rows(run: Path) -> list[list[str]]:
    """A row for each model that is finished, the teacher's and the one alone first."""
    order = ["teacher", "alone"]
    names = sorted(
        (path.name for path in (run / "rows").iterdir() if (run / f".{path.name}").exists()),
        key=lambda name: (order.index(name) if name in order else len(order), name),
    )
    losses = {
        name: read_stage_events(run / "rows" / name, "valid")[-1]["valid/loss"] for name in names
    }
    alone = losses.get("alone")
    lines = []
    for name in names:
        last = read_stage_events(run / "rows" / name, "train")[-1]
        gain = f"{losses[name] - alone:+.3f}" if alone and name not in order else ""
        minutes = f"{last['seconds'] / 60:.1f}"
        lines.append([f"`{name}`", f"{losses[name]:.3f}", gain, f"{last['tokens']:,}", minutes])
    return lines


def main(run: Path) -> None:
    """Print the table and write it."""
    text = markdown_table(["", "validation loss", "from `alone`", "tokens", "minutes"], rows(run))
    (run / "table.md").write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path))
