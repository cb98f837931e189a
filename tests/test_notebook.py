"""What a notebook shows is well-formed, escaped, and says what the numbers say."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

import unitk
from unitk import notebook
from unitk.errors import DataError, UsageError
from unitk.notebook import OutputRow


def parsed(html):
    return ElementTree.fromstring(f"<div>{html.replace('&nbsp;', '')}</div>")


def test_tokens_are_as_green_as_they_are_probable():
    html = notebook.colour_tokens([" <b>", "c"], [math.log(0.5), 0.0])
    first, second = parsed(html).iter("span")
    assert (first.text, second.text) == ("<b>", "c")
    assert (first.get("title"), second.get("title")) == ("50.0%", "100.0%")
    assert "0.30" in first.get("style") and "0.60" in second.get("style")
    assert parsed(notebook.colour_tokens(["a"], [-math.inf])).find("span").get("title") == "0.0%"


def test_outputs_are_rows_and_fills_show_the_whole_text():
    whole = OutputRow("a b", -1.0, [" a", " b", notebook.END], [-0.1, -0.1, -0.1])
    fill = OutputRow("the a.", -2.0, ["a", notebook.END], [-0.1, -0.1])
    rows = list(parsed(notebook.outputs([("x", [whole, fill])])).iter("tr"))
    assert len(rows) == 3
    assert "the a." in "".join(rows[2].itertext())
    assert "".join(rows[1][1].itertext()).replace(" ", "") == f"ab{notebook.END}"
    assert [row[0].text for row in rows[1:]] == ["x", None]


@pytest.mark.slow
def test_a_table_is_as_wide_as_its_cell(browser, tmp_path):
    row = OutputRow("y" * 400, -1.0, ["y"] * 400, [-0.1] * 400)
    html = notebook.outputs([("x" * 400, [row]), ("שלום עולם", [row])])
    (tmp_path / "cell.html").write_text(f"<meta charset='utf-8'>{html}", encoding="utf-8")
    page = browser.new_page(viewport={"width": 500, "height": 500})
    page.goto(f"file://{tmp_path / 'cell.html'}")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()


def test_a_curve_falls_where_the_loss_falls():
    html = notebook.curves({"train": [(0, 4.0), (10, 2.0)], "valid": [(10, 3.0)]}, "a & b")
    lines = [one.get("points") for one in parsed(html).iter("polyline")]
    (left, top), (right, bottom) = (map(float, p.split(",")) for p in lines[0].split())
    assert left < right and top < bottom
    middle = float(lines[1].split(",")[1])
    assert middle == pytest.approx((top + bottom) / 2, abs=0.1)
    assert notebook.curves({}, "nothing") == ""
    assert "polyline" in notebook.curves({"flat": [(1, 2.0), (2, 2.0)]}, "x")


def test_a_model_says_what_it_is_and_can():
    model = unitk.load("unitk-base-en", task="glm_infill")
    assert re.match(
        r"Generator\(unitk-base-en, [\d.]+ M parameters, .*task glm_infill", repr(model)
    )
    assert model.facts["can"].split() == ["generate", "infill", "score", "embed"]
    cells = [one.text for one in parsed(model._repr_html_()).iter("td") if one.text]
    assert "unitk-base-en" in cells
    found = model.infill("The [MASK] sat.", nbest=2, beam=2)
    assert repr(found).startswith("[[Output('The ") and len(repr(found)) < 200
    assert len(list(parsed(found._repr_html_()).iter("tr"))) == 3


def test_drawings_are_a_table_and_an_explorable_mask():
    found = unitk.show("a b c d e f", task="mass")
    assert repr(found).count("token") == 2  # the two towers
    assert repr(found[0]).startswith("Drawing(mass, tower enc,") and len(repr(found[0])) < 60
    [frame] = parsed(found._repr_html_()).iter("iframe")
    assert "<!doctype html>" in frame.get("srcdoc") and frame.get("sandbox") == "allow-scripts"


def test_a_run_shows_its_curve(tmp_path, toy_data):
    how = {"task": "lm", "arch": "gpt2_tiny", "precision": "fp32", "log_every": 1, "max_steps": 3}
    logged = list(unitk.train(**how, data=toy_data / "text", save_dir=tmp_path / "r"))
    run = unitk.open_run(tmp_path / "r")
    assert run.events == logged and run.options["arch"] == "gpt2_tiny"
    assert "update 3" in repr(run) and f"valid/loss {logged[-1]['valid/loss']:.4g}" in repr(run)
    assert len(list(parsed(run._repr_html_()).iter("polyline"))) == 2
    assert run.load().task.name == "lm"
    with pytest.raises(DataError, match="config.yaml"):
        unitk.open_run(tmp_path)


@pytest.mark.parametrize("text", ["", "task: lm\n", "- task\n", "task: [lm]\narch\n"])
def test_an_edited_config_of_a_run_is_named(tmp_path, text):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises((DataError, UsageError), match=str(tmp_path / "config.yaml")):
        repr(unitk.open_run(tmp_path))
