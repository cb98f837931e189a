"""Curves of runs from their log.jsonl: loss, learning rate, gradient norm, speed, panels."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from unitk.errors import DataError
from unitk.files import new_file
from unitk.pictures import save
from unitk.training.reporting.sinks import LOG, read_events

LOSS = "/loss"  # how the names of losses end: NAME/loss, where tasks are mixed also NAME.TASK/loss
PANELS = {
    LOSS: "loss",
    "lr": "learning rate",
    "gnorm": "gradient norm",
    "tokens/s": "tokens a second",
}
"""Logged value (for a loss: of every NAME) -> title."""
LATENT = {
    "panel/reconstruction": "reconstruction, nats a text",
    "panel/kl": "divergence, nats a text",
    "panel/mi": "mutual information, nats",
    "panel/z_gap": "z-gap, nats a text",
    "panel/active": "active units",
    "train/kl/beta": "beta",
}
"""Further values that are drawn if a run has logged them."""


def panels_of(logged: Iterable[str]) -> dict[str, str]:
    """The panels of a plot of these values, by title; each task of a mixture has its own."""
    panels = PANELS | {value: title for value, title in LATENT.items() if value in logged}
    for task in sorted({_task(name) for name in logged} - {""}):
        panels[LOSS] = "loss, of each task its share"
        panels[f".{task}{LOSS}"] = f"loss of {task}"
    return panels


def curves_of(value: str, logged: Iterable[str]) -> list[str]:
    """The logged values that a panel shows as curves, that of the training set first."""
    if not value.endswith(LOSS):
        return [value] * (value in logged)
    names = [name for name in logged if name.endswith(LOSS) and _task(name) == _task(value)]
    return sorted(names, key=lambda name: not name.startswith("train"))


def _task(name: str) -> str:
    """The task that a logged loss belongs to in a mixture."""
    return name.removesuffix(LOSS).partition(".")[2] if name.endswith(LOSS) else ""


def plot_runs(runs: Sequence[Path], output: Path) -> None:
    """Draw the curves of several runs into one image file."""
    # without the folders that all paths begin with
    same = len(os.path.commonprefix([run.parts[:-1] for run in runs]))
    events = {"/".join(run.parts[same:]): _events(run) for run in runs}
    with new_file(output, "--output") as part:
        save(_draw_runs(events), part, 120)


def _draw_runs(events: Mapping[str, list[dict[str, Any]]]) -> Any:
    """The figure of the curves of several runs, from the events of each by its name."""
    from matplotlib.figure import Figure

    logged = {name for of_run in events.values() for event in of_run for name in event}
    panels = panels_of(logged)
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(11, 3.5 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, sharex=True)
    for (value, title), axis in zip(panels.items(), axes.flat, strict=False):
        for number, (run, of_run) in enumerate(events.items()):
            _draw(axis, value, of_run, run if len(events) > 1 else "", f"C{number}")
        axis.set_title(title)
        axis.grid(alpha=0.3)
    for axis in axes[-1]:
        axis.set_xlabel("update")
    lines, names = axes[0, 0].get_legend_handles_labels()
    # names may be long: they are below the curves
    columns = max(1, 110 // (8 + max(map(len, names), default=0)))
    figure.legend(lines, names, loc="outside lower center", ncols=columns)
    return figure


def _events(run: Path) -> list[dict[str, Any]]:
    path = run / LOG
    if not path.is_file():
        raise DataError(f"{run} is not a run: there is no {path}")
    events = read_events(path)
    if not events:
        raise DataError(f"{path} holds no event yet: there is nothing to draw")
    return events


def _draw(axis: Any, value: str, events: list[dict[str, Any]], run: str, color: str) -> None:
    """Draw the curves of a value; a run has one colour, and its validation sets are dashed."""
    logged = dict.fromkeys(name for event in events for name in event)
    for i, name in enumerate(curves_of(value, logged)):
        points = [(e["step"], e[name]) for e in events if e.get(name) is not None]
        style = "-" if i == 0 else ("--", ":", "-.")[(i - 1) % 3]  # the first is the training set
        data = re.split("[./]", name)[0] if value.endswith(LOSS) else ""
        label = re.sub("^_", " _", " ".join(filter(None, [run, data])))  # "_" hides a name
        marker = "." if len(points) < 20 else ""  # a line through few points hides where they are
        axis.plot(*zip(*points, strict=True), style, color=color, marker=marker, label=label)
