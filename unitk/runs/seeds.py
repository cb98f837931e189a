"""One training with several seeds (`--seeds`): a run for each, and how their scores vary.

DIR/config.yaml             the options of all runs
DIR/seed-1/ seed-2/ ...     ordinary runs
DIR/seeds.json              the scores of those that are over, their mean and deviation
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from unitk import files
from unitk.errors import CheckpointError, require
from unitk.options.config import Parsed
from unitk.registry import register
from unitk.training.config import TrainConfig
from unitk.training.loop import train
from unitk.training.reporting.sinks import LOG, validation_at
from unitk.training.saving.folder import CONFIG, SEEDS, RunFolder
from unitk.training.saving.state import Progress, read_state
from unitk.training.start import prepare

log = logging.getLogger(__name__)


@register("measure", "seeds")
def train_seeds(parsed: Parsed) -> dict[str, Any]:
    """Train the runs that are not finished yet; returns the contents of seeds.json.

    Each run equals, bit for bit, a run of its own with that --seed.
    """
    config: TrainConfig = parsed.main
    assert config.seeds is not None
    folder = config.save_dir
    require(
        not any((folder / mark).exists() for mark in (LOG, "checkpoints")),
        f"--save-dir {folder} holds a single run: --seeds needs another folder",
    )
    seeds = range(config.seed, config.seed + config.seeds)
    rows = list[dict[str, Any]]()
    for seed in seeds:
        settings = replace(config, seed=seed, seeds=None, save_dir=folder / f"seed-{seed}")
        start = prepare(replace(parsed, main=settings))
        require(start.data.valid, "--seeds compares validations: give --valid")
        if seed == seeds[0]:
            folder.mkdir(parents=True, exist_ok=True)
            files.write(folder / CONFIG, parsed.settings.yaml())
        resumed = start.beginning.resumed
        if resumed is None or not Progress.of(read_state(resumed)).end_reason(settings):
            log.info("seed %d of %d to %d: %s", seed, seeds[0], seeds[-1], settings.save_dir)
            train(start)
        rows.append({"seed": seed, **best_of(settings.save_dir)})
        summary = sum_up(rows)
        files.write(folder / SEEDS, json.dumps(summary, indent=1) + "\n")
    for line in seed_lines(summary):
        log.info("%s", line)
    return summary


def best_of(folder: Path) -> dict[str, Any]:
    """The step of a run's best validation, and the values at that step; None if not finite."""
    newest = RunFolder.at(folder, resume=True).newest()
    step = None if newest is None else Progress.of(read_state(newest)).best_step
    if scores := validation_at(folder, step):
        return {"step": step, "scores": scores}
    lacks = "no validation was finite" if step is None else f"that of step {step} is not there"
    raise CheckpointError(f"{folder / LOG} has no best validation: {lacks}")


def sum_up(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The runs, and each score's mean and standard deviation (of a sample, n - 1)."""
    names = runs[0]["scores"]
    by_name = {name: [run["scores"].get(name) for run in runs] for name in names}
    finite = {name: values for name, values in by_name.items() if None not in values}
    scores = {
        name: {"mean": mean(values), "std": stdev(values) if len(values) > 1 else None}
        for name, values in finite.items()
    }
    return {"scores": scores, "runs": list(runs)}


def seed_lines(summary: dict[str, Any]) -> list[str]:
    """The scores in lines: mean, standard deviation, and the value of each seed."""
    runs = summary["runs"]
    scores = summary["scores"]
    wide = max(map(len, ["best validation", *scores])) + 2
    titles = ["mean", "std", *(f"seed {run['seed']}" for run in runs)]
    lines = ["best validation".ljust(wide) + "".join(title.rjust(10) for title in titles)]
    for name, of in scores.items():
        values = [of["mean"], of["std"], *(run["scores"][name] for run in runs)]
        cells = ("-" if value is None else f"{value:.4g}" for value in values)
        lines.append(name.ljust(wide) + "".join(cell.rjust(10) for cell in cells))
    return lines
