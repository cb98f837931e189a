"""The contents of a checkpoint's state.json: the progress of a run and its identity.

Files of earlier versions are read here: `read_state` renames options, and `recorded_options` adds
those that they lack (`Task.earlier`). Options that no longer exist are ignored if they are in
`GONE` of options/settings.py. Code that reads a field gives its default if state.json lacks it. For
earlier weights see `checkpoint.load_weights`, for corpora `manifest_of` in data/corpus/corpus.py.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Any, get_args, get_origin, get_type_hints

from unitk import registry
from unitk.errors import CheckpointError, UsageError
from unitk.files import sealed_files
from unitk.foreign import read_json
from unitk.options.fields import SUFFIXES, Copied, flag, options, render
from unitk.options.settings import NOTHING, Origin, Settings, rename_old
from unitk.tasks.base import split_layout
from unitk.training.saving.folder import stored_files

if TYPE_CHECKING:
    from unitk.training.config import TrainConfig

log = logging.getLogger(__name__)

SOURCE_VOCAB = "source_vocab"  # folder of a checkpoint
REQUIRED = {"config", "user_dir", "data", "vocab", "optimizer"}
"""The fields that state.json must have; those of `Progress` and `Identity` have their types."""


def recorded_options(state: dict[str, Any]) -> Settings:
    """Every option of the run as state.json has it.

    Options that an earlier version did not have get the values that it used.
    """
    recorded = Settings.of_texts(state["config"], Origin.CHECKPOINT)
    earlier = dict[str, str]()
    for name, part in recorded.tasks().items():
        if registry.has("task", name):
            values = registry.get("task", name).earlier
            earlier |= {f"{part}.{option}": text for option, text in values.items()}
    return Settings.of_texts(earlier, Origin.CHECKPOINT).under(recorded)


def settings_of(state: dict[str, Any], folder: Path) -> Settings:
    """Every option of the run; those that name files name the copies in the checkpoint, if any."""
    recorded = recorded_options(state)
    texts = recorded.texts
    for name, part in recorded.tasks().items():
        copies = copies_of(name, recorded.of(part).texts, folder)
        texts |= {f"{part}.{option}": path for option, path in copies.items()}
    return Settings.of_texts(texts, Origin.CHECKPOINT, f"checkpoint {folder}")


def copies_of(task: str, texts: Mapping[str, str], folder: Path) -> dict[str, str]:
    """The options of a task whose files the checkpoint has copied, each with the copy's path."""
    files = sealed_files(folder)
    copied = dict[str, str]()
    for option in options(registry.get("task", task).Config) if registry.has("task", task) else ():
        for mark in option.marks:
            if isinstance(mark, Copied) and option.name in texts and mark.name in files:
                copied[option.name] = str(folder / mark.name.partition("/")[0])
    if "layout" in texts:  # another objective with its own options, in one text
        name, given = split_layout(texts["layout"])
        of_layout = {key: value for key, _, value in given}
        if inner := copies_of(name, of_layout, folder):
            copied["layout"] = render_layout(name, of_layout | inner)
    return copied


@contextmanager
def plugins_named(state: dict[str, Any], folder: Path) -> Iterator[None]:
    """A context in which errors about unknown names tell which plug-ins the run had."""
    try:
        yield
    except UsageError as error:
        # they are not loaded: a checkpoint never decides which code runs
        if plugins := state["user_dir"]:
            unknown = re.split(r" \(known|\n", str(error))[0]
            raise UsageError(
                f"{unknown}; {folder} was trained with plug-ins: "
                f"give --user-dir if you trust those of {plugins!r}"
            ) from error
        raise


