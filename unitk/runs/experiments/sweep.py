"""`unitk sweep`: train runs over lists and ranges of options, and compare them.

DIR/sweep.json              the options of the sweep, and the table
DIR/trial-1/ trial-2/ ...   ordinary runs, which `unitk train --resume` continues

Successive halving is Jamieson and Talwalkar 2016, arXiv 1502.07943, algorithm 1: of the trials that
reached a budget, the best 1 / N go on to a budget N times as large. Schedules are those of the
whole run, so that a trial that goes on is the run of its options, bit for bit.
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np

from unitk import files
from unitk.api.verb import verb
from unitk.errors import NonFiniteError, UsageError, require
from unitk.options.config import With
from unitk.options.fields import Bound, Checked, Count, Positive
from unitk.registry import register
from unitk.runs.experiments.known import parse_experiment, read_experiment
from unitk.training.config import RANKING, figure
from unitk.training.reporting.log import show_log
from unitk.training.reporting.sinks import LOG, read_events
from unitk.training.saving.state import Progress, read_state
from unitk.training.start import Start, parse_train, prepare

TABLE = "sweep.json"
WHOLE = 1 << 62
"""More updates than a run has."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """Train runs over lists and ranges of options and compare their validations.

    What follows -- is a `unitk train` without --save-dir. The same command goes
    on after a stop.

    unitk sweep --over lr=.01,.02 --save-dir s -- --task lm --data d --max-steps 9
    """

    over: tuple[str, ...]
    """OPTION=VALUE,VALUE or a range OPTION=LOW:HIGH, whose values are drawn uniformly, with :log by
    their logarithms; whole numbers between whole bounds. May be repeated."""
    save_dir: Path
    """Folder of the trials and of sweep.json."""
    trials: Positive | None = None
    """Trials to draw. Default: every combination, if there are only lists."""
    halving: Annotated[int, Bound(2)] | None = None
    """Successive halving: the best 1 / N of the trials go on to a budget N times as large, up to
    the whole run. Default: every trial is trained to its end."""
    rungs: Annotated[Positive, With("halving")] = 3
    """Budgets of --halving, the whole run among them."""
    seed: Annotated[Count, With("trials")] = 1
    """Seed of the draws of --trials."""


@dataclass(frozen=True)
class Trial:
    """A run of the sweep."""

    name: str
    values: dict[str, str]
    start: Start

    @property
    def scores(self) -> list[tuple[int, float]]:
        """The step and the --best-metric of each validation so far; NaN is the worst of all."""
        metric = self.start.metric
        events = read_events(self.start.run.path / LOG)
        values = [
            (event["step"], event.get(metric)) for event in events if event["kind"] == "valid"
        ]
        return [(step, math.nan if value is None else value) for step, value in values]

    def best(self, budget: int) -> float:
        """The best --best-metric within a budget, so that less is better; infinite without one."""
        scores = (self.sign * v for step, v in self.scores if step <= budget and math.isfinite(v))
        return min(scores, default=math.inf)

    @property
    def sign(self) -> int:
        """-1 where more is better, else 1."""
        from unitk.training.measures import HIGHER

        return -1 if figure(self.start.metric) in (*HIGHER, *RANKING) else 1

    @property
    def texts(self) -> str | None:
        """What identifies the texts that it is validated on."""
        name = re.split("[./]", self.start.metric)[0]
        return self.start.data.valid_fingerprints.get(name)

    @property
    def has_loss(self) -> bool:
        """Whether --best-metric depends on which words the objective asks for: no score of written
        outputs, and no share of right labels, does."""
        of_labels = self.start.data.task.predicts and self.sign == -1
        return figure(self.start.metric) not in RANKING and not of_labels

    @property
    def finished(self) -> bool:
        """Whether the run has come to its end, and was validated there."""
        if (newest := self.start.run.newest()) is None:
            return False
        progress = Progress.of(read_state(newest))
        judged = any(step == progress.step for step, _ in self.scores)
        return judged and bool(progress.end_reason(self.start.config))


def value(argv: Sequence[str]) -> list[dict[str, Any]]:
    """Train the trials, rung by rung; a row for each, the best one first."""
    return sweep(*parse_experiment("sweep", Options, argv))


@register("verb", "sweep")
@verb(
    Options,
    parses=True,
    after_dashes="train",
    value=value,
    example='(over={"lr": [1e-3, 3e-3]}, save_dir="s", '
    'train={"task": "lm", "data": "d", "max_steps": 9})',
)
def run(argv: Sequence[str]) -> None:
    """Train the trials and print the table."""
    show_log()  # in Python the caller decides what is logged
    rows = value(argv)
    for line in [*table_lines(rows), *edges(rows)]:
        print(line)


def sweep(options: Options, base: Sequence[str]) -> list[dict[str, Any]]:
    """Train what is not trained yet; returns a row for each trial, the best one first."""
    named = [word for word in base if word.split("=")[0] == "--save-dir"]
    require(not named, "--save-dir comes before --: each trial has a folder in it")
    settings = [*options.over, str(options.trials), str(options.halving), str(options.rungs)]
    spec = {"options": [*settings, str(options.seed)], "train": list(base)}
    path = options.save_dir / TABLE
    names = ("--over", "--trials", "--halving", "--rungs", "--seed")
    read_experiment(path, spec, "sweep", names)
    # all are checked before the first one is trained, with their data and checkpoints:
    # a wrong value costs no training
    trials = [
        trial_of(options.save_dir, number, values, base)
        for number, values in enumerate(draw_trials(options), 1)
    ]
    check_comparable(trials)
    budgets = rungs(options, trials[0].start)
    # nothing is written before this line; a sweep that is stopped in its first trial has a table
    options.save_dir.mkdir(parents=True, exist_ok=True)
    alive = trials
    rows = write_table(path, spec, trials)
    for budget in budgets:
        for trial in alive:
            train_to(trial, budget)
            rows = write_table(path, spec, trials)
        if options.halving:
            ranked = sorted(alive, key=lambda trial: trial.best(budget))
            alive = ranked[: max(1, len(alive) // options.halving)]
    metric = trials[0].start.metric
    if all(row[metric] is None for row in rows):
        raise NonFiniteError(f"no trial of {options.save_dir} has a finite {metric}: see {path}")
    return rows


def write_table(path: Path, spec: dict[str, Any], trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """Write the table of the trials as they stand, and return its rows."""
    rows = table_of(trials)
    files.write(path, json.dumps({"sweep": spec, "trials": rows}, indent=1) + "\n")
    return rows


def draw_trials(options: Options) -> list[dict[str, str]]:
    """The values of each trial: a grid of lists, or draws."""
    axes: dict[str, list[str] | Range] = {}
    for text in options.over:
        # the list of --over was cut at every comma, those between the values of an option too:
        # what has no = belongs to the option before it
        name, equals, value = text.partition("=")
        last = next(reversed(axes), None)
        if not equals and last is not None and isinstance(values := axes[last], list):
            values.append(text)
            continue
        require(equals and value, f"--over {text}: write OPTION=VALUE,VALUE or =LOW:HIGH")
        name = name.removeprefix("--")
        require(name not in axes, f"--over {name} is given twice")
        require(name != "save-dir", "--over save-dir: each trial has a folder in --save-dir")
        axes[name] = range_of(text, value) or [value]
    ranges = [name for name, axis in axes.items() if isinstance(axis, Range)]
    for name, axis in axes.items():
        values = axis if isinstance(axis, list) else []
        twice = next((choice for choice in values if values.count(choice) > 1), None)
        require(twice is None, f"--over {name} names {twice} twice")
    if options.trials is None:
        require(not ranges, f"--trials N is needed: --over {' '.join(ranges)} is a range")
        lists = [axis for axis in axes.values() if isinstance(axis, list)]
        return [dict(zip(axes, values, strict=True)) for values in product(*lists)]
    rng = np.random.default_rng(options.seed)
    drawn: list[dict[str, str]] = []
    for _ in range(100 * options.trials):  # a trial that was drawn before is drawn again
        trial = {name: draw_one(axis, rng) for name, axis in axes.items()}
        if trial not in drawn:
            drawn.append(trial)
        if len(drawn) == options.trials:
            return drawn
    raise UsageError(f"--trials {options.trials}: --over has only {len(drawn)} different trials")


class Range(NamedTuple):
    """The values `LOW:HIGH` of an option, or `LOW:HIGH:log`."""

    low: float
    high: float
    logarithmic: bool
    whole: bool


def range_of(text: str, value: str) -> Range | None:
    """The range that a value of --over writes, or None if it is a value."""
    parts = value.split(":")
    try:
        low, high = float(parts[0]), float(parts[1])
    except (ValueError, IndexError):
        return None
    logarithmic = parts[2:] == ["log"]
    known = not parts[2:] or logarithmic
    good = known and low < high and math.isfinite(high - low)
    require(good, f"--over {text}: a range is LOW:HIGH or LOW:HIGH:log")
    require(low > 0 or not logarithmic, f"--over {text}: the logarithm needs LOW above 0")
    return Range(low, high, logarithmic, all(part.lstrip("-").isdigit() for part in parts[:2]))


def draw_one(axis: list[str] | Range, rng: np.random.Generator) -> str:
    """A value of a list or a range: whole, or to four digits."""
    if isinstance(axis, list):
        return axis[int(rng.integers(len(axis)))]
    low, high = axis.low, axis.high + axis.whole  # each whole number has an interval of its own
    if axis.logarithmic:
        drawn = math.exp(rng.uniform(math.log(low), math.log(high)))
    else:
        drawn = rng.uniform(low, high)
    return f"{min(math.floor(drawn), axis.high):.0f}" if axis.whole else f"{drawn:.4g}"


def trial_of(folder: Path, number: int, values: dict[str, str], base: Sequence[str]) -> Trial:
    """A trial whose options and data have passed all checks."""
    name = f"trial-{number}"
    words = [f"--{option}={value}" for option, value in values.items()]
    parsed = parse_train([*base, *words, f"--save-dir={folder / name}", "--resume"])
    alone = parsed.main.nproc == 1 and not parsed.main.seeds and not parsed.main.dry_run
    require(alone, "sweep takes no --nproc, --seeds or --dry-run")
    start = prepare(parsed)
    require(start.data.valid, "sweep compares validations: give --valid")
    return Trial(name, values, start)


def check_comparable(trials: Sequence[Trial]) -> None:
    """Refuse trials that no value can rank: it must mean the same for all of them.

    Losses of two objectives, or on two sets of texts, do not; and `PREFIX/loss` has what the
    criterion adds, which a perplexity has not.
    """
    first = trials[0]
    metric = trials[0].start.metric
    for other in trials[1:]:
        differ = [option for option, text in other.values.items() if text != first.values[option]]
        over = f"--over {' '.join(differ)}"
        other_metric = other.start.metric
        require(
            other_metric == metric,
            f"{over}: one --best-metric ranks trials, not {metric}, {other_metric}",
        )
        require(
            first.texts == other.texts,
            f"{over}: {first.name} and {other.name} are validated on different texts: give one "
            "--valid after --",
        )
        if not (first.has_loss or other.has_loss):
            continue
        settings = first.start.parsed.settings
        others = other.start.parsed.settings
        require(
            settings["task"].text == others["task"].text,
            f"--over task: {metric} of {settings['task'].text} and {others['task'].text} do not "
            "compare: rank by another --best-metric, such as valid/rouge1, or sweep one task at a "
            "time",
        )
        alike = figure(metric) != "loss" or settings.only("criterion") == others.only("criterion")
        require(
            alike,
            f"{over}: {metric} has what the criterion adds: rank by another --best-metric, such "
            "as valid/lm/ppl",
        )
    asked = sorted({option for trial in trials for option in trial.values if option[:5] == "task."})
    if asked and first.has_loss:
        log.warning(
            "--over %s: if trials are asked for other words, %s does not compare them",
            " ".join(asked),
            metric,
        )


def rungs(options: Options, start: Start) -> list[int]:
    """The updates after which trials are compared; the last budget is the whole run."""
    if options.halving is None:
        return [WHOLE]
    total = start.config.max_steps
    require(total, "--halving divides the updates of a run: give --max-steps after --")
    # a budget below --valid-every would end before the first validation
    shares = (options.halving**rung for rung in range(options.rungs - 1, 0, -1))
    budgets = [total // share for share in shares if total // share >= start.config.valid_every]
    return [*budgets, WHOLE]


def train_to(trial: Trial, budget: int) -> None:
    """Train a trial to its first validation at or after a budget, or to its end."""
    from unitk.training.loop import Trainer, events

    if any(step >= budget for step, _ in trial.scores) or trial.finished:
        return
    values = ", ".join(f"{name} {value}" for name, value in trial.values.items())
    log.info("%s: %s", trial.name, values)
    running = events(Trainer(prepare(trial.start.parsed)))  # finds what it has saved by now
    try:
        for event in running:
            # leaving the loop saves a checkpoint, with which the trial goes on later
            if event["kind"] == "valid" and event["step"] >= budget:
                break
    except NonFiniteError as error:  # this trial is lost, not the sweep
        log.warning("%s: %s", trial.name, error)
    finally:
        running.close()


def table_of(trials: Sequence[Trial]) -> list[dict[str, Any]]:
    """A row for each trial, those that went furthest first, and of these the best one."""
    rows = []
    for trial in trials:
        scores = trial.scores
        finite = [entry for entry in scores if math.isfinite(entry[1])]
        ranks = [trial.sign * value for _, value in finite]
        step, value = finite[ranks.index(min(ranks))] if finite else (None, None)
        done = scores[-1][0] if scores else 0
        row = {"trial": trial.name, **trial.values, "steps": done}
        rows.append({**row, "best_step": step, trial.start.metric: value})
    order = {trial.name: trial.best(WHOLE) for trial in trials}
    return sorted(rows, key=lambda row: (-row["steps"], order[row["trial"]]))


def table_lines(rows: Sequence[dict[str, Any]]) -> list[str]:
    """The table in lines."""

    def cell(value: Any) -> str:
        if value is None:
            return "-"
        return f"{value:.4g}" if isinstance(value, float) else str(value)

    cells = [[*rows[0]], *([cell(value) for value in row.values()] for row in rows)]
    wide = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(map(str.ljust, row, wide)).rstrip() for row in cells]


def edges(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Which options have their best value at an end of three or more numbers that were tried."""
    names = [*rows[0]]
    for name in names[1 : names.index("steps")]:
        try:
            tried = {float(row[name]) for row in rows}
        except ValueError:  # words
            continue
        best = float(rows[0][name])
        if len(tried) > 2 and best in (min(tried), max(tried)):
            end = "lowest" if best == min(tried) else "highest"
            yield f"{name}: the {end} value that was tried is the best, others may be better"
