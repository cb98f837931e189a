"""Print when an adapted model has the last loss of the same objective from fresh weights.

    python curves.py RUN mlm mdlm

A row of the table: the validation losses of both at their ends, and the share of the updates after
which the adapted model is first validated at or below the other's.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def curve(run: Path) -> list[tuple[int, float]]:
    """The updates after which a run was validated, and its losses there."""
    events = map(json.loads, (run / "log.jsonl").read_text(encoding="utf-8").splitlines())
    return [(event["step"], event["valid/loss"]) for event in events if "valid/loss" in event]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path, help="the folder of recipes/adapt/run.sh")
    parser.add_argument("names", nargs="+", help="objectives")
    args = parser.parse_args()
    print("| objective | scratch, last | adapted, last | adapted is there after |")
    print("| --- | --- | --- | --- |")
    for name in args.names:
        scratch, adapted = (curve(args.run / f"{name}-{how}") for how in ("scratch", "adapted"))
        (steps, last), (_, end) = scratch[-1], adapted[-1]
        there = next((step for step, loss in adapted if loss <= last), None)
        when = "not in this run" if there is None else f"{there / steps:.0%}"
        print(f"| `{name}` | {last:.3f} | {end:.3f} | {when} |")


if __name__ == "__main__":
    main()
