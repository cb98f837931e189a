"""The notebooks of docs/notebooks run, and have the outputs of a run stored."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"


@pytest.fixture
def notebooks(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    import notebooks

    return notebooks


def test_outputs_are_stored(notebooks):
    assert notebooks.names() == ["compare-checkpoints", "first-steps", "own-objective"]
    for name in notebooks.names():
        text = (notebooks.FOLDER / f"{name}.ipynb").read_text()
        cells = [one for one in json.loads(text)["cells"] if one["cell_type"] == "code"]
        assert sum(bool(one["outputs"]) for one in cells) >= 5, name
        assert "Traceback" not in text and sys.prefix not in text
        page = notebooks.page(name)
        assert page.startswith("# ") and page.count('<div class="output">') >= 2


def test_what_is_stored_has_no_traces_of_a_session(notebooks):
    result = {"output_type": "execute_result", "execution_count": 3, "data": {"text/plain": ["1"]}}
    bar = {"output_type": "display_data", "data": {"text/plain": "5 0.1\n", "text/html": "<pre>"}}
    noise = {"output_type": "stream", "name": "stderr", "text": "warning"}
    cell = {"cell_type": "code", "source": "1", "outputs": [noise, bar, result], "metadata": {}}
    found = notebooks.plain({"cells": [cell], "metadata": {"kernelspec": {"name": "mine"}}})
    stream, kept = found["cells"][0]["outputs"]
    assert (stream["name"], stream["text"]) == ("stdout", "5 0.1\n")
    assert kept["data"] == {"text/plain": "1"} and kept["execution_count"] is None
    assert found["metadata"]["kernelspec"]["name"] == "python3"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["compare-checkpoints", "first-steps", "own-objective"])
def test_a_notebook_runs(name, notebooks):
    pytest.importorskip("nbclient")
    if find_spec("ipykernel") is None:  # imported, it would make a notebook of these tests
        pytest.skip("ipykernel is not installed")
    found = notebooks.execute(name)
    stored = json.loads((notebooks.FOLDER / f"{name}.ipynb").read_text())
    cells = [["".join(one["source"]) for one in made["cells"]] for made in (found, stored)]
    assert cells[0] == cells[1]
