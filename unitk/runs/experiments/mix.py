"""`unitk mix`: the shares of objectives, searched with few texts and verified with all of them.

DIR/mix.json           the options, the plan, and the losses of each mixture, the best one first
DIR/mix.md             the losses as a page
DIR/texts/0/ ...       a part of each corpus
DIR/search/SHARES/     runs on these, which `unitk train --resume` continues
DIR/whole/SHARES/      runs on all texts

A search with 1 / N of the updates on all texts would repeat no text, and the whole run many: what
helps the one may hurt the other. So a search reads 1 / N of the texts as often as the whole run
reads all of them (matched repetition, arXiv 2606.07597).
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from unitk import files
from unitk.api.verb import verb
from unitk.data.corpus.folders import is_corpus, open_corpus
from unitk.data.examples import corpora_of
from unitk.data.mixture import Part
from unitk.errors import NonFiniteError, require
from unitk.options.fields import Bound, Checked, Positive, flag
from unitk.options.settings import Origin, read_options
from unitk.progress import no_report
from unitk.registry import register
from unitk.runs.experiments.corpora import cut_corpus
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
from unitk.training.config import TrainConfig
from unitk.training.reporting.log import show_log
from unitk.training.start import Start, parse_train, prepare

MIX_FILE, PAGE = "mix.json", "mix.md"
ROUNDS = SEARCH, WHOLE = "search", "whole"
"""Runs on parts of the corpora, and on all of their texts."""
LEAST = 8
"""Updates that a run of the search has at least."""
Shares = tuple[int, ...]
"""The parts of each objective, of `2 * grid` in all."""
Losses = dict[str, dict[str, float] | None]
"""Folder of a run -> objective -> its loss; None for a run whose loss was not finite."""
log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options(Checked):
    """Find the shares in which objectives are mixed, and train with them.

    Mixtures are compared at 1 / N of the updates, on 1 / N of the texts. The one
    that is found, and each objective alone, are trained once on all texts. What
    follows -- is a `unitk train` with --max-steps, without --task NAME and
    --save-dir. The same command goes on after a stop.

    unitk mix --tasks lm,glm_infill --save-dir m -- --data d --max-steps 8000
    """

    tasks: tuple[str, ...]
    """Objectives, two or more. Their options come after --, as --task.NAME.FIELD."""
    judge: tuple[str, ...] = ()
    """Objectives whose held-out losses count, NAME or NAME=WEIGHT. Default: all, equally. Each loss
    is compared with that of the objective alone."""
    grid: Annotated[int, Bound(2)] = 4
    """First all multiples of 1 / N are tried as shares, then those half as far from the best."""
    divide: Annotated[int, Bound(2)] = 16
    """N of the search: it has 1 / N of the updates and of the texts."""
    verify: bool = True
    """Train the mixture that was found, and each objective alone, on all texts."""
    save_dir: Path
    """Folder of the runs and of mix.json."""
    jobs: Positive = 1
    """Runs at a time, each in a process of its own."""
    plan: bool = False
    """Print the plan, from a measured minute, and train nothing."""


def value(argv: Sequence[str]) -> dict[str, Any]:
    """Search, and verify the best mixture; returns the contents of mix.json."""
    return search_mixtures(*parse_experiment("mix", Options, argv))


@register("verb", "mix")
@verb(
    Options,
    parses=True,
    after_dashes="train",
    cure="lower --jobs or --max-tokens",
    value=value,
    example='(tasks="lm,mlm", save_dir="m", train={"data": "d", "max_steps": 800})',
)
def run(argv: Sequence[str]) -> None:
    """Print the plan, or the losses of each mixture."""
    show_log()
    for line in mixture_lines(value(argv)):
        print(line)


@dataclass(frozen=True)
class MixtureSearch:
    """A search over mixtures of objectives, and the training that each is tried with."""

    options: Options
    base: tuple[str, ...]
    whole: Start
    """The run on all texts, with equal shares."""
    judged: dict[str, float]
    """The weight of each loss that counts; they sum to 1."""

    @property
    def singles(self) -> list[Shares]:
        """Each objective alone."""
        tasks = range(len(self.options.tasks))
        total = 2 * self.options.grid
        return [tuple(total if task == single else 0 for task in tasks) for single in tasks]

    @property
    def places(self) -> list[Path]:
        """The parts of the corpora."""
        count = len(corpora_of(self.whole.config)[0])
        return [self.options.save_dir / "texts" / str(number) for number in range(count)]

    def job(self, shares: Shares, kind: str) -> TrainingJob:
        """The run of a mixture: of the "search", on parts of the corpora, or on the "whole"."""
        trained, judged = corpora_of(self.whole.config)
        where = self.places if kind == SEARCH else [path for path, _ in trained]
        updates = self.whole.config.max_steps or 0
        updates = updates // self.options.divide if kind == SEARCH else updates
        name = shares_text(shares)
        words = [*self.base, f"--max-steps={updates}", "--resume"]
        # a share of 0 keeps the architecture of the mixture, so that all are judged alike
        names = zip(self.options.tasks, shares, strict=True)
        words += [f"--task={task}={share / sum(shares)}" for task, share in names]
        words += [f"--data={path}={w}" for path, (_, w) in zip(where, trained, strict=True)]
        words += [f"--valid={name}={path}" for name, path in judged.items()]
        words += [f"--save-dir={self.options.save_dir / kind / name}"]
        tokens = updates * (self.whole.config.batch_tokens or 1)
        return TrainingJob(kind, name, tokens, updates, tuple(words))

    def cut_corpora(self) -> None:
        """Write the parts of the corpora that are not there yet."""
        corpora, _ = corpora_of(self.whole.config)
        for place, (corpus, _) in zip(self.places, corpora, strict=True):
            if not is_corpus(place):
                cut_corpus(corpus, place, self.options.divide, self.whole.config.seed)

    def judge(self, mixtures: Sequence[Shares], kind: str, contents: dict[str, Any]) -> None:
        """Train and judge mixtures, and write their losses and ranks into mix.json."""
        self.train(mixtures, kind, contents["losses"])
        contents[kind] = self.rows(mixtures, kind, contents["losses"])
        files.write(self.options.save_dir / MIX_FILE, json.dumps(contents, indent=1) + "\n")

    def train(self, mixtures: Sequence[Shares], kind: str, losses: Losses) -> None:
        """Train what is not trained yet, and add the losses of what is not judged yet."""
        jobs = [self.job(shares, kind) for shares in mixtures]
        train_all(jobs, self.options.jobs)
        for job in jobs:
            if f"{kind}/{job.name}" not in losses:
                losses[f"{kind}/{job.name}"] = judge_mixture(job)

    def rows(self, mixtures: Sequence[Shares], kind: str, losses: Losses) -> list[dict[str, Any]]:
        """Judged mixtures, the best one first.

        `behind` is what a choice goes by: the mean over the judged objectives of how far a loss is
        above that of the objective alone, in nats.
        """
        # a mixture whose loss is not finite is no candidate
        finite = dict[Shares, dict[str, float]]()
        for shares in mixtures:
            if held_out := losses[f"{kind}/{shares_text(shares)}"]:
                finite[shares] = held_out
        singles = dict(zip(self.options.tasks, self.singles, strict=True))
        for name, shares in singles.items():
            if shares not in finite:
                raise NonFiniteError(
                    f"{name} alone has no finite loss ({kind}/{shares_text(shares)}), so that "
                    "nothing is compared: lower --lr"
                )
        alone = {name: finite[shares][name] for name, shares in singles.items()}
        rows = list[dict[str, Any]]()
        for shares, held_out in finite.items():
            behind = sum(w * (held_out[name] - alone[name]) for name, w in self.judged.items())
            fractions = [part / sum(shares) for part in shares]
            named = dict(zip(self.options.tasks, fractions, strict=True))
            rows.append({"shares": named, "losses": held_out, "behind": behind})
        return sorted(rows, key=lambda row: row["behind"])

    def parts_of(self, row: Mapping[str, Any]) -> Shares:
        """The shares of a row as parts of the finer grid."""
        return tuple(round(share * 2 * self.options.grid) for share in row["shares"].values())


def search_mixtures(options: Options, base: Sequence[str]) -> dict[str, Any]:
    """Search, train and judge what is not there yet; returns the contents of mix.json."""
    search = open_search(options, base)
    spec: dict[str, Any] = {"tasks": [*options.tasks], "judge": search.judged, "train": [*base]}
    spec |= {"grid": options.grid, "divide": options.divide, "data": search.whole.data.fingerprint}
    path = options.save_dir / MIX_FILE
    known = read_experiment(path, spec, "mix", ())
    first = grid_of(len(options.tasks), options.grid)
    # a search that goes on keeps its plan: measuring costs a minute
    plan = known["plan"] if "plan" in known else plan_of(search, len(first))
    if known:
        check_plan(path, plan, [{"round": name} for name, _, _ in rounds_of(options, len(first))])
    check_memory(plan, options.jobs, search.whole.config.device)
    losses: Losses = known.get("losses", {})
    check_losses(path, losses, options.tasks)
    contents: dict[str, Any] = {"mix": spec, "plan": plan, "losses": losses, SEARCH: [], WHOLE: []}
    if options.plan:
        return {**contents, "jobs": options.jobs}
    # nothing is written before this line
    options.save_dir.mkdir(parents=True, exist_ok=True)
    files.write(path, json.dumps(contents, indent=1) + "\n")
    for line in plan_lines(plan, options.jobs):
        log.info("%s", line)
    search.cut_corpora()
    search_rounds(search, first, contents)
    files.write(options.save_dir / PAGE, "\n".join(mixture_page(contents)) + "\n")
    return contents


def search_rounds(search: MixtureSearch, first: Sequence[Shares], contents: dict[str, Any]) -> None:
    """Train the `first` mixtures and those near the best one, and write the results to mix.json.

    With --verify, the best one and each objective alone are then trained on the whole.
    """
    search.judge(first, SEARCH, contents)
    near = list_neighbors(search.parts_of(contents[SEARCH][0]))
    search.judge(list(dict.fromkeys([*first, *near])), SEARCH, contents)
    if search.options.verify:
        best = search.parts_of(contents[SEARCH][0])
        search.judge(list(dict.fromkeys([best, *search.singles])), WHOLE, contents)


def check_losses(path: Path, losses: Any, tasks: Sequence[str]) -> None:
    """Raise a UsageError if losses that were kept are not one number for each objective."""

    def is_whole(of_mixture: Any) -> bool:
        if not isinstance(of_mixture, dict) or {*of_mixture} != {*tasks}:
            return of_mixture is None
        return all(isinstance(loss, float) for loss in of_mixture.values())

    good = isinstance(losses, dict) and all(map(is_whole, losses.values()))
    require(good, f"{path}: its losses are damaged: name another --save-dir")


def rounds_of(options: Options, runs: int) -> list[tuple[str, str, int]]:
    """The name, the kind and the number of runs of each round; the first round has `runs`."""
    count = len(options.tasks)
    rounds = [("first", SEARCH, runs), ("near the best", SEARCH, count * (count - 1))]
    whole = [("whole", WHOLE, 1 + count)] if options.verify else []
    return [*rounds, *whole]


def open_search(options: Options, base: Sequence[str]) -> MixtureSearch:
    """Check the options and the data of all runs."""
    check_base(base)
    names = options.tasks
    require(len({*names}) == len(names) > 1, "--tasks must name two objectives or more, each once")
    odd = next((name for name in names if "=" in name), None)
    require(odd is None, f"--tasks {odd}: write names, whose shares are searched")
    judged = judge_weights(options)
    words = [f"--task={name}=1" for name in names]
    parsed = parse_train([*base, *words, f"--save-dir={options.save_dir / 'whole' / 'x'}"])
    require(parsed.main.nproc == 1, "mix takes no --nproc")
    whole = prepare(parsed)
    check_parts(whole, options.divide)
    kept = tuple(without_options(base, "--data", "--valid", "--max-steps"))
    return MixtureSearch(options, kept, whole, judged)


def check_base(base: Sequence[str]) -> None:
    """Raise UsageError for options after -- that exclude a search, or that it lacks."""
    given = read_options(base, TrainConfig)
    for name in ("task", "save_dir", "max_epochs", "max_words", "max_hours", "seeds"):
        # a file's task and folder would not count, its limits would
        origin = Origin.FLAG if name in ("task", "save_dir") else Origin.FILE
        require(
            not given.given(name, origin),
            f"{flag(name)} excludes mix: it has --tasks, --save-dir, --max-steps",
        )
    require("dry_run" not in given, "--dry-run excludes mix: --plan measures what it costs")
    require("max_steps" in given, "--max-steps is needed after --")


def check_parts(whole: Start, divide: int) -> None:
    """Raise UsageError unless a run can be divided into `divide` parts whose losses compare."""
    steps = whole.config.max_steps or 0
    require(
        steps // divide >= LEAST,
        f"--divide {divide} leaves too few updates of a run: give --max-steps "
        f"{LEAST * divide} or more after --, or divide by less",
    )
    require(whole.data.kind == "text", f"mix divides texts, and --data holds {whole.data.kind}")
    require(whole.data.valid, "mix compares losses of held-out texts: give --valid")
    for place, _ in corpora_of(whole.config)[0]:
        count = len(open_corpus(place))
        require(count >= divide, f"{place} has {count} texts: --divide {count} or less")


def judge_weights(options: Options) -> dict[str, float]:
    """The weight of each loss that counts; they sum to 1."""
    weights: dict[str, float] = {}
    for text in options.judge or options.tasks:
        name, equals, weight = text.partition("=")
        require(name not in weights, f"--judge names {name} twice")
        try:
            weights[name] = float(weight if equals else 1)
        except ValueError:
            weights[name] = -1.0
        good = name in options.tasks and 0 < weights[name] < math.inf
        require(good, f"--judge {text}: write NAME or NAME=WEIGHT, a NAME of --tasks")
    return {name: weight / sum(weights.values()) for name, weight in weights.items()}


def grid_of(count: int, parts: int) -> list[Shares]:
    """All mixtures of `count` objectives in multiples of 1 / parts, counted in halves of these."""
    if count == 1:
        return [(2 * parts,)]
    mixtures = list[Shares]()
    for first in range(parts, -1, -1):
        rest = grid_of(count - 1, parts - first) if first < parts else [(0,) * (count - 1)]
        mixtures += [(2 * first, *others) for others in rest]
    return mixtures


def shares_text(shares: Shares) -> str:
    """The name of a mixture's folder."""
    return "-".join(map(str, shares))


