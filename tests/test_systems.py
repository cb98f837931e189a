"""The table of docs/systems.md is what the registry says, and every system has a section."""

import importlib
import importlib.util
from pathlib import Path

import pytest

from unitk.interop.convert import FORMATS

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def systems():
    spec = importlib.util.spec_from_file_location("systems", ROOT / "docs" / "systems.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_made_of_the_registry(systems):
    [there] = systems.TABLE.findall(systems.PAGE.read_text())
    assert there == systems.table(), "run python docs/systems.py"


def test_cells_are_what_tasks_can_do(systems):
    rows = {row[1].strip("`"): row for row in map(systems.row, systems.names())}
    assert rows["mlm"][2:6] == ["yes", "labels", "fills", "pseudo-log-likelihood"]
    assert rows["t5"][2:6] == ["yes", "pairs, labels", "words, fills", "log-probability"]
    assert rows["seq2seq"][2] == "" and rows["optimus"][5] == "bound"
    assert rows["albert"][6] == "albert" and rows["pmlm"][6] == "unilm"
    # what a format writes it reads: the tests of unitk/interop take all of these both ways
    assert all(hasattr(importlib.import_module(place), "write") for place in FORMATS.values())
