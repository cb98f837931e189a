"""Everything that can be refused before training is refused here, before torch is imported.

What `--resume` does, in this file: `parse_train` takes the options that are not given from the
run's config.yaml, `prepare` finds the newest good checkpoint, `_check_frozen` refuses what may not
change. In run.py: `begin` loads its weights; `Run` restores the optimizers' state, the averages,
the progress and the stateful rows. In loop.py: `events` puts later checkpoints aside.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Any

from unitk import registry
from unitk.data.corpus.corpus import VOCAB
from unitk.data.examples import Data, open_data
from unitk.data.limits import pair_of
from unitk.errors import DataError, UsageError, require
from unitk.files import sealed_files
from unitk.models.base import Preset
from unitk.models.config import UNSHAPED
from unitk.optim.config import AdafactorConfig, AdamWConfig, parse_rules
from unitk.optim.rates import choose_rates
from unitk.options.config import NoOptions, Parsed, flag, options, peek, read_words, resolve
from unitk.options.settings import Origin, Setting, Settings
from unitk.training.config import (
    COMPONENTS,
    CUT,
    FROZEN,
    RANKING,
    SCORES,
    TrainConfig,
    figure,
    is_launched,
    parse_weighted,
    process_ranks,
)
from unitk.training.reporting.sinks import choose_loggers
from unitk.training.saving.folder import CONFIG, RunFolder, find_checkpoint
from unitk.training.saving.state import (
    Identity,
    layout_in,
    plugins_named,
    read_state,
    recorded_options,
    settings_of,
)
from unitk.vocab.base import Vocab

OF_THE_COMMAND = ("config", "resume", "new_data", "save_dir", "dry_run")
"""Options that say where a run is and that it continues, not how it is trained."""


@dataclass(frozen=True)
class Start:
    """A run that has passed all checks."""

    parsed: Parsed
    data: Data
    run: RunFolder
    resumed: Path | None  # checkpoint to continue from
    new_epoch: bool  # whether it begins an epoch on other data than before (`--new-data`)
    init_from: Path | None  # checkpoint to take the weights from
    init_towers: dict[str, Path]  # checkpoints to take the weights of "encoder" and "decoder" from
    changed: list[str]  # what differs from the checkpoint that is resumed or begun with, in words

    @property
    def beginning(self) -> str:
        """Where the initial weights come from, as a sentence."""
        if self.resumed is not None:
            anew = ", a new epoch on other data" if self.new_epoch else ""
            return f"resumed from {self.resumed}{anew}"
        towers = ", ".join(f"{name} of {path}" for name, path in self.init_towers.items())
        return f"weights of {self.init_from}" if self.init_from else towers or "from scratch"

    @property
    def config(self) -> TrainConfig:
        return self.parsed.main

    @property
    def metric(self) -> str:
        """The value of a validation by which the best checkpoint is selected."""
        return self.config.best_metric or f"{next(iter(self.data.valid), 'valid')}/loss"

    @property
    def judged_by(self) -> str:
        """The value that ranks validations and the texts it is of; empty without such texts."""
        name, values = re.split("[./]", self.metric)[0], self.parsed.settings.texts
        if name not in self.data.valid:
            return ""
        what = self.metric.removeprefix(name), self.data.valid_fingerprints[name]
        of_scores = ("valid_generate", "valid_beam") if figure(self.metric) in RANKING else ()
        return " ".join([*what, *(values[key] for key in ("valid_texts", *CUT, *of_scores))])

    @property
    def identity(self) -> Identity:
        """The identity that its checkpoints record."""
        folder = self.config.user_dir
        user_dir = str(folder.resolve()) if folder else None
        values = self.parsed.settings.texts
        data = self.data
        most, known = data.train.most, data.task.trained
        return Identity(
            values,
            user_dir,
            data.fingerprint,
            data.vocab.hash,
            data.kind,
            most,
            known.labels,
            data.parts,
            dict(known.corpora),
            known.window,
        )


def parse_train(argv: Sequence[str]) -> Parsed:
    """Parse the options of a run; with `--resume`, missing ones come from the run's config.yaml."""
    given = read_words("train", TrainConfig, argv, COMPONENTS)
    if (path := _config_to_resume(given)) is None:
        return _with_parent(given)
    recorded = Settings.read(path)
    plugins = recorded.texts.get("user_dir", "none")  # never loaded unasked: plug-ins are code
    require(
        plugins == "none" or "user_dir" in given,
        f"--resume: {path.parent} was trained with plug-ins: give --user-dir {plugins}",
    )
    changed = {}
    for one, other in (("batch_tokens", "batch_texts"), ("batch_texts", "batch_tokens")):
        if one in given:
            changed[other] = "none"
    nproc = (given if "nproc" in given else recorded).texts.get("nproc", "1")
    if process_ranks()[1] == 1 and (is_launched() or nproc == "1"):
        changed |= {"shard": "off", "save_shards": "off"}  # the number of processes may change
    given = Settings.of_texts(changed, Origin.FLAG).under(given)
    # for this run all of them are given; what they say of their origin is kept
    of_run = Settings.of_texts(recorded.texts, Origin.FILE, str(path))
    parsed = _with_parent(of_run.under(given))
    return replace(parsed, given=Settings({**parsed.given, **recorded.without(given)}))