def list_neighbors(best: Shares) -> list[Shares]:
    """The mixtures that move half a step of the grid from one objective to another."""
    mixtures = list[Shares]()
    for giver in range(len(best)):
        for taker in range(len(best)):
            if giver != taker and best[giver]:
                moved = [*best]
                moved[giver] -= 1
                moved[taker] += 1
                mixtures.append(tuple(moved))
    return mixtures


def plan_of(search: MixtureSearch, runs: int) -> list[dict[str, Any]]:
    """The seconds and bytes of the grid, of what is tried near the best, and of the whole runs."""
    count = len(search.options.tasks)
    seconds, memory = time_jobs({"": search.job((1,) * count, WHOLE)})[""]
    plan = list[dict[str, Any]]()
    for name, kind, number in rounds_of(search.options, runs):
        updates = search.job((1,) * count, kind).updates
        row = {"round": name, "runs": number, "updates": updates}
        plan.append({**row, "seconds": number * updates * seconds, "bytes": memory})
    return plan


def judge_mixture(job: TrainingJob) -> dict[str, float] | None:
    """The held-out loss of each objective, the mean over the sets of --valid; None if it broke."""
    from unitk.evaluation.objective import objective, open_setup
    from unitk.training.device import choose_device

    trial = job.trial
    start = trial.start
    newest = start.run.newest()
    if newest is None or not trial.finished:
        return None
    losses: dict[str, list[float]] = {name: [] for name in start.parsed.mixture}
    for place in corpora_of(start.config)[1].values():
        setup = open_setup(newest, place, choose_device(start.config.device))
        for name, part in setup.data.train.parts.items():
            assert isinstance(part, Part)
            # all texts by one objective; in training each text has one of them
            alone = replace(setup, data=replace(setup.data, train=part.own))
            try:
                loss = objective(alone, start.config.max_tokens, no_report)["loss"]
            except NonFiniteError as error:
                log.warning("%s: %s", job.name, error)
                return None
            losses[name].append(loss)
    return {name: float(np.mean(values)) for name, values in losses.items()}


