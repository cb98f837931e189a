"""Verbs are functions: they return what the command prints, and their options have names."""

from __future__ import annotations

import inspect
import json
from urllib.request import urlopen

import numpy as np
import pytest

import unitk
from unitk.api.verb import Verb, find_verb
from unitk.errors import UsageError
from unitk.options.config import options
from unitk.registry import names

OTHERS = {"open_run", "load", "load_module"}
TEXTS = ["The [MASK] sat, she said.", "It was a cold night"]


def test_every_verb_is_a_function():
    assert {*names("verb")} == {*unitk.__all__} - OTHERS


def functions():
    """Function of unitk, with its name and its verb."""
    for name in sorted({*unitk.__all__} - OTHERS - {"train"}):
        verb = find_verb(name)
        if isinstance(verb, Verb):
            yield name, getattr(unitk, name), verb
        else:
            for own, one in verb.verbs.items():
                yield f"{name}.{own}", getattr(getattr(unitk, name), own), one


@pytest.mark.parametrize(("name", "made", "verb"), [*functions()])
def test_the_options_are_in_the_signature(name, made, verb):
    shown = inspect.signature(made).parameters
    more = len(verb.kinds) + bool(verb.after_dashes) + 1
    assert len(shown) == len(options(verb.options)) + more and made.__qualname__ == name
    first, *_ = shown.values()
    positional = first.kind == inspect.Parameter.POSITIONAL_OR_KEYWORD
    assert positional == (verb.words is not None)
    assert made.__doc__.startswith(inspect.cleandoc(verb.options.__doc__)[:40])
    assert f"unitk.{name}(" in made.__doc__
    with pytest.raises(UsageError, match="no.such"):
        made(no_such=1, **({verb.after_dashes: {}} if verb.after_dashes else {}))


def test_answers_are_those_of_the_command(tmp_path, capsys):
    how = {"checkpoint": "unitk-base-en", "beam": 2, "max_len": 4}
    found = unitk.generate(TEXTS, **how)
    file = tmp_path / "out.jsonl"
    assert unitk.generate(TEXTS, **how, output=file) is None
    written = [json.loads(line)["outputs"] for line in file.read_text().splitlines()]
    assert [[one["text"] for one in some] for some in written] == [
        [one.text for one in some] for some in found
    ]
    vectors = unitk.embed(TEXTS[0], checkpoint="unitk-base-en")  # with a comma in it
    find_verb("embed")([TEXTS[0], "--checkpoint", "unitk-base-en"])
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


def test_groups_of_verbs_and_lists(tmp_path):
    assert "encode" in repr(unitk.latent) and "heads" in repr(unitk.analyse)
    texts, how = ["he is a teacher .", "they are teachers ."], {"checkpoint": "unitk-vae-en"}
    latents = unitk.latent.encode(texts, **how)
    assert latents.shape == (2, 64)
    file = tmp_path / "rows.txt"
    assert unitk.latent.encode(texts, **how, output=file) is None
    np.testing.assert_allclose(np.loadtxt(file, delimiter="\t"), latents, rtol=1e-5, atol=1e-5)
    [path] = unitk.latent.interpolate(texts, **how, steps=3, max_len=8)
    assert [one["t"] for one in path["outputs"]] == [0, 0.5, 1] and path["source"] == texts
    assert list(unitk.list("criterion")) == ["criterion"]
    assert "cross_entropy" in unitk.list("criterion")["criterion"]


def test_several_texts_are_one_list():
    with pytest.raises(UsageError, match=r"embed\(\['a', 'b'\], ...\)"):
        unitk.embed("a", "b", checkpoint="unitk-vae-en")
    with pytest.raises(UsageError, match="^score: "):
        unitk.score("bleu")


WRITTEN = ["a\\", "b", " c ", "d,e", "--f", "-h", "--", "none", "g\n", "h\\,"]
"""Texts with what means something on a command line."""


def test_texts_are_read_as_they_are():
    model = unitk.load("unitk-base-en")
    vectors = unitk.embed(WRITTEN, checkpoint="unitk-base-en")
    np.testing.assert_allclose(vectors, model.embed(WRITTEN), rtol=1e-5)
    outputs = unitk.generate(WRITTEN, checkpoint="unitk-base-en", max_len=1)
    assert outputs.sources == [[text] for text in WRITTEN]


def test_an_empty_text_has_an_empty_output():
    texts = ["", "It was"]
    found = unitk.generate(texts, checkpoint="unitk-base-en", max_len=2, seed=3)
    wanted = unitk.load("unitk-base-en").generate(texts, max_len=2, seed=3)
    said = [[[one.text for one in some] for some in outputs] for outputs in (found, wanted)]
    assert said[0] == said[1] and said[0][0] == [""]


def columns():
    """The texts `WRITTEN` as other libraries hold them."""
    pandas, arrow = map(pytest.importorskip, ("pandas", "pyarrow"))
    yield from (iter(WRITTEN), np.array(WRITTEN))
    series = pandas.Series(WRITTEN, index=range(7, 17))
    yield from (series, series.astype("category"), pandas.Index(WRITTEN))
    yield from (arrow.array(WRITTEN), arrow.table({"text": WRITTEN})["text"])


def test_columns_of_other_libraries_are_texts():
    wanted = unitk.embed(WRITTEN, checkpoint="unitk-base-en")
    model = unitk.load("unitk-base-en")
    for texts, again in zip(columns(), columns(), strict=True):
        assert (unitk.embed(texts, checkpoint="unitk-base-en") == wanted).all()
        outputs = model.generate(again, max_len=1)
        assert outputs.sources == [[text] for text in WRITTEN] and outputs._repr_html_()


@pytest.mark.parametrize("texts", [None, 3, float("nan"), b"a", {"text": "a"}, ["a", None]])
def test_other_values_are_refused_as_texts(texts):
    with pytest.raises(UsageError, match="^texts: text [12] .*string"):
        unitk.embed(texts, checkpoint="unitk-base-en")


def test_a_sweep_takes_the_arguments_of_train(tmp_path):
    with pytest.raises(UsageError, match="train.*None"):
        unitk.sweep(over={"lr": [1, 2]}, save_dir=tmp_path / "s")
    with pytest.raises(UsageError, match="trials.*lr"):
        unitk.sweep(over={"lr": "1:2"}, save_dir=tmp_path / "s", train={"task": "lm", "data": "x"})


def test_a_server_stops_at_the_end_of_its_block():
    pytest.importorskip("uvicorn")
    with unitk.serve(port=0) as server:
        with urlopen(server.url, timeout=20) as page:
            assert page.status == 200
    with pytest.raises(OSError):
        urlopen(server.url, timeout=20)


def test_no_texts_have_no_answers(tmp_path):
    """As a loaded model answers none; options are checked all the same."""
    model = "unitk-base-en"
    assert unitk.generate([], checkpoint=model) == unitk.load(model).generate([]) == []
    assert unitk.predict([], checkpoint=model) == []
    assert len(unitk.embed([], checkpoint=model)) == len(unitk.load(model).embed([])) == 0
    assert unitk.search([], checkpoint=model, documents="docs.txt") == []
    assert len(unitk.generate([], checkpoint=model, num_samples=1, sampling=True)) == 1
    for wrong in ({"pool": "x"}, {"polo": "mean"}):
        with pytest.raises(UsageError, match="pool"):
            unitk.embed([], checkpoint=model, **wrong)
    with pytest.raises(UsageError, match="give texts"):
        unitk.generate([], checkpoint=model, output=tmp_path / "out.txt")