@dataclass
class Progress:
    """How far a run has come: everything that resuming needs except tensors and options."""

    step: int = 0  # updates done, skipped ones counted
    total: int | None = None  # updates of the whole run, as schedules count them
    epoch: int = 0
    cursor: int = 0  # units of the epoch's plan that are done
    tokens: int = 0  # that were read, repetitions included; so are texts and words
    texts: int = 0
    words: int = 0  # 0 if the corpora do not count them
    seconds: float = 0.0  # time spent, validations and saving included
    bad_steps: int = 0  # updates that were skipped for NaN or infinity, of the whole run
    bad_row: int = 0  # how many of them are the last ones, in a row
    validated: int = 0  # step of the last validation
    ranking: list[list[float]] = field(default_factory=list)
    """[value, step] of the best validations, which were or are being saved, the best first."""
    kept: dict[str, int] = field(default_factory=dict)
    """Names of the checkpoints of --save-at-words -> their steps."""
    judged_by: str = ""  # the value that ranks validations, and the texts that it is of
    stale: int = 0  # validations since the best one
    means: dict[str, dict[str, float]] = field(default_factory=dict)
    """Sums and counts since the last log line."""
    noise: list[float] = field(default_factory=lambda: [0.0, 0.0, 0.0])
    """How noisy gradients are (unitk/training/measures.py)."""
    scale: float = 65536.0
    """fp16: the factor of losses before the backward pass, a power of two."""
    unscaled: int = 0  # updates since the scale changed
    products: list[str] | None = None
    """The products that oneDNN computes (`products.PRODUCTS`), chosen once so that reruns agree."""

    @classmethod
    def of(cls, state: dict[str, Any]) -> Progress:
        """The progress in a checkpoint's state.json."""
        return cls(**{f.name: state[f.name] for f in fields(cls) if f.name in state})

    @property
    def best(self) -> float | None:
        """The best validation value so far."""
        return self.ranking[0][0] if self.ranking else None

    @property
    def best_step(self) -> int | None:
        return int(self.ranking[0][1]) if self.ranking else None

    def best_steps(self, keep: int) -> list[int]:
        """The steps of the `keep` best validations, best first."""
        return [int(step) for _, step in self.ranking[:keep]]

    def loss_scale(self, precision: str) -> float:
        """The factor of the loss before the backward pass."""
        return self.scale if precision == "fp16" else 1.0

    def due(self, every: int, done: int, now: bool) -> bool:
        """Whether something that was last done at step `done` is due at this step."""
        return self.step != done and (now or self.step % every == 0)

    @property
    def done(self) -> dict[str, float]:
        """Option that limits a run -> how far the run has come, in its unit."""
        return {
            "max_steps": self.step,
            "max_epochs": self.epoch,
            "max_words": self.words,
            "max_hours": self.seconds / 3600,
        }

    def end_reason(self, config: TrainConfig) -> str:
        """The reason why the run is over, or an empty text."""
        for name, count in self.done.items():
            limit = getattr(config, name)
            if limit and count >= limit:
                return f"{flag(name)} reached"
        if config.patience and self.stale >= config.patience:
            return f"no better validation for {self.stale} times (--patience)"
        return ""

    def rank(self, value: float, keep: int, higher: bool = False) -> None:
        """Enter a validation at this step if it is among the `keep` best: those with the lowest
        values, or with `higher` the highest."""
        every = [*self.ranking, [value, self.step]]  # of equal ones, the earlier stays in front
        # one more is kept, which moves up if the newest checkpoint cannot be saved
        ranking = sorted(every, key=lambda entry: entry[0], reverse=higher)
        ranking = ranking[: keep + 1]
        if math.isfinite(value) and [value, self.step] in ranking[:keep]:
            self.ranking = ranking

    def judge_by(self, metric: str) -> None:
        """Forget the best validations if `metric` ranks them now: another value, or other texts."""
        if metric and metric != self.judged_by:
            if self.judged_by:  # earlier versions did not say
                if self.ranking:
                    log.warning(
                        "validations are of another value or of other texts than before: "
                        "step %s is no longer the best one, and --patience counts from 0",
                        self.best_step,
                    )
                self.ranking = []
                self.stale = 0
            self.judged_by = metric

    def count_words(self, words: int, marks: tuple[int, ...]) -> None:
        """Count the words of an update, and record the `marks` that it reaches."""
        reached = [mark for mark in marks if self.words < mark <= self.words + words]
        self.words += words
        self.kept |= {f"words_{short(mark)}": self.step for mark in reached}

    def forget(self, step: int) -> None:
        """Forget a step whose checkpoint could not be saved."""
        self.ranking = [entry for entry in self.ranking if entry[1] != step]
        self.kept = {name: saved for name, saved in self.kept.items() if saved != step}


