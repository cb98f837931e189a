"""Keyword arguments come to what the same options on a command line come to."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest

import unitk
from unitk.api.arguments import option_words
from unitk.errors import UsageError
from unitk.optim.schedules import Linear
from unitk.options.config import options, parse
from unitk.training.config import COMPONENTS, TrainConfig


class Place:
    """A path, as other libraries have them."""

    def __fspath__(self):
        return "runs/x"


GIVEN = {
    "data": ["a,b", Path("c")],
    "save_dir": Place(),
    "max_steps": np.int64(9),
    "save_at_words": (1000, 2000),
    "lr": np.float64(1e-3),
    "lr_schedule": Linear(warmup=0.5),
    "resume": True,
    "patience": None,
}


def test_values_are_those_of_the_dataclass():
    parsed = parse("train", TrainConfig, option_words({**GIVEN, "task": "lm"}), COMPONENTS)
    wanted = {
        **GIVEN,
        "data": ("a,b", "c"),
        "save_dir": Path("runs/x"),
        "max_steps": 9,
        "lr": 1e-3,
    }
    assert parsed.main == TrainConfig(**wanted)


def test_components_and_mixtures():
    shares = {"lm": 0.25, "glm_infill": Linear(warmup=0.5)}
    given = {"data": {"x": 2.5}, "save_dir": "y", "max_steps": 1, "task": shares}
    more = {"task.glm_infill.mask_ratio": 0.3, "arch.num_layers": 3}
    parsed = parse(
        "train",
        TrainConfig,
        option_words(given | {"arch": "glm_tiny", "options": more}),
        COMPONENTS,
    )
    assert parsed.main.weighted_data == [(Path("x"), 2.5)]
    assert parsed.mixture["lm"].share(0, None) == 0.25
    assert parsed.mixture["glm_infill"].share == Linear(warmup=0.5)
    assert parsed.mixture["glm_infill"].config.mask_ratio == 0.3
    assert parsed.components["arch"].config.num_layers == 3


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lr": object()}, "--lr cannot be .*no option takes a object"),
        ({"options": {"task.x": object()}}, "--task.x cannot be"),
        ({"options": "task.mask_ratio"}, "--options must be a dict, got 'task.mask_ratio'"),
    ],
)
def test_what_no_option_takes(given, message):
    with pytest.raises(UsageError, match=message):
        option_words(given)


def test_names_that_are_no_texts_are_read_as_such():
    assert option_words({"options": {3: 1}}) == ["--3=1"]  # which no verb has


def test_signatures_name_every_option():
    shown = inspect.signature(unitk.train).parameters
    every = options(TrainConfig)
    assert list(shown)[: len(every)] == [option.name for option in every]
    assert [shown[option.name].annotation for option in every] == [o.type for o in every]
    assert shown["keep_last"].default == 2
    assert set(COMPONENTS) | {"options"} <= set(shown)


def test_what_unitk_offers():
    assert set(unitk.__all__) <= set(dir(unitk))
    groups = {"analyse", "latent"}  # of functions
    assert {one for one in unitk.__all__ if not callable(getattr(unitk, one))} == groups
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = unitk.trian
