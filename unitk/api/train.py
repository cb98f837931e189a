"""`unitk.train`: training as an iterator of events."""

from __future__ import annotations

import atexit
from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Unpack
from weakref import WeakValueDictionary

from unitk.api.arguments import option_words, set_environment, takes
from unitk.api.records import make_corpus, take_corpus
from unitk.errors import require
from unitk.options.config import Parsed, flag
from unitk.training.config import COMPONENTS, TrainConfig
from unitk.training.reporting.sinks import Event
from unitk.training.signals import CODES
from unitk.training.start import parse_train, prepare

if TYPE_CHECKING:
    from unitk.keywords import TrainOptions

_open: WeakValueDictionary[Path, Generator[Event, None, None]] = WeakValueDictionary()
"""Run folder -> the run of this process that is not over."""
_turn = Lock()
"""Of the run that computes: threads share torch's generator, which each update seeds."""


@takes(TrainConfig, COMPONENTS, more=("options", "preprocess"))
def train(**arguments: Unpack[TrainOptions]) -> Iterator[Event]:
    """Train a model as `unitk train` does with the same options: an iterator of what it logs.

        for event in unitk.train(task="lm", data="data/docs", save_dir="runs/lm", max_steps=9000):
            if event["kind"] == "valid":
                print(event["step"], event["valid/loss"])

    Options have the names and the values of the command line (`unitk train --help`), with `_` for
    `-`. Those of task, architecture, criterion and optimizer are in `options`, as in
    `options={"task.mask_ratio": 0.3}`. The weights are those of the command line, bit for bit.

    `data` and `valid` may be records in memory: an iterable of dicts, a table of pandas, or one of
    datasets. They are encoded into `SAVE_DIR/corpus` with the vocabulary of `init_from`, by
    `unitk.preprocess`, for which `preprocess` has options: `{"source_field": "dialogue",
    "target_field": "summary"}`, or `{"vocab_size": 8000}` for a vocabulary of their own.

    The run goes on while events are asked for; `list(unitk.train(...))` makes all of it. An event
    is a line of log.jsonl: a dict of its `kind` (train, valid or panel), its `step`, and values
    such as "train/loss" and "lr". Whoever leaves the loop, by `break` or by an interruption, leaves
    a checkpoint that `resume=True` continues. `nproc`, `seeds` and `dry_run` are for the command
    line.

    Raises `unitk.errors.UsageError` at once for wrong options, KeyboardInterrupt
    after a saved interruption, and other errors of `unitk.errors` while it trains.
    """
    set_environment()
    given, how = take_corpus({**arguments})
    parsed = parse_train(option_words(given))
    elsewhere = {"nproc": parsed.main.nproc > 1, "seeds": parsed.main.seeds}
    for name, value in {**elsewhere, "dry_run": parsed.main.dry_run}.items():
        require(not value, f"{flag(name)} has no effect in Python: use `unitk train`")
    folder = parsed.main.save_dir.resolve()
    # one that an interruption left behind in this process is saved, and lets go of the folder
    if (before := _open.pop(folder, None)) is not None:
        before.close()
    # after the options are checked: a mistake in one leaves no corpus behind
    if how:
        make_corpus(how, parsed.main)
    _open[folder] = run = _events(parsed)
    return run


def _events(parsed: Parsed) -> Generator[Event, None, None]:
    from unitk.training.loop import Trainer, events

    with _turn:
        trainer = Trainer(prepare(parsed))
    with closing(events(trainer)) as steps:
        try:
            while True:
                with _turn:
                    event = next(steps, None)
                if event is None:
                    return
                with trainer.signals.suspend():  # the caller's own code is interrupted as ever
                    yield event
        except SystemExit as stop:
            if stop.code == CODES["SIGINT"]:
                raise KeyboardInterrupt from None
            raise


@atexit.register
def _close() -> None:
    """Save unfinished runs before the interpreter exits."""
    for run in list(_open.values()):
        run.close()