def _config_to_resume(given: Settings) -> Path | None:
    """The config.yaml of the run that these options continue, if they name no other file."""
    folder: Path | None = peek(TrainConfig, given, "save_dir") if "save_dir" in given else None
    if not peek(TrainConfig, given, "resume") or folder is None or "config" in given:
        return None
    folder = RunFolder.at(folder, resume=True).path
    if not (folder / CONFIG).is_file():
        require("task" in given, f"--resume: {folder} holds no run, and a new one needs a --task")
        return None
    return folder / CONFIG


def _with_parent(given: Settings) -> Parsed:
    """The options of a run; missing ones come from the checkpoint that it starts from.

    This is the newest one with `--resume`, or that of `--init-from`. Its task's options apply if
    the task is the same, and its architecture if there is no `--arch`.
    """
    folder = None
    if "task" in given and peek(TrainConfig, given, "resume") and "save_dir" in given:
        run = RunFolder.at(peek(TrainConfig, given, "save_dir"), resume=True)
        # `prepare` reads the other files
        folder = run.newest(hashed=lambda name: name == "state.json")
    if "task" in given and folder is None and "init_from" in given:
        path = peek(TrainConfig, given, "init_from")
        folder = find_checkpoint(path) if path is not None else None
    if folder is None:
        return _resolve(given)
    state = read_state(folder)
    there, tasks = settings_of(state, folder), given.tasks()
    inherited = _of_same_tasks(there, tasks).texts
    first = registry.get("task", next(iter(tasks)))
    if "task" in tasks.values() and any(one.name == "layout" for one in options(first.Config)):
        inherited["task.layout"] = layout_in(there)
    if "arch" not in given:
        inherited |= there.only("arch").texts
        if 0 < int(inherited.get("arch.num_segments", 0)) < (least := len(first.segments)):
            inherited["arch.num_segments"] = str(least)
    of_checkpoint = Settings.of_texts(inherited, Origin.CHECKPOINT, f"checkpoint {folder}")
    with plugins_named(state, folder):
        return _resolve(of_checkpoint.under(given))


def _resolve(given: Settings) -> Parsed:
    """The options of a run, with the optimizer and the rate that fit a new model of ours."""
    named = given.only("task", "arch")
    try:
        arch = resolve(NoOptions, named, ("task", "arch")).components["arch"]
    except UsageError:  # it is raised again, with all else that is wrong
        return resolve(TrainConfig, given, COMPONENTS)
    begins = "init_from", "init_encoder", "init_decoder"
    new = all(name not in given or peek(TrainConfig, given, name) is None for name in begins)
    own = isinstance(arch.made_from, Preset) and arch.made_from.own
    return resolve(TrainConfig, choose_rates(given, own, new, arch.config.width), COMPONENTS)


def _of_same_tasks(there: Settings, tasks: Mapping[str, str]) -> Settings:
    """The options that a checkpoint has for the run's task or tasks, under this run's keys."""
    trained = there.tasks()
    found: dict[str, Setting] = {}
    for name in [name for name in tasks if name in trained]:
        own = there.of(trained[name])
        found |= {f"{tasks[name]}.{key}": setting for key, setting in own.items()}
    return Settings(found)


