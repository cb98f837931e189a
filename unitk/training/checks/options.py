"""Options of a run that exclude each other or have no effect, refused before data are opened."""

from __future__ import annotations

import os

from unitk import registry
from unitk.criterions.config import OfTask
from unitk.errors import UsageError, require
from unitk.optim.config import AdafactorConfig, AdamWConfig, parse_rules
from unitk.options.config import Parsed, flag
from unitk.options.settings import Origin
from unitk.training.config import RANKING, SCORES, TrainConfig, figure, is_launched, process_ranks
from unitk.training.saving.folder import RunFolder


def check_run_options(parsed: Parsed, run: RunFolder) -> None:
    """Refuse options that exclude each other, or that have no effect in this run."""
    config: TrainConfig = parsed.main
    _check_shards(config, run)
    if config.shard:
        _check_sharded(parsed)
    check_schedules_end(parsed)
    _check_scores(parsed)
    _check_criterion(parsed)
    _check_words(parsed)


def _check_shards(config: TrainConfig, run: RunFolder) -> None:
    """Refuse shards that no process would share, or could not write."""
    world = process_ranks().world
    alone = world == 1 and (is_launched() or config.nproc == 1)
    require(
        not (config.shard and alone),
        "--shard has no effect in one process: --nproc N starts several",
    )
    require(config.shard or not config.save_shards, "--save-shards has no effect without --shard")
    on_one = os.environ.get("LOCAL_WORLD_SIZE", str(world)) == str(world)
    shared = run.remote is None or on_one or not config.save_shards
    require(shared, "--save-shards on several machines needs a --save-dir on a disk of all")


def _check_sharded(parsed: Parsed) -> None:
    """Refuse what cannot be divided among processes."""
    config = parsed.main
    optimizer = parsed.components["optimizer"].config
    averages, retry = "averages are not divided", "ranks would wait for ever"
    for key, why in (("ema", averages), ("average_last", averages), ("oom_retry", retry)):
        require(not getattr(config, key), f"--shard and {flag(key)} exclude each other: {why}")
    every = [optimizer, *(rule.optimizer for rule in parse_rules(config.group, optimizer))]
    adafactor = any(isinstance(config, AdafactorConfig) for config in every)
    require(
        not adafactor,
        "--shard and --optimizer adafactor exclude each other: rows and columns are not divided",
    )
    half = any(isinstance(config, AdamWConfig) and config.state == "bf16" for config in every)
    require(
        not half,
        "--shard and --optimizer.state bf16 exclude each other: a shard keeps its means in fp32",
    )
    require(config.valid_generate is None, "--shard and --valid-generate exclude each other")


def _check_criterion(parsed: Parsed) -> None:
    """Refuse a criterion that learns nothing that the tasks of the run ask."""
    chosen = parsed.components["criterion"]
    tasks = [*parsed.mixture.values()] or [parsed.components["task"]]
    defaults = {task.made_from.component("criterion", task.config) for task in tasks}
    if isinstance(chosen.config, OfTask) and (
        chosen.name not in defaults or (parsed.mixture and not chosen.config.mixes)
    ):
        names = registry.names("task")
        suited = [name for name in names if registry.get("task", name).criterion == chosen.name]
        raise UsageError(f"--criterion {chosen.name} is for --task {' or '.join(suited)} alone")


def _check_words(parsed: Parsed) -> None:
    """Refuse options of the words beside a label where there are none."""
    fields = parsed.fields()
    _, layout = fields.get("task.layout", (str, "lm"))
    # only tasks of labels have this weight
    if layout.partition(":")[0] != "lm" and "task.lm_weight" in fields:
        parsed.idle("without --task.layout lm", "task.lm_weight")
        of_words = "label_smoothing", "smoothed_over", "z_loss"
        keys = {f"criterion.{name}" for name in of_words}
        parsed.idle("on labels: it is for words", *sorted(keys & fields.keys()))


def _check_scores(parsed: Parsed) -> None:
    """Refuse options of `--valid-generate` that exclude each other, or that lack it."""
    config = parsed.main
    best = figure(parsed.main.best_metric or "")
    generates = config.valid_generate is not None
    for name in ("valid_metric", "valid_beam"):
        idle = not generates and parsed.settings.given(name, Origin.FLAG)
        require(not idle, f"{flag(name)} has no effect without --valid-generate")
    if best in RANKING:
        what = f"--best-metric {config.best_metric}"
        require(generates, f"{what} is of outputs: --valid-generate N has the model write some")
        require(
            any(best in SCORES[name] for name in config.scores),
            f"{what} needs --valid-metric {RANKING[best]}",
        )


def check_schedules_end(parsed: Parsed) -> None:
    """Refuse schedules that need the run's last update if only its hours are known."""
    if parsed.main.max_steps or parsed.main.max_epochs or parsed.main.max_words:
        return
    schedules = {key: value for key, (_, value) in parsed.fields().items() if callable(value)}
    schedules |= {f"task.{name}": part.share for name, part in parsed.mixture.items()}
    for key, schedule in schedules.items():
        try:
            schedule(1 << 40, None)
        except UsageError as error:
            raise UsageError(
                f"--max-hours alone does not tell {flag(key)} when the run ends: give"
                " --max-steps or --max-epochs too, or a schedule such as constant:warmup=100"
            ) from error
