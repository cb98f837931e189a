"""Everything that can be refused before training is refused here, before torch is imported.

What `--resume` does: `parse_train` takes the options that are not given from the run's config.yaml,
`prepare` finds the newest good checkpoint, and `check_frozen` in checks/checkpoint.py refuses what
may not change. In run.py, `begin` loads its weights, and `Run` restores the optimizers' state, the
averages, the progress and the stateful rows. In loop.py, `events` puts later checkpoints aside.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from unitk import registry
from unitk.data.corpus.corpus import VOCAB
from unitk.data.examples import Data, open_data
from unitk.errors import UsageError, require, say
from unitk.models.base import Preset
from unitk.optim.rates import choose_rates
from unitk.options.config import (
    Component,
    NoOptions,
    Parsed,
    flag,
    options,
    read_words,
    resolve,
    value_of,
)
from unitk.options.fields import render
from unitk.options.settings import Origin, Settings
from unitk.training.checks.checkpoint import check_frozen, differences, options_of_same_tasks
from unitk.training.checks.data import check_data, check_fit, check_vocab
from unitk.training.checks.options import check_run_options
from unitk.training.config import (
    BEGINS,
    COMPONENTS,
    CUT,
    EXCLUSIVE,
    RANKING,
    TrainConfig,
    figure,
    is_launched,
    process_ranks,
)
from unitk.training.reporting.sinks import choose_loggers
from unitk.training.saving import state
from unitk.training.saving.folder import CONFIG, RunFolder, find_checkpoint
from unitk.vocab.base import Vocab


@dataclass(frozen=True, kw_only=True)
class Beginning:
    """The checkpoints that the weights of a run come from; none of a new run from scratch."""

    resumed: Path | None = None  # checkpoint to continue from
    new_epoch: bool = False  # whether it begins an epoch on other data than before (`--new-data`)
    init_from: Path | None = None  # checkpoint to take the weights from
    init_towers: Mapping[str, Path] = field(default_factory=dict)
    """Checkpoints to take the weights of "encoder" and "decoder" from."""
    changed: Sequence[str]
    """What differs from the checkpoint that is resumed or begun with, a sentence each."""

    def __str__(self) -> str:
        """Where the initial weights come from."""
        if self.resumed is not None:
            anew = ", a new epoch on other data" if self.new_epoch else ""
            return f"resumed from {self.resumed}{anew}"
        towers = ", ".join(f"{name} of {path}" for name, path in self.init_towers.items())
        return f"weights of {self.init_from}" if self.init_from else towers or "from scratch"


@dataclass(frozen=True)
class Start:
    """A run that has passed all checks."""

    parsed: Parsed
    data: Data
    run: RunFolder
    beginning: Beginning

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
        name = re.split("[./]", self.metric)[0]
        values = self.parsed.settings.texts
        if name not in self.data.valid:
            return ""
        of_scores = ("valid_generate", "valid_beam") if figure(self.metric) in RANKING else ()
        cut = (values[key] for key in ("valid_texts", *CUT, *of_scores))
        return " ".join([self.metric.removeprefix(name), self.data.valid_fingerprints[name], *cut])

    @property
    def identity(self) -> state.Identity:
        """The identity that its checkpoints record."""
        data = self.data
        known = self.data.task.trained
        folder = self.config.user_dir
        return state.Identity(
            config=self.parsed.settings.texts,
            user_dir=str(folder.resolve()) if folder else None,
            data=data.fingerprint,
            vocab=data.vocab.hash,
            kind=data.kind,
            lengths=data.train.max_lengths,
            labels=known.labels,
            parts=data.parts,
            corpora=dict(known.corpora),
            window=known.window,
        )


def parse_train(argv: Sequence[str]) -> Parsed:
    """Parse the options of a run; with `--resume`, missing ones come from the run's config.yaml."""
    given = _displace(read_words("train", TrainConfig, argv, COMPONENTS, choose=_settings_of_page))
    if _peek(given, "dry_run") and not _peek(given, "resume"):
        # a folder that nothing is written to, the same in all processes
        nowhere = {"save_dir": str(Path(tempfile.gettempdir(), "unitk-dry-run"))}
        given = Settings.of_texts(nowhere, Origin.DEFAULT, "--dry-run").under(given)
    if (path := _config_to_resume(given)) is None:
        return _resolve_with_parent(given)
    recorded = Settings.read(path)
    plugins = recorded.texts.get("user_dir", "none")  # never loaded unasked: plug-ins are code
    require(
        plugins == "none" or "user_dir" in given,
        f"--resume: {path.parent} was trained with plug-ins: give --user-dir {plugins}",
    )
    nproc = (given if "nproc" in given else recorded).texts.get("nproc", "1")
    if process_ranks().world == 1 and (is_launched() or nproc == "1"):
        off = Settings.of_texts({"shard": "off", "save_shards": "off"}, Origin.FLAG)
        given = off.under(given)  # the number of processes may change
    # for this run all of them are given; what they say of their origin is kept
    of_run = Settings.of_texts(recorded.texts, Origin.FILE, str(path))
    parsed = _resolve_with_parent(merged := _displace(of_run.under(given)))
    kept = [key for key in recorded if key in merged and merged[key].where == str(path)]
    return replace(parsed, given=Settings({**parsed.given, **{key: recorded[key] for key in kept}}))


