"""`unitk scale`: runs of several sizes and budgets, the law of their losses, and a rung held out.

DIR/scale.json                   the options, the plan, the rungs with their losses, the fits
DIR/scale.md                     the rungs and the fits as a page
DIR/TASK/WIDTHxLAYERS-TOKENS/    ordinary runs, which `unitk train --resume` continues
"""

from __future__ import annotations

import json
import logging
import math
import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from unitk import files
from unitk.api.verb import verb
from unitk.errors import NonFiniteError, UsageError, require
from unitk.options.fields import Checked, Positive, parse_value
from unitk.registry import register
from unitk.runs.experiments.hoffmann import HIGH, LOW, check_rungs, fit
from unitk.runs.experiments.jobs import (
    TrainingJob,
    check_memory,
    markdown_table,
    plan_lines,
    time_jobs,
    train_all,
    without_options,
)
from unitk.runs.experiments.known import check_plan, parse_experiment, read_experiment
from unitk.runs.experiments.sweep import table_lines
from unitk.training.reporting.log import show_log
from unitk.training.saving.state import Progress, read_state
from unitk.training.start import parse_train, prepare

TABLE, PAGE = "scale.json", "scale.md"
OWN = {
    **dict.fromkeys(("max-steps", "max-epochs", "max-words", "max-hours"), "--tokens say how long"),
    "batch-texts": "--tokens count slots: give --batch-tokens",
    "save-dir": "it comes before --",
    "dry-run": "--plan measures what a ladder costs",
    **dict.fromkeys(("arch.width", "arch.num-layers"), "--sizes have it"),
    **dict.fromkeys(("arch.num-heads", "arch.ffn-width"), "it follows from --arch and --sizes"),
}
"""Options that a ladder sets or that leave a run's tokens unknown, and what stands for them."""
NUMBERS = "floor", "alpha", "beta"
STATE = 12.0
"""Bytes that a weight needs in training at least: itself, its gradient, a mean."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """Train a ladder of sizes and budgets, fit the law of the losses, and test it on a larger rung.

    What follows -- is a `unitk train` without --save-dir and length. A measured
    plan comes first. The same command goes on after a stop.

    unitk scale --sizes 64x2,96x3,128x4 --tokens 1M,2M,4M --save-dir s \\
      -- --task lm --data d
    """

    sizes: tuple[str, ...]
    """WIDTHxLAYERS of each size. Heads and feed-forward parts are as wide as in --arch, relative to
    the width."""
    tokens: tuple[Positive, ...]
    """Slots that a run of each size reads, such as 1M,2M,4M."""
    tasks: tuple[str, ...] = ()
    """Objectives, each with a ladder of its own. Default: that of --task after --."""
    held_out: str | None = None
    """WIDTHxLAYERS-TOKENS of the rung that is not fitted but predicted, such as 192x4-4M. Default:
    the largest size with the largest budget."""
    save_dir: Path
    """Folder of the runs and of scale.json."""
    jobs: Positive = 1
    """Runs at a time, each in a process of its own."""
    plan: bool = False
    """Print the plan, from a measured minute, and train nothing."""


@dataclass(frozen=True)
class Rung(TrainingJob):
    """A run of the ladder; its name is the size and the budget."""

    size: str

    @cached_property
    def weights(self) -> int:
        """All weights of the model."""
        import torch

        from unitk.models.model import build

        start = self.trial.start
        data = start.data
        arch = start.parsed.components["arch"].config
        with torch.device("meta"):  # without memory
            model = build(arch, len(data.vocab), len(data.task.source_vocab))
        return sum(weight.numel() for weight in model.parameters())

    def row(self, held_out: bool) -> dict[str, Any]:
        """The rung's weights, tokens read, and last loss (None before it is trained)."""
        trial = self.trial
        newest = trial.start.run.newest()
        scores = trial.scores
        row = {"task": self.task, "rung": self.name, "held_out": held_out, "loss": None}
        row["weights"] = self.weights
        row["tokens"] = self.tokens
        # what was read differs a little from the budget, as updates hold whole texts
        if newest is not None and trial.finished:
            row["tokens"] = Progress.of(read_state(newest)).tokens
            row["loss"] = scores[-1][1] if scores and math.isfinite(scores[-1][1]) else None
        return row


