"""The last panel of each run as a table.

python3 report.py RUN REGIME...
"""

from __future__ import annotations

import sys
from pathlib import Path

from unitk.training.reporting.sinks import read_events

COLUMNS = ("reconstruction", "kl", "mi", "active", "z_gap")


def main(run: Path, regimes: list[str]) -> None:
    """Print a row for each regime."""
    names = [column.replace("_", "-") for column in COLUMNS]
    print(f"\n| {' | '.join(['regime', *names, 'seconds'])} |\n|{' --- |' * (len(names) + 2)}")
    for regime in regimes:
        events = read_events(run / regime / "log.jsonl")
        panel = [event for event in events if event["kind"] == "panel"][-1]
        seconds = [event["seconds"] for event in events if event["kind"] == "train"][-1]
        numbers = [panel[f"panel/{name}"] for name in COLUMNS]
        cells = [
            f"{n:.0f}" if name == "active" else f"{n:.2f}"
            for name, n in zip(COLUMNS, numbers, strict=True)
        ]
        print(f"| {' | '.join([regime, *cells, f'{seconds:.0f}'])} |")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
