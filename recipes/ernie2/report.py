"""The table of ERNIE 2.0's ways of learning.

For each objective the share of right answers on held-out texts at the end of a run, and that of
the most frequent class among these answers.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

from shared import markdown_table, parse_arguments, publish_table, read_stage_events

from unitk.data.batching import draw
from unitk.training.start import parse_train, prepare

JOINT = ("multitask", "sequential", "continual", "scratch")
"""Rows that learn all objectives."""


def majorities(run: Path) -> dict[str, tuple[int, float]]:
    """Objective -> how many answers the validation set of a run has, and the share of one class."""
    again = [f"--config={run / 'config.yaml'}", f"--save-dir={run / 'none'}", "--resume=off"]
    [source] = prepare(parse_train(again)).data.valid.values()
    labels = defaultdict[str, Counter[int]](Counter)
    for number in range(len(source.bounds(0))):
        for ask in draw(source, 0, 0, number).asks:
            labels[ask.name].update(ask.label.tolist())
    return {
        name: (counts.total(), counts.most_common(1)[0][1] / counts.total())
        for name, counts in labels.items()
    }


def cell(value: float | None) -> str:
    """A share as a percentage."""
    return "" if value is None else f"{100 * value:.1f} %"


def main(run: Path, rows: list[str]) -> None:
    """Print and write the table."""
    names, lines = ["mlm", "capital", "document", "order", "distance", "discourse"], []
    for row in rows:
        last = read_stage_events(run / row, "valid")[-1]
        shares = [last.get(f"valid/{name}/correct") for name in names]
        lines.append([row, f"{last['step']:,}", *map(cell, shares)])
    joint = next((row for row in rows if row in JOINT), rows[0])
    counts_of = majorities(run / joint)
    majority = [cell(counts_of[name][1]) if name in counts_of else "" for name in names]
    answers = [f"{counts_of[name][0]:,}" if name in counts_of else "" for name in names]
    lines += [["most frequent class", "", *majority], [f"answers ({joint})", "", *answers]]
    publish_table(run, markdown_table(["learning", "updates", *names], lines))


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, rows=[str]))