def mixture_lines(contents: Mapping[str, Any]) -> list[str]:
    """The losses of all mixtures in lines, or the plan where nothing is trained."""
    if not contents[SEARCH]:
        return plan_lines(contents["plan"], contents["jobs"])
    lines = list[str]()
    for kind in ROUNDS:
        if contents[kind]:
            lines += [f"{kind}:", *table_lines([as_row(row) for row in contents[kind]])]
    return [*lines, f"found: {best_text(contents)}"]


def mixture_page(contents: Mapping[str, Any]) -> list[str]:
    """The losses of all mixtures as a page of Markdown."""
    lines = [f"`unitk train {' '.join(contents['mix']['train'])}`", ""]
    for kind in ROUNDS:
        if contents[kind]:
            lines += [f"{kind}:", "", *markdown_table([as_row(row) for row in contents[kind]]), ""]
    return [*lines, f"found: `{best_text(contents)}`"]


def best_text(contents: Mapping[str, Any]) -> str:
    """The mixture that was found, as options of a training."""
    return " ".join(f"--task {name}={n:g}" for name, n in contents[SEARCH][0]["shares"].items())


def as_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row with its columns side by side."""
    shares = {name: f"{share:g}" for name, share in row["shares"].items()}
    losses = {f"{name}/loss": loss for name, loss in row["losses"].items()}
    return {**shares, **losses, "behind": f"{row['behind']:+.4f}"}