def value(argv: Sequence[str]) -> dict[str, Any]:
    """Train what is not trained yet; returns the contents of scale.json."""
    return scale(*parse_experiment("scale", Options, argv))


@register("verb", "scale")
@verb(
    Options,
    parses=True,
    after_dashes="train",
    cure="lower --jobs, --max-tokens or the last of --sizes",
    value=value,
    example='(sizes="64x2,96x3,128x4", tokens="1M,2M,4M", save_dir="s", '
    'train={"task": "lm", "data": "d"})',
)
def run(argv: Sequence[str]) -> None:
    """Print the plan, or losses and fits after training."""
    show_log()
    for line in ladder_lines(value(argv)):
        print(line)


def scale(options: Options, base: Sequence[str]) -> dict[str, Any]:
    """Measure, train what is not trained yet, and fit; returns the contents of scale.json."""
    spec = {"options": [[*options.sizes], [*options.tokens], [*options.tasks], options.held_out]}
    spec["train"] = [*base]
    path = options.save_dir / TABLE
    known = read_experiment(path, spec, "scale", ("--sizes", "--tokens", "--tasks", "--held-out"))
    # all are checked before the first one is measured
    rungs = ladder(options, base)
    last = name_held_out(options, rungs)
    check_ladder(rungs, last)
    # a ladder that goes on keeps its plan: measuring costs a minute
    plan = known["plan"] if "plan" in known else measure_sizes(rungs)
    if known:
        check_plan(path, plan, [{"task": rung.task, "rung": rung.name} for rung in rungs])
    check_memory(plan, options.jobs, rungs[0].trial.start.config.device)
    if options.plan:
        return {"scale": spec, "plan": plan, "jobs": options.jobs, "rungs": [], "fits": {}}
    options.save_dir.mkdir(parents=True, exist_ok=True)
    contents: dict[str, Any] = {"scale": spec, "plan": plan, "rungs": [], "fits": {}}
    files.write(path, json.dumps(contents, indent=1) + "\n")
    for line in plan_lines(plan, options.jobs):
        log.info("%s", line)
    train_all(rungs, options.jobs)
    contents["rungs"] = [rung.row(rung.name == last) for rung in rungs]
    files.write(path, json.dumps(contents, indent=1) + "\n")
    refuse_lost_runs(contents["rungs"], options.save_dir)
    contents["fits"] = {task: fit_task(contents["rungs"], task) for task in tasks_of(rungs)}
    files.write(path, json.dumps(contents, indent=1) + "\n")
    files.write(options.save_dir / PAGE, "\n".join(ladder_page(contents)) + "\n")
    return contents


def check_ladder(rungs: Sequence[Rung], last: str) -> None:
    """Raise a UsageError if an objective has too few runs for a fit, or a size no memory."""
    for task in tasks_of(rungs):
        fitted = [rung for rung in rungs if rung.task == task and rung.name != last]
        check_rungs([rung.size for rung in fitted], [rung.tokens for rung in fitted])
    for size, rung in {rung.size: rung for rung in rungs}.items():
        check_size(size, rung)


def refuse_lost_runs(rows: Sequence[Mapping[str, Any]], folder: Path) -> None:
    """Raise a NonFiniteError if a run that is fitted has no finite loss."""
    lost = [row for row in rows if row["loss"] is None]
    if not all(row["held_out"] for row in lost):
        names = ", ".join(f"{row['task']}/{row['rung']}" for row in lost[:3])
        raise NonFiniteError(
            f"no finite loss, so that nothing is fitted: {names} of {len(lost)} in {folder}; lower "
            "--lr"
        )


def check_size(size: str, rung: Rung) -> None:
    """Raise a UsageError if the weights of a size leave no memory to train them."""
    from unitk.training.device import check_model_fits, choose_device

    start = rung.trial.start
    arch = start.parsed.components["arch"].config
    device = choose_device(start.config.device)
    try:
        check_model_fits(arch, len(start.data.vocab), STATE, device)
    except UsageError as error:
        raise UsageError(f"{size} of --sizes or --held-out: {error}") from error


