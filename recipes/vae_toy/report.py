"""The last panel of each run as a table."""

from __future__ import annotations

from pathlib import Path

from shared import markdown_table, parse_arguments, read_stage_events

COLUMNS = {"reconstruction": 2, "kl": 2, "mi": 2, "active": 0, "z_gap": 2}
"""Measures of the panel and their digits."""


def main(run: Path, regimes: list[str]) -> None:
    """Print a row for each regime."""
    rows = []
    for regime in regimes:
        panel, train = (read_stage_events(run / regime, kind)[-1] for kind in ("panel", "train"))
        cells = [f"{panel[f'panel/{name}']:.{digits}f}" for name, digits in COLUMNS.items()]
        rows.append([regime, *cells, f"{train['seconds']:.0f}"])
    print(
        "\n"
        + markdown_table(("regime", *(name.replace("_", "-") for name in COLUMNS), "seconds"), rows)
    )


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, regimes=[str]))