def short(number: int) -> str:
    """A number as `1000M`, `500k` or in full."""
    fits = [suffix for suffix in ("M", "k") if number % SUFFIXES[suffix] == 0]
    return f"{number // SUFFIXES[fits[0]]}{fits[0]}" if fits else str(number)


@dataclass(frozen=True)
class Identity:
    """The identity of a run: its options, and the data it is bound to."""

    config: dict[str, str]  # every option as text under its dotted key
    user_dir: str | None  # folder of plug-ins, absolute
    data: str  # fingerprint of the training data and their weights
    vocab: str  # hash of the vocabulary
    kind: str  # "text" or "pairs": what it is trained on
    lengths: tuple[int, ...] | None = None
    """The lengths to which sources and targets of pairs are truncated, in tokens; of an imported
    model that of sources alone."""
    labels: tuple[str, ...] = ()
    """The names of classes, tags or entities of labelled data, by their numbers."""
    parts: int = 0
    """The most parts of a source of pairs or labelled texts."""
    corpora: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """For a task that joins corpora: name -> the form of its labels, and then their names."""
    window: tuple[int | None, str] | None = None
    """`--window` and `--squad-source` of `unitk preprocess`, if sources are answer and passage."""


def is_of_type(value: object, kind: Any) -> bool:
    """Whether a value of a JSON file is of a type; of a list, each entry is of one of the types."""
    parts = get_args(kind)
    if isinstance(kind, UnionType):
        return any(is_of_type(value, part) for part in parts)
    if not parts:
        return kind is not ... and isinstance(value, float | int if kind is float else kind)
    if issubclass(get_origin(kind), Mapping):
        return isinstance(value, dict) and all(is_of_type(v, parts[1]) for v in value.values())
    return isinstance(value, list) and all(any(is_of_type(v, p) for p in parts) for v in value)


def read_state(checkpoint: Path) -> dict[str, Any]:
    """Read the state.json of a checkpoint whose manifest is valid."""
    path = checkpoint / "state.json"
    for name in ("state.json", "model.safetensors", "vocab/vocab.json"):
        if name not in stored_files(checkpoint):
            raise CheckpointError(f"{checkpoint} has no {name} in its manifest")
    state = read_json(path, CheckpointError)
    kinds = get_type_hints(Identity) | get_type_hints(Progress)
    kinds["optimizer"] = dict[str, dict[str, object]]
    for name in REQUIRED | kinds.keys() & state.keys():
        if name not in state or not is_of_type(state[name], kinds[name]):
            raise CheckpointError(f"{path} is damaged: it has no good {name!r}")
    config = state["config"]
    if not {"task", "arch"} <= config.keys():
        raise CheckpointError(f"{path} is damaged: its 'config' is not that of a run")
    return {**state, "config": rename_old(Settings.of_texts(config, Origin.CHECKPOINT)).texts}


def untrained_options(state: dict[str, Any], task: str | None) -> Settings:
    """The options that let a checkpoint be used with a task that is `untrained`; else none."""
    recorded = recorded_options(state)
    if task is None or task in recorded.tasks() or not registry.has("task", task):
        return NOTHING
    if not registry.get("task", task).untrained:
        return NOTHING
    texts = {"task": task, "task.layout": layout_in(recorded)}
    return Settings.of_texts(texts, Origin.FLAG, "--task")


def layout_in(recorded: Settings) -> str:
    """The objective of a checkpoint, of a mixture the first that fills blanks, as a layout."""
    if "task.layout" in recorded:
        return recorded["task.layout"].text
    tasks = recorded.tasks().items()
    filling = [task for task in tasks if registry.get("task", task[0]).infills]
    name, part = [*filling, *tasks][0]
    known = {
        option.name: render(option.default) for option in options(registry.get("task", name).Config)
    }
    own = {
        key: text for key, text in recorded.of(part).texts.items() if known.get(key, text) != text
    }
    return render_layout(name, own)


def render_layout(name: str, texts: Mapping[str, str]) -> str:
    """The text of an objective with options, which `split_layout` reads."""
    pairs = (f"{key}={text}".replace(",", "\\,") for key, text in texts.items())
    return f"{name}:{','.join(pairs)}".removesuffix(":")