def ladder(options: Options, base: Sequence[str]) -> list[Rung]:
    """Every size with every budget, for each objective, and the rung held out if it is another."""
    for word in base:
        name = word.split("=")[0].removeprefix("--")
        name = name.replace("_", "-")
        require(name not in OWN, f"--{name} excludes a ladder: {OWN.get(name)}")
    for option, values in (
        ("sizes", options.sizes),
        ("tokens", options.tokens),
        ("tasks", options.tasks),
    ):
        twice = next((value for value in values if values.count(value) > 1), None)
        require(twice is None, f"--{option} names {twice} twice")
    pairs = [(size, tokens) for size in options.sizes for tokens in options.tokens]
    if options.held_out:
        last = parse_rung(options.held_out)
        if last not in pairs:
            pairs.append(last)
    rungs = list[Rung]()
    for task in options.tasks or ("",):
        words = [*base, f"--task={task}"] if task else [*base]
        if task:
            require(not any(w.startswith("--task.") for w in base), "--tasks excludes --task.*")
            words = [*without_options(base, "--task"), f"--task={task}"]
        rungs += [rung_of(options.save_dir, words, size, tokens) for size, tokens in pairs]
    return rungs


def parse_rung(text: str) -> tuple[str, int]:
    """The size and the tokens of a rung that is written as 192x4-4M."""
    size, _, tokens = text.partition("-")
    good = bool(re.fullmatch(r"\d+x\d+", size) and tokens)
    require(good, f"--held-out must be WIDTHxLAYERS-TOKENS, got {text!r}")
    return size, parse_value(tokens, int, "--held-out")


def rung_of(folder: Path, base: Sequence[str], size: str, tokens: int) -> Rung:
    """A rung; raises UsageError for wrong options or data."""
    require(re.fullmatch(r"\d+x\d+", size), f"--sizes {size}: write WIDTHxLAYERS, as 64x2")
    width, layers = map(int, size.split("x"))
    first = parse_train([*base, f"--save-dir={folder / 'x'}", "--max-steps=1"])
    arch = first.components["arch"].config
    task = first.settings["task"].text
    require(first.main.nproc == 1 and not first.main.seeds, "scale takes no --nproc, --seeds")
    # heads keep their width, so that only their number changes; kernels like multiples of 8
    heads = max(1, round(width * arch.num_heads / arch.width))
    ffn = max(8, 8 * round(width * arch.ffn_width / arch.width / 8))
    shape = {"width": width, "num-layers": layers, "num-heads": heads, "ffn-width": ffn}
    words = [*base, *(f"--arch.{name}={value}" for name, value in shape.items())]
    words += [f"--save-dir={folder / task / f'{size}-{tokens}'}", "--resume"]
    # the slots of an update follow from options and defaults, and the updates from these; there
    # are no more updates than slots, so that a run which goes on is not asked to end before
    try:
        parsed = parse_train([*words, f"--max-steps={tokens}"])
    except UsageError as error:  # the same training was parsed above, in another shape
        raise UsageError(f"{size} of --sizes or --held-out: {error}") from error
    start = prepare(parsed)
    require(start.data.valid, "scale compares validations: give --valid")
    steps = round(tokens / (start.config.batch_tokens or 1))
    require(
        steps > 1, f"--tokens {tokens} is less than 2 updates of {start.config.batch_tokens} slots"
    )
    return Rung(task, f"{size}-{tokens}", tokens, steps, (*words, f"--max-steps={steps}"), size)


def name_held_out(options: Options, rungs: Sequence[Rung]) -> str:
    """The name of the rung that is predicted."""
    if options.held_out:
        return "-".join(map(str, parse_rung(options.held_out)))
    return max(rungs, key=lambda rung: (rung.weights, rung.tokens)).name


def measure_sizes(rungs: Sequence[Rung]) -> list[dict[str, Any]]:
    """Seconds, tokens and bytes of each rung, from some updates of each size."""
    first: dict[Hashable, TrainingJob] = {
        (rung.task, rung.size): rung for rung in sorted(rungs, key=lambda rung: rung.weights)
    }
    costs = time_jobs(first)
    plan = list[dict[str, Any]]()
    for rung in rungs:
        seconds, memory = costs[rung.task, rung.size]
        row = {"task": rung.task, "rung": rung.name, "weights": rung.weights}
        row |= {"tokens": rung.tokens, "updates": rung.updates}
        plan.append({**row, "seconds": rung.updates * seconds, "bytes": memory})
    return plan


