"""A tiny run, in this process: `train("--max-steps 3")`."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from exact_options import DETERMINISTIC

from unitk.training.start import Start, parse_train, prepare

BASE = (
    "--task glm_infill --arch glm_tiny --arch.dropout 0.1 --blocks line --block-size 64"
    " --max-tokens 400 --batch-tokens 800 --precision fp32 --log-every 1 --valid none --lr 1e-2"
    f" {DETERMINISTIC}"
)


@pytest.fixture
def start(tmp_path: Path, toy_data: Path) -> Callable[..., Start]:
    """`start("--max-steps 3", run="a")`: a checked start; flags replace those of `BASE`."""

    def make(words: str = "", run: str = "run", data: str = "text") -> Start:
        flags = options(f"{BASE} --data {toy_data / data} --save-dir {tmp_path / run}")
        flags |= options(words)
        return prepare(parse_train([f"{name}={value}" for name, value in flags.items()]))

    return make


@pytest.fixture
def train(start: Callable[..., Start]) -> Callable[..., Any]:
    """The same, and trained."""
    from unitk.training.loop import train

    return lambda *args, **kwargs: train(start(*args, **kwargs))


def options(words: str) -> dict[str, str]:
    """`--a 1 --b` -> {"--a": "1", "--b": "on"}."""
    found: dict[str, str] = {}
    for word in shlex.split(words):
        if word.startswith("--"):
            name = word
            found[name] = "on"
        else:
            found[name] = word
    return found


@pytest.fixture
def curve(tmp_path: Path) -> Callable[..., list[tuple[int, float]]]:
    """`curve("a")`: (step, value) of every event of RUN/log.jsonl with that value."""

    def read(run: str = "run", value: str = "train/loss") -> list[tuple[int, float]]:
        lines = (tmp_path / run / "log.jsonl").read_text().splitlines()
        events = [json.loads(line) for line in lines]
        return [(event["step"], event[value]) for event in events if value in event]

    return read