def _differences(parsed: Parsed, there: Settings, checkpoint: Path, tower: str = "x") -> list[str]:
    """The options that were given and differ from the checkpoint that the weights come from."""
    arch, named = parsed.components["arch"], list[str]()
    own = replace(arch, config=arch.config.tower(tower))
    unshaped = (key for name in UNSHAPED if (key := f"arch.{name}") in there)
    theirs = Settings({key: there[key] for key in unshaped})
    if tower == "x":
        theirs = theirs.under(_of_same_tasks(there, parsed.settings.tasks()))
    elif tower == "enc" and "arch.encoder" in there:
        return []  # its settings are those of a preset
    here = replace(parsed, components=parsed.components | {"arch": own})
    preset = dict[str, str]()
    for key, text in here.differing(theirs).items():
        what = f"{flag(key)} is {here.settings[key].text}, but {text} in {checkpoint}"
        if here.settings[key].origin == Origin.PRESET and key != "arch.norm_eps":
            preset[what] = f"{flag(key)} {text}"
        named.append(what)
    if preset:
        other = ", or leave out --arch" if tower == "x" else ""
        cure = f"add {' '.join(preset.values())}{other}"
        if tower != "x" and (pair := pair_of(there)):
            cure = f"take --arch {pair}"
        cure = cure if own.config is arch.config else "choose another --arch.encoder"
        raise UsageError(f"{next(iter(preset))}: {cure}")
    return named


def prepare(parsed: Parsed) -> Start:
    """Open the data, and find the run folder and the checkpoint to start from."""
    config: TrainConfig = parsed.main
    _, world, _ = process_ranks()
    if config.shard:
        alone = world == 1 and (is_launched() or config.nproc == 1)
        require(not alone, "--shard has no effect in one process: --nproc N starts several")
        averages, retry = "averages are not divided", "ranks would wait for ever"
        for key, why in (("ema", averages), ("average_last", averages), ("oom_retry", retry)):
            require(not getattr(config, key), f"--shard and {flag(key)} exclude each other: {why}")
    require(config.shard or not config.save_shards, "--save-shards has no effect without --shard")
    run = RunFolder.at(config.save_dir, config.resume)
    on_one = os.environ.get("LOCAL_WORLD_SIZE", str(world)) == str(world)
    shared = run.remote is None or on_one or not config.save_shards
    require(shared, "--save-shards on several machines needs a --save-dir on a disk of all")
    run.check(config.resume)  # before data are opened, which may take longer
    choose_loggers(config.writers)
    optimizer = parsed.components["optimizer"].config
    trained = [optimizer, *(rule.optimizer for rule in parse_rules(config.group, optimizer))]
    adafactor = any(isinstance(one, AdafactorConfig) for one in trained)
    why = "exclude each other: rows and columns are not divided"
    require(not (config.shard and adafactor), f"--shard and --optimizer adafactor {why}")
    half = any(isinstance(one, AdamWConfig) and one.state == "bf16" for one in trained)
    apart = "exclude each other: a shard keeps its means in fp32"
    require(not (config.shard and half), f"--shard and --optimizer.state bf16 {apart}")
    _check_ends(parsed)
    data = open_data(parsed)
    parsed = with_heads(parsed, data.heads)
    check_stateful(parsed, data, world)
    apart = "--shard: a model that writes while it trains cannot be divided among processes"
    require(not (config.shard and data.writes), apart)
    for name in ("patience", "best_metric", "valid_generate"):
        if getattr(config, name) is not None and not data.valid:
            raise UsageError(f"{flag(name)} has no effect without --valid")
    if config.best_metric and re.split("[./]", config.best_metric)[0] not in data.valid:
        known = ", ".join(f"{name}/loss" for name in data.valid)
        raise UsageError(f"--best-metric must be a value such as {known}, got {config.best_metric}")
    _check_scores(parsed)
    resumed, new_epoch = run.newest() if config.resume else None, False
    # a run that continues has obeyed them
    init_from, init_towers, changed = _beginning(parsed, data) if not resumed else (None, {}, [])
    if resumed is not None:
        state = read_state(resumed)
        check_data(state, data, resumed)
        new_epoch, changed = _check_frozen(state, parsed, data, resumed)
        if not (config.batch_tokens or config.batch_texts):
            # the default depends on --max-tokens, which may change; the size of an update does not
            recorded = (state["config"][name] for name in ("batch_tokens", "batch_texts"))
            tokens, texts = (None if text == "none" else int(text) for text in recorded)
            config = replace(config, batch_tokens=tokens, batch_texts=texts)
    if not (config.batch_tokens or config.batch_texts):
        config = replace(config, batch_tokens=config.max_tokens * world)
    parsed = replace(parsed, main=config)
    return Start(parsed, data, run, resumed, new_epoch, init_from, init_towers, changed)