def tasks_of(rungs: Sequence[Rung]) -> list[str]:
    """The objectives, in their order."""
    return list(dict.fromkeys(rung.task for rung in rungs))


def fit_task(rows: Sequence[dict[str, Any]], task: str) -> dict[str, Any]:
    """The law of an objective's losses, and the loss that it predicts for the rung held out."""
    of_task = [row for row in rows if row["task"] == task]
    # null in JSON; the fit refuses it
    losses = [row["loss"] if row["loss"] is not None else math.nan for row in of_task]
    fitted = [at for at, row in enumerate(of_task) if not row["held_out"]]
    columns = [[row[name] for row in of_task] for name in ("weights", "tokens")]
    estimate = fit(*([values[at] for at in fitted] for values in [*columns, losses]))
    result: dict[str, Any] = {name: estimate.interval(name) for name in NUMBERS}
    result["law"] = vars(estimate.law)
    # the law's loss of each rung, in their order
    result["fitted"] = [estimate.law.loss(*rung) for rung in zip(*columns, strict=True)]
    [last] = [at for at, row in enumerate(of_task) if row["held_out"]]
    predicted = estimate.predict(columns[0][last], columns[1][last])
    return {**result, "predicted": predicted, "measured": of_task[last]["loss"]}


def ladder_lines(contents: dict[str, Any]) -> list[str]:
    """Losses and fits in lines, or the plan where nothing is trained."""
    if not contents["rungs"]:
        return plan_lines(contents["plan"], contents["jobs"])
    return [*table_lines(rung_rows(contents)), *law_lines(contents)]


def ladder_page(contents: dict[str, Any]) -> list[str]:
    """Losses and fits as a page of Markdown."""
    command = " ".join(contents["scale"]["train"])
    laws = [f"- {line}" for line in law_lines(contents)]
    return [f"`unitk train {command}`", "", *markdown_table(rung_rows(contents)), "", *laws]


def rung_rows(contents: dict[str, Any]) -> list[dict[str, Any]]:
    """The rungs with the losses of the law beside those that were measured."""
    laws = [loss for fit_of_task in contents["fits"].values() for loss in fit_of_task["fitted"]]
    rows = list[dict[str, Any]]()
    for row, law in zip(contents["rungs"], laws, strict=True):
        off = None if row["loss"] is None else row["loss"] - law
        rows.append(
            {
                **{key: row[key] for key in ("task", "rung", "weights", "tokens", "loss")},
                "law": law,
                "off": "" if off is None else f"{off:+.4f}",
                "": "held out" if row["held_out"] else "",
            }
        )
    return rows


def law_lines(contents: dict[str, Any]) -> list[str]:
    """The law of each objective, and what it says of the rung held out."""
    lines = list[str]()
    for task, fit_of_task in contents["fits"].items():
        numbers = (f"{name} {value_text(fit_of_task[name])}" for name in NUMBERS)
        lines.append(f"{task}: loss = floor + A / N^alpha + B / D^beta with {', '.join(numbers)}")
        unknown = [name for name in ("alpha", "beta") if fit_of_task["law"][name] in (LOW, HIGH)]
        if unknown:
            which = " and ".join(unknown)
            lines.append(
                f"{task}: the rungs do not tell {which}: the nearest law has a limit of it"
            )
        measured = "not finite"
        if fit_of_task["measured"] is not None:
            apart = fit_of_task["measured"] - fit_of_task["predicted"][0]
            measured = f"{fit_of_task['measured']:.4f}, {apart:+.4f} nats apart"
        predicted = value_text(fit_of_task["predicted"])
        lines.append(f"{task}: the rung held out: predicted {predicted}, measured {measured}")
    return lines


def value_text(value: Sequence[float]) -> str:
    """A value and its interval."""
    return "{:.4g} [{:.4g}, {:.4g}]".format(*value)