def _displace(given: Settings) -> Settings:
    """The settings in which a flag takes the place of an option of a file that it excludes."""
    for pair in EXCLUSIVE:
        for name, other in (pair, pair[::-1]):
            if not all(key in given and _peek(given, key) for key in pair):
                continue
            if given[other].origin < given[name].origin:
                say(f"note: {flag(name)} drops {other} of {given[other].where}")
                unset = _peek(given.without([other]), other)
                given = given.under(
                    Settings.of_texts({other: render(unset)}, Origin.FLAG, flag(name))
                )
    return given


def _peek(given: Settings, name: str) -> Any:
    """The value that one option of a run will have."""
    option = next(option for option in options(TrainConfig) if option.name == name)
    return value_of(given[name], option.type, option.flag) if name in given else option.default


def _config_to_resume(given: Settings) -> Path | None:
    """The config.yaml of the run that these options continue, if they name no other file."""
    folder: Path | None = _peek(given, "save_dir") if "save_dir" in given else None
    if not _peek(given, "resume") or folder is None or "config" in given:
        return None
    folder = RunFolder.at(folder, resume=True).path
    if not (folder / CONFIG).is_file():
        require("task" in given, f"--resume: {folder} holds no run, and a new one needs a --task")
        return None
    return folder / CONFIG


def _resolve_with_parent(given: Settings) -> Parsed:
    """The options of a run; missing ones come from the checkpoint that it starts from.

    This is the newest one with `--resume`, or that of `--init-from`. Its task's options apply if
    the task is the same, and its architecture if there is no `--arch`.
    """
    if (folder := _parent(given)) is None:
        return resolve(TrainConfig, _choose(given), COMPONENTS)
    with state.plugins_named(state.read_state(folder), folder):
        return resolve(TrainConfig, _choose(_inherit(given, folder)), COMPONENTS)


def _settings_of_page(given: Settings) -> Settings:
    """The settings whose components a help page shows: those that the run would have."""
    try:
        path = _config_to_resume(given)
    except UsageError:  # there is no run yet: the page is that of a new one
        path = None
    given = Settings.read(path).under(given) if path else given
    folder = _parent(given)
    return _choose(_inherit(given, folder) if folder else given)


def _parent(given: Settings) -> Path | None:
    """The checkpoint that a run starts from: the newest one, or that of `--init-from`."""
    folder = None
    if "task" in given and _peek(given, "resume") and "save_dir" in given:
        run = RunFolder.at(_peek(given, "save_dir"), resume=True)
        # `prepare` reads the other files
        folder = run.newest(hashed=lambda name: name == "state.json")
    if "task" in given and folder is None:
        path = _peek(given, "init_from")
        folder = find_checkpoint(path) if path is not None else None
    return folder


def _inherit(given: Settings, folder: Path) -> Settings:
    """The settings above those that a run takes from the checkpoint that it starts from."""
    recorded = state.settings_of(state.read_state(folder), folder)
    tasks = given.tasks()
    inherited = options_of_same_tasks(recorded, tasks).texts
    first = registry.get("task", next(iter(tasks)))
    layout = any(option.name == "layout" for option in options(first.Config))
    if layout and "task" in tasks.values():
        inherited["task.layout"] = state.layout_in(recorded)
    if "arch" not in given:
        inherited |= recorded.only("arch").texts
        if 0 < int(inherited.get("arch.num_segments", 0)) < len(first.segments):
            inherited["arch.num_segments"] = str(len(first.segments))
    return Settings.of_texts(inherited, Origin.CHECKPOINT, f"checkpoint {folder}").under(given)


def _choose(given: Settings) -> Settings:
    """The settings with the optimizer and the rate that fit a new model of unitk's own kind."""
    named = given.only("task", "arch")
    try:
        arch = resolve(NoOptions, named, ("task", "arch")).components["arch"]
    except UsageError:  # resolving the options raises it again, with all else that is wrong
        return given
    new = all(_peek(given, name) is None for name in BEGINS)
    own = isinstance(arch.made_from, Preset) and arch.made_from.own
    return choose_rates(given, own, new, arch.config.width)


