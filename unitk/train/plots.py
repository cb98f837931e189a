"""Curves of runs from their log.jsonl: loss, learning rate, gradient norm, speed, panels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unitk.errors import DataError, UsageError
from unitk.files import new_file
from unitk.masks import save
from unitk.train.sinks import LOG, read_events

PANELS = {
    "loss": "loss",
    "lr": "learning rate",
    "gnorm": "gradient norm",
    "tokens/s": "tokens a second",
}
"""Logged value (for the loss: every value called NAME/loss) -> title."""
LATENT = {
    "panel/reconstruction": "reconstruction, nats a text",
    "panel/kl": "divergence, nats a text",
    "panel/mi": "mutual information, nats",
    "panel/z_gap": "z-gap, nats a text",
    "panel/active": "active units",
    "panel/beta": "beta",
}
"""What is drawn beside, where a run has logged it."""


def plot(runs: Sequence[Path], output: Path) -> None:
    """Draw the curves of several runs over each other into an image file."""
    with new_file(output, "--output", UsageError) as part:
        _plot(runs, part)


def _plot(runs: Sequence[Path], output: Path) -> None:
    from matplotlib.figure import Figure

    events = {run: _events(run) for run in runs}
    logged = {name for of_run in events.values() for event in of_run for name in event}
    panels = PANELS | {value: title for value, title in LATENT.items() if value in logged}
    rows = -(-len(panels) // 2)
    size = (11, 3.5 * rows)
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, 2, sharex=True)
    for (value, title), axis in zip(panels.items(), axes.flat, strict=False):
        for number, run in enumerate(runs):
            _draw(axis, value, events[run], run.name if len(runs) > 1 else "", f"C{number}")
        axis.set_title(title)
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("update")
    axes[0, 0].legend()
    save(figure, output, 120)


def _events(run: Path) -> list[dict[str, Any]]:
    path = run / LOG
    if not path.is_file():
        raise DataError(f"{run} is no run: there is no {path}")
    events = read_events(path)
    if not events:
        raise DataError(f"{path} holds no event yet: there is nothing to draw")
    return events


def _draw(axis: Any, value: str, events: list[dict[str, Any]], run: str, color: str) -> None:
    """The curves of a value; a run has one colour, its validation sets are dashed."""
    wanted = {
        name: None
        for event in events
        for name in event
        if name == value or (value == "loss" and name.endswith("/loss"))
    }
    for i, name in enumerate(wanted):
        points = [(e["step"], e[name]) for e in events if e.get(name) is not None]
        style = "-" if i == 0 else ("--", ":", "-.")[(i - 1) % 3]
        label = " ".join(filter(None, [run, name.partition("/")[0] if value == "loss" else ""]))
        marker = "." if len(points) < 20 else ""
        axis.plot(*zip(*points, strict=True), style, color=color, marker=marker, label=label)