def _check_scores(parsed: Parsed) -> None:
    """Refuse options of `--valid-generate` that exclude each other, or that lack it."""
    config, best = parsed.main, figure(parsed.main.best_metric or "")
    given = config.valid_generate is not None
    for name in ("valid_metric", "valid_beam"):
        idle = not given and parsed.settings.given(name, Origin.FLAG)
        require(not idle, f"{flag(name)} has no effect without --valid-generate")
    require(not (given and config.shard), "--shard and --valid-generate exclude each other")
    if best in RANKING:
        what = f"--best-metric {config.best_metric}"
        require(given, f"{what} is of outputs: --valid-generate N has the model write some")
        computed = any(best in SCORES[name] for name in config.scores)
        require(computed, f"{what} needs --valid-metric {RANKING[best]}")


def _check_ends(parsed: Parsed) -> None:
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


def with_heads(parsed: Parsed, heads: Sequence[str]) -> Parsed:
    """The architecture with the heads that the tasks need; they replace heads of the same names."""
    arch = parsed.components["arch"]
    names = {tuple(head.split(":")[:2]) for head in heads}  # KIND:NAME[:SIZE]
    kept = [one for one in arch.config.heads if tuple(one.split(":")[:2]) not in names]
    config = replace(arch.config, heads=(*kept, *heads))
    return replace(parsed, components=parsed.components | {"arch": replace(arch, config=config)})


def check_stateful(parsed: Parsed, data: Data, world: int) -> None:
    """Refuse options that exclude stateful rows."""
    rows, arch = parsed.main.stateful_rows, parsed.components["arch"]
    if not rows:
        return
    name = f"--stateful-rows {rows}"
    idle = f"{name} has no effect: --arch {arch.name} carries nothing from update to update"
    require(arch.config.carries, idle)
    require(rows % world == 0, f"{name} must be a multiple of the {world} processes")
    half = "half of the rows read texts from their end (--task.both-ways off: none does)"
    require(rows % 2 == 0 or not data.task.both_ways, f"{name} must be even: {half}")
    ordered = data.kind == "text" and data.task.cut is None and not parsed.mixture
    require(ordered, f"{name} needs texts in their order: no pairs, sentence pairs or mixed tasks")
    even = all(parse_weighted(text)[1] == 1 for text in parsed.main.data)
    require(even, f"{name} reads each text once: --data takes no weight")
    for option in ("batch_tokens", "batch_texts"):
        given = parsed.settings.given(option, Origin.FLAG)
        require(not given, f"{flag(option)} has no effect with {name}: an update is a text a row")