def prepare(parsed: Parsed) -> Start:
    """Open the data, and find the run folder and the checkpoint to start from."""
    config: TrainConfig = parsed.main
    run = RunFolder.at(config.save_dir, config.resume)
    check_run_options(parsed, run)
    run.check(config.resume)  # before data are opened, which may take longer
    choose_loggers(config.writers)
    data = open_data(parsed)
    resumed = run.newest() if config.resume else None
    parsed = add_heads(parsed, data.heads, resumed is not None)
    check_fit(parsed, data)
    if resumed is None:
        recorded = {}
        beginning = _find_weights(parsed, data)
    else:  # a run that goes on has taken the weights of others when it began
        saved = state.read_state(resumed)
        check_data(saved, data, resumed)
        new_epoch, changed = check_frozen(saved, parsed, data, resumed)
        recorded = saved["config"]
        beginning = Beginning(resumed=resumed, new_epoch=new_epoch, changed=changed)
    parsed = replace(parsed, main=_with_batch(config, recorded))
    return Start(parsed, data, run, beginning)


def _with_batch(config: TrainConfig, recorded: Mapping[str, str]) -> TrainConfig:
    """The options with the size of an update, as given, as recorded, or by default.

    The default depends on --max-tokens, which may change when a run goes on; the size does not.
    """
    if config.batch_tokens or config.batch_texts:
        return config
    texts = [recorded.get(name, "none") for name in ("batch_tokens", "batch_texts")]
    tokens, count = (None if text == "none" else int(text) for text in texts)
    if not (tokens or count):
        tokens = config.max_tokens * process_ranks().world
    return replace(config, batch_tokens=tokens, batch_texts=count)


def add_heads(parsed: Parsed, heads: Sequence[str], resumed: bool = True) -> Parsed:
    """The architecture with the heads that the tasks need; they replace heads of the same names.

    Unless a run is `resumed`, no others come from the checkpoint that it starts from.
    """
    arch = parsed.components["arch"]
    if not resumed and parsed.settings["arch.heads"].origin == Origin.CHECKPOINT:
        arch = replace(arch, config=replace(arch.config, heads=()))
    names = {tuple(head.split(":")[:2]) for head in heads}  # KIND:NAME[:SIZE]
    kept = [head for head in arch.config.heads if tuple(head.split(":")[:2]) not in names]
    config = replace(arch.config, heads=(*kept, *heads))
    return replace(parsed, components=parsed.components | {"arch": replace(arch, config=config)})


def _find_weights(parsed: Parsed, data: Data) -> Beginning:
    """The checkpoints of --init-from, --init-encoder and --init-decoder, if they fit the run."""
    config = parsed.main
    arch = parsed.components["arch"]
    changed: list[str] = []
    init_from = find_checkpoint(config.init_from) if config.init_from else None
    if init_from is not None:
        saved = state.read_state(init_from)
        _check_whole(saved, init_from, arch, data.vocab)
        changed = differences(parsed, state.settings_of(saved, init_from), init_from)
    folders = {"encoder": config.init_encoder, "decoder": config.init_decoder}
    towers = {name: find_checkpoint(path) for name, path in folders.items() if path is not None}
    for name, path in towers.items():
        require(
            "enc" in arch.config.towers,
            f"--init-{name}: --arch {arch.name} has no encoder beside a decoder; "
            "--init-from takes all of its weights",
        )
        saved = state.read_state(path)
        check_vocab(saved, data.task.source_vocab if name == "encoder" else data.vocab, path)
        changed += differences(parsed, state.recorded_options(saved), path, name[:3])
    if arch.config.shared_embeddings and len(set(towers.values())) > 1:
        raise UsageError(
            "--init-encoder and --init-decoder have a token embedding each: "
            "they need --arch.shared-embeddings off"
        )
    return Beginning(init_from=init_from, init_towers=towers, changed=changed)


def _check_whole(saved: dict[str, Any], path: Path, arch: Component, vocab: Vocab) -> None:
    """Refuse --init-from with a checkpoint of too few towers, or of another vocabulary."""
    recorded = saved["config"]
    two_towers = {*arch.config.towers} == {"enc", "dec"}
    if two_towers and registry.get("arch", recorded["arch"])().towers == ("x",):
        apart = f"has one tower, but --arch {arch.name} an encoder and a decoder"
        cure = "--init-encoder and --init-decoder take it"
        raise UsageError(f"--init-from: {path} {apart}: {cure}")
    check_vocab(saved, vocab, path)
    trained = len(Vocab.load(path / VOCAB).sentinels)
    sentinels = len(vocab.sentinels)
    if trained not in (0, sentinels):
        has = f"has {trained} sentinels, but --task of this run {sentinels}"
        cure = f"--task.sentinels {trained}" if sentinels else f"--task {recorded['task']}"
        raise UsageError(f"--init-from: {path} {has}: train it with {cure}")
