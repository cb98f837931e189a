"""The examples in the docstrings of `unitk.*`, and the page that is made of these."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import unitk
from tests.conftest import toy_lines
from unitk.training.start import parse_train

ORDER = ("preprocess", "train", "evaluate", "load", "load_module", "generate", "embed", "score")
ORDER += ("show", "plot", "convert", "open_run")
ELSEWHERE = {"average", "merge", "predict", "push", "check", "compare", "fairseq_plugin", "list"}
ELSEWHERE |= {"quickstart", "serve", "sweep", "launch", "scale", "mix", "search"}
"""What needs several checkpoints, shards, labels or a hub, takes minutes, or needs no model."""
GROUPS = {"analyse", "latent"}
"""Names of groups of functions."""
SHORTER = {"vocab_size=8000": "vocab_size=120", "max_steps=9000": "max_steps=2"}
"""What takes too long, and what is run instead."""


def example(name: str) -> str:
    """The indented lines of a docstring."""
    lines = re.findall(r"^ {4}.*\n", inspect.getdoc(getattr(unitk, name)) or "", re.M)
    return textwrap.dedent("".join(lines))


@pytest.mark.slow
def test_they_run_one_after_the_other(tmp_path):
    (tmp_path / "docs").mkdir()
    for name in ("docs/a.txt", "dev.txt", "out.txt"):
        (tmp_path / name).write_text("".join(line + "\n" for line in toy_lines(60)))
    script = "\n".join(example(name) for name in ORDER)
    for long, short in SHORTER.items():
        assert long in script
        script = script.replace(long, short)
    done = subprocess.run(
        [sys.executable, "-c", f"import unitk\n{script}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^2 \d+\.\d+$", done.stdout, re.M)  # the step and the loss that it prints


def test_every_function_has_one():
    assert {*ORDER} | ELSEWHERE | GROUPS == {*unitk.__all__}
    assert all("unitk." + name in example(name) for name in {*unitk.__all__} - GROUPS)


@pytest.mark.parametrize("name", ["sweep", "launch"])
def test_the_training_of_an_example_has_all_that_it_needs(name):
    """The other verbs with a training in them add to it."""
    [call] = ast.parse(example(name)).body
    [given] = [one.value for one in call.value.keywords if one.arg == "train"]
    words = {"save_dir": "x"} | ast.literal_eval(given)
    parse_train([f"--{key.replace('_', '-')}={text}" for key, text in words.items()])


def test_the_reference_has_every_function_and_option(monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).resolve().parents[2] / "docs")
    reference = importlib.import_module("api_reference").page()
    for name in unitk.__all__:
        assert f"## unitk.{name}" in reference
    for name in ("max_steps", "vocab_size", "stride", "beam", "null_threshold"):
        assert f"| `{name}` |" in reference
    methods = "generate sample infill score predict embed logits likelihood"
    for method in methods.split():
        assert f"### {method}(" in reference