def _beginning(parsed: Parsed, data: Data) -> tuple[Path | None, dict[str, Path], list[str]]:
    """The checkpoints that weights come from, of all or of a tower; what differs from them."""
    config, arch = parsed.main, parsed.components["arch"]
    changed: list[str] = []
    init_from = find_checkpoint(config.init_from) if config.init_from else None
    if init_from is not None:
        state = read_state(init_from)
        single = registry.get("arch", state["config"]["arch"])().towers == ("x",)
        apart = f"has one tower, but --arch {arch.name} an encoder and a decoder"
        cure = "--init-encoder and --init-decoder take it"
        both = {*arch.config.towers} == {"enc", "dec"}
        require(not (single and both), f"--init-from: {init_from} {apart}: {cure}")
        check_vocab(state, data.vocab, init_from)
        theirs, ours = (len(one.sentinels) for one in (Vocab.load(init_from / VOCAB), data.vocab))
        name = state["config"]["task"]
        cure = f"--task {name}" if ours == 0 else f"--task.sentinels {theirs}"
        has = f"--init-from: {init_from} has {theirs} sentinels, but --task of this run {ours}"
        require(theirs in (0, ours), f"{has}: train it with {cure}")
        changed = _differences(parsed, settings_of(state, init_from), init_from)
    given = {"encoder": config.init_encoder, "decoder": config.init_decoder}
    towers = {name: find_checkpoint(path) for name, path in given.items() if path is not None}
    for name, path in towers.items():
        require(
            "enc" in arch.config.towers,
            f"--init-{name}: --arch {arch.name} has no encoder beside a decoder; --init-from takes"
            " all of its weights",
        )
        state = read_state(path)
        check_vocab(state, data.task.source_vocab if name == "encoder" else data.vocab, path)
        changed += _differences(parsed, recorded_options(state), path, name[:3])
    require(
        not (arch.config.shared_embeddings and len(set(towers.values())) > 1),
        "--init-encoder and --init-decoder have a token embedding each: they need"
        " --arch.shared-embeddings off",
    )
    return init_from, towers, changed


def check_vocab(state: dict[str, Any], vocab: Vocab, checkpoint: Path) -> None:
    """`DataError` unless the data's vocabulary is that of the checkpoint."""
    if state["vocab"] != vocab.hash:
        raise DataError(
            f"--data was made with another vocabulary than {checkpoint}:"
            f" preprocess it with --vocab {checkpoint}"
        )


def check_data(state: dict[str, Any], data: Data, checkpoint: Path) -> None:
    """`DataError` unless the data's vocabulary, and labels that both have, are the checkpoint's."""
    check_vocab(state, data.vocab, checkpoint)
    recorded = {"": state.get("labels", ()), **state.get("corpora", {})}
    for name, here in {"": (known := data.task.trained).labels, **known.corpora}.items():
        there = recorded.get(name, ())
        if here and there and [*here] != [*there]:
            a, b = (shorten(", ".join(names), 60, placeholder=" ...") for names in (here, there))
            raise DataError(
                f"--data has {len(here)} labels ({a}), but {checkpoint} has {len(there)} ({b}):"
                " their numbers would mean other labels; use the same names in both"
            )


def _check_frozen(
    state: dict[str, Any], parsed: Parsed, data: Data, checkpoint: Path
) -> tuple[bool, list[str]]:
    """Refuse changes to what a resumed run must keep: components, data, and the order of the data.

    Returns whether the data, or how examples are made of them, have changed (`--new-data`), and
    the options that differ, in words.
    """
    # of files that are copied, the run's own are named; what they contain is compared
    kept = sealed_files(checkpoint)
    for name, text in data.task.files.items():
        if name in kept and (checkpoint / name).read_text(encoding="utf-8") != text:
            copy = f"{checkpoint / name}, a copy of a file that was changed"
            raise UsageError(f"a resumed run keeps the contents of {copy}")
    # an option the run did not know yet has its default there
    there, here = parsed.differing(recorded_options(state)), parsed.settings
    components = here.only(*COMPONENTS)
    free = CUT if parsed.main.new_data else ()
    changed = {key for key in free if key in there}
    for key in sorted(there, key=lambda key: (key not in COMPONENTS, key)):
        fixed = key in FROZEN or key in components
        # a schedule of the block size counts epochs up to the last one
        fixed |= key == "max_epochs" and not isinstance(parsed.main.block_size, int)
        if fixed and key not in changed:
            hint = " without --new-data" if key in CUT else ""
            raise UsageError(
                f"{flag(key)} is {here[key].text}, but the run to resume has {there[key]}:"
                f" it cannot change{hint} ({checkpoint})"
            )
    counted = bool(state.get("words")) or not parsed.main.counts_words
    require(counted, f"--max-words and --save-at-words: {checkpoint} did not count its words")
    require(
        state["data"] == data.fingerprint or parsed.main.new_data,
        f"--data: contents or weights are not those of the run to resume ({checkpoint});"
        " --new-data begins an epoch on others",
    )
    named = [
        f"{flag(key)} is {here[key].text}, but {text} in {checkpoint}"
        for key, text in there.items()
        if key not in OF_THE_COMMAND
    ]
    return bool(changed) or state["data"] != data.fingerprint, named
