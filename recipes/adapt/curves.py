"""Print when an adapted model has the last loss of the same objective from fresh weights.

    python curves.py RUN mlm mdlm

A row of the table: the means of the last tenth of both curves, and the share of the updates after
which the adapted one is below the other's, of means over as many updates.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def curve(run: Path) -> list[float]:
    """The losses of training, in order."""
    events = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [event["train/loss"] for event in events if "train/loss" in event]


def smooth(values: list[float]) -> list[float]:
    """Means over a tenth of the curve that ends at each place."""
    width = max(1, len(values) // 10)
    parts = (values[max(0, i + 1 - width) : i + 1] for i in range(len(values)))
    return [sum(part) / len(part) for part in parts]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path, help="the folder of recipes/adapt/run.sh")
    parser.add_argument("names", nargs="+", help="objectives")
    given = parser.parse_args()
    print("| objective | scratch, last | adapted, last | adapted is there after |")
    print("| --- | --- | --- | --- |")
    for name in given.names:
        scratch, adapted = (
            smooth(curve(given.run / f"{name}-{how}")) for how in ("scratch", "adapted")
        )
        there = next((i for i, loss in enumerate(adapted) if loss <= scratch[-1]), None)
        when = "not in this run" if there is None else f"{(there + 1) / len(adapted):.0%}"
        print(f"| `{name}` | {scratch[-1]:.3f} | {adapted[-1]:.3f} | {when} |")


if __name__ == "__main__":
    main()
