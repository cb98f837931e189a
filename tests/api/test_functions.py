"""Verbs are functions: they return what the command prints, and their options have names."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest

import unitk
from unitk.api.verb import Verb, find
from unitk.errors import UsageError
from unitk.options.config import options
from unitk.registry import names

TEXTS = ["The [MASK] sat, she said.", "It was a cold night"]


def test_every_verb_has_a_function_or_needs_a_terminal():
    no_functions = {"analyse", "fairseq_plugin", "latent", "list", "quickstart", "serve", "sweep"}
    no_functions |= {"check", "compare"}  # they print what they find
    assert {*names("verb")} - no_functions == {*unitk.__all__} - {"load", "load_module"}


@pytest.mark.parametrize("name", sorted({*unitk.__all__} - {"load", "load_module", "train"}))
def test_the_options_stand_in_the_signature(name):
    made, verb = getattr(unitk, name), find(name)
    assert isinstance(verb, Verb)
    shown = inspect.signature(made).parameters
    assert len(shown) == len(options(verb.options)) + len(verb.kinds) + 1
    first, *_ = shown.values()
    positional = first.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert positional == (verb.words is not None)
    assert made.__doc__.startswith(inspect.cleandoc(verb.options.__doc__)[:40])
    with pytest.raises(UsageError, match="no.such"):
        made(no_such=1)


def test_answers_are_those_of_the_command(tmp_path, capsys):
    how = {"checkpoint": "unitk-mini-en", "beam": 2, "max_len": 4}
    found = unitk.generate(TEXTS, **how)
    file = tmp_path / "out.jsonl"
    assert unitk.generate(TEXTS, **how, output=file) is None
    written = [json.loads(line)["outputs"] for line in file.read_text().splitlines()]
    assert [[one["text"] for one in some] for some in written] == [
        [one.text for one in some] for some in found
    ]
    vectors = unitk.embed(TEXTS[0], checkpoint="unitk-mini-en")  # with a comma in it
    find("embed")([TEXTS[0], "--checkpoint", "unitk-mini-en"])
    np.testing.assert_allclose([json.loads(capsys.readouterr().out)["vector"]], vectors, rtol=1e-6)


def test_scores_and_drawings(tmp_path):
    for name, text in {"a": "the old cat sat on the mat", "b": "the old cat sat on a mat"}.items():
        (tmp_path / name).write_text(text + "\n")
    files = {"hypotheses": tmp_path / "a", "references": tmp_path / "b"}
    figures = unitk.score(metric=["rouge"], **files)["rouge"].figures
    assert figures["rouge1"] == pytest.approx(100 * 6 / 7)
    with pytest.raises(UsageError, match="output.format"):
        unitk.score(metric="rouge", **files, output_format="json")
    [drawing] = unitk.show("a b c", task="lm")
    assert drawing.names[1:] == ["a", "b", "c"] and drawing.text_picture()
