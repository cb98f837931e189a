"""The table of docs/systems.md is what the registry says, and every system has a section."""

import importlib
import importlib.util
import re
from pathlib import Path

import pytest

from unitk import registry
from unitk.options import config

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


SURVEY = (
    *("ALBERT", "BART", "BERT", "ELMo", "ERNIE 1.0", "ERNIE 2.0", "GLM", "GPT", "GPT-2", "MASS"),
    *("Optimus", "RoBERTa", "SiATL", "SpanBERT", "T5", "THU-ERNIE", "ULMFiT", "UniLM", "UniLMv2"),
    "XLNet",
)
"""The systems of the survey that unitk follows."""


def test_every_system_of_the_survey_has_its_row(systems):
    rows = {row[1]: row[0].split(", ") for row in map(systems.row, systems.names())}
    named = [system for some in rows.values() for system in some]
    assert {*SURVEY} <= {*named}
    assert rows["`thu_ernie`"] == ["THU-ERNIE"] and "ULMFiT" in rows["`lm`"]


ROW = re.compile(r"^\| (`--task[^|]*) \| ([^| ]*|[\d., ]*) \|", re.M)
WORDS = {"on": True, "off": False, "none": ""}


def value(text):
    """A default as the page has it: a word, a number, or numbers with commas."""
    parts = text.strip("`").split(",")
    numbers = [float(part) for part in parts if re.fullmatch(r"[\d.]+", part)]
    if len(numbers) < len(parts):
        return WORDS.get(text, text.strip("`"))
    return tuple(numbers) if len(parts) > 1 else numbers[0]


def test_defaults_are_those_of_the_tasks(systems):
    seen = 0
    for section in systems.PAGE.read_text().split("\n## "):
        if named := re.search(r"unitk train --task (\w+)", section):
            fields = config.options(registry.get("task", named[1]).Config)
            there = {f"--task.{field.flag[2:]}": field.default for field in fields}
            for flags, cell in ROW.findall(section):
                flags = re.findall(r"`(--[\w.-]+)`", flags)
                cells = cell.split(", ") if len(flags) > 1 else [cell]
                assert [there[flag] for flag in flags] == [value(one) for one in cells], flags
                seen += len(flags)
    assert seen > 30


def test_cells_are_what_tasks_can_do(systems):
    rows = {row[1].strip("`"): row for row in map(systems.row, systems.names())}
    assert rows["mlm"][2:6] == ["yes", "labels", "fills", "pseudo-log-likelihood"]
    assert rows["t5"][2:6] == ["yes", "pairs, labels", "words, fills", "log-probability"]
    assert rows["seq2seq"][2] == "" and rows["optimus"][5] == "bound"
    assert rows["albert"][6] == "albert" and rows["pmlm"][6] == "qwen3, unilm"
