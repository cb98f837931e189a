"""docs/masks.md is what the code draws; its worked example is the matrix of the specification."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest

from unitk import registry

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def gallery():
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "docs" / "gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_code_draws(gallery):
    assert gallery.PAGE.read_text() == gallery.page(), "run python docs/gallery.py"


def test_every_objective_is_in_it(gallery):
    shown = {re.search(r"--task (\w+)", one.words)[1] for one in gallery.PICTURES}
    built_in = {n for n in registry.names("task") if "unitk/tasks" in registry.place("task", n)}
    assert shown == built_in


EXPECTED = """
       x1  M2  P2  x2  x3  M4  P4  x4  M5  P5  x5  x6
   x1   1   1   .   .   1   1   .   .   1   .   .   1
   M2   1   1   .   .   1   1   .   .   1   .   .   1
   P2   1   1   1   .   1   1   .   1   1   .   1   1
   x2   1   1   .   1   1   1   .   1   1   .   1   1
   x3   1   1   .   .   1   1   .   .   1   .   .   1
   M4   1   1   .   .   1   1   .   .   1   .   .   1
   P4   1   1   .   .   1   1   1   .   1   1   .   1
   x4   1   1   .   .   1   1   .   1   1   .   1   1
   M5   1   1   .   .   1   1   .   .   1   .   .   1
   P5   1   1   .   .   1   1   1   .   1   1   .   1
   x5   1   1   .   .   1   1   .   1   1   .   1   1
   x6   1   1   .   .   1   1   .   .   1   .   .   1
"""


def test_the_worked_example_is_the_matrix_of_the_specification(gallery):
    [worked] = [one for one in gallery.PICTURES if one.name == "pmlm"]
    table, mask, *_ = gallery.drawn(worked).split("\n\n")
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines()}
    names = [
        token if token.startswith("x") else token.strip("[]")[0] + pos
        for token, pos in zip(rows["token"], rows["pos"], strict=True)
    ]
    body = [line.split()[1:] for line in mask.splitlines()[-len(names) :]]
    drawn = np.array([[cell == "█" for cell in row] for row in body])
    header, *lines = (line.split() for line in EXPECTED.split("\n")[1:-1])
    order = [names.index(name) for name in header]
    expected = np.array([[cell == "1" for cell in line[1:]] for line in lines])
    assert (drawn[np.ix_(order, order)] == expected).all()
