"""Data of a run that do not fit its options, or the checkpoint that it begins with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np

from unitk import registry
from unitk.data.batching import draw_all, make_batch
from unitk.data.corpus.corpus import VOCAB
from unitk.data.examples import Data
from unitk.errors import DataError, UsageError, require, say
from unitk.options.config import Parsed, flag
from unitk.options.settings import Origin
from unitk.slots import Batch
from unitk.training.config import parse_weighted, process_ranks
from unitk.vocab.base import Vocab


def check_fit(parsed: Parsed, data: Data) -> None:
    """Refuse options that the data of the run cannot serve."""
    config = parsed.main
    check_stateful(parsed, data, process_ranks().world)
    require(
        not (config.shard and data.writes),
        "--shard: a model that writes while it trains cannot be divided among processes",
    )
    for name in ("patience", "best_metric", "valid_generate"):
        idle = getattr(config, name) is not None and not data.valid
        where = parsed.settings[name].where
        if idle and parsed.settings[name].origin is Origin.FILE:
            say(f"note: {name} of {where} has no effect without --valid")
            continue
        require(not idle, f"{flag(name)} has no effect without --valid")
    if (
        config.best_metric
        and data.valid
        and re.split("[./]", config.best_metric)[0] not in data.valid
    ):
        known = ", ".join(f"{name}/loss" for name in data.valid)
        raise UsageError(f"--best-metric must be a value such as {known}, got {config.best_metric}")


def first_batches(data: Data, seed: int) -> Iterator[Batch]:
    """Lay out the first example of each task and set, which refuses texts that it cannot read."""
    for examples in (data.train, *data.valid.values()):
        for part in examples.parts.values() or (examples,):
            if len(part.bounds(0)):
                yield make_batch(draw_all(part, seed, 0, np.zeros(1, np.int64)))


def check_stateful(parsed: Parsed, data: Data, world: int) -> None:
    """Refuse options that exclude stateful rows."""
    rows = parsed.main.stateful_rows
    arch = parsed.components["arch"]
    if not rows:
        return
    name = f"--stateful-rows {rows}"
    require(
        arch.config.carries,
        f"{name} has no effect: --arch {arch.name} carries nothing from update to update",
    )
    require(rows % world == 0, f"{name} must be a multiple of the {world} processes")
    require(
        rows % 2 == 0 or not data.task.both_ways,
        f"{name} must be even: "
        "half of the rows read texts from their end (--task.both-ways off: none does)",
    )
    ordered = data.kind == "text" and data.task.cut is None and not parsed.mixture
    require(ordered, f"{name} needs texts in their order: no pairs, sentence pairs or mixed tasks")
    even = all(parse_weighted(text)[1] == 1 for text in parsed.main.data)
    require(even, f"{name} reads each text once: --data takes no weight")
    for option in ("batch_tokens", "batch_texts"):
        chosen = parsed.settings.given(option, Origin.FLAG)
        require(not chosen, f"{flag(option)} has no effect with {name}: an update is a text a row")


def check_vocab(state: dict[str, Any], vocab: Vocab, checkpoint: Path) -> None:
    """`DataError` unless the data's vocabulary is that of the checkpoint."""
    same = registry.get("measure", "same_vocab")
    if state["vocab"] != vocab.hash and not same(Vocab.load(checkpoint / VOCAB), vocab):
        raise DataError(
            f"--data was made with another vocabulary than {checkpoint}: "
            f"preprocess it with --vocab {checkpoint}"
        )


def check_data(state: dict[str, Any], data: Data, checkpoint: Path) -> None:
    """`DataError` unless the data's vocabulary, and labels that both have, are the checkpoint's."""
    check_vocab(state, data.vocab, checkpoint)
    recorded = {"": state.get("labels", ()), **state.get("corpora", {})}
    for name, labels in {"": (known := data.task.trained).labels, **known.corpora}.items():
        old = recorded.get(name, ())
        if labels and old and [*labels] != [*old]:
            a, b = (shorten(", ".join(names), 60, placeholder=" ...") for names in (labels, old))
            raise DataError(
                f"--data has {len(labels)} labels ({a}), but {checkpoint} has {len(old)} ({b}):"
                " their numbers would mean other labels; use the same names in both"
            )
