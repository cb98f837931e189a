"""docs/masks.md and docs/pictures/ are what the code draws; the worked example is the matrix of the
specification."""

import importlib.util
import re
from pathlib import Path

import numpy as np
import pytest
from mask_tables import UNILM2_MASK, parse_mask

from unitk import registry

ROOT = Path(__file__).resolve().parents[1]
pytestmark = pytest.mark.usefixtures("own_registry")  # the page shows plug-ins, too


@pytest.fixture(scope="module")
def gallery():
    spec = importlib.util.spec_from_file_location("gallery", ROOT / "docs" / "gallery.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_code_draws(gallery):
    assert gallery.PAGE.read_text() == gallery.page(), "run python docs/gallery.py"


def test_the_pictures_are_what_the_code_draws(gallery):
    """Both sides without the name of matplotlib's version, and with numbers of two decimals."""

    def plain(text):
        text = re.sub(r"Matplotlib v[\d.]+", "", text)
        return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.2f}", text)

    there = {path.stem: path.read_text() for path in gallery.FOLDER.iterdir()}
    assert there.keys() == {one.name for one in gallery.SHOWN}
    for one in gallery.SHOWN[::8]:
        assert plain(there[one.name]) == plain(gallery.svg(one)), "run python docs/gallery.py"


@pytest.mark.slow
def test_all_pictures_are_what_the_code_draws(gallery):
    for one in gallery.SHOWN:
        found = (gallery.FOLDER / f"{one.name}.svg").read_text()
        assert found == gallery.svg(one), "run python docs/gallery.py"


def test_every_objective_is_in_it(gallery):
    shown = {re.search(r"--task (\w+)", one.words)[1] for one in gallery.PICTURES}
    places = {n: registry._places["task", n] for n in registry.names("task")}
    # fine-tuning for understanding has the slots of other objectives; GPT's formats are its own
    built_in = {
        name
        for name, at in places.items()
        if re.search(
            "unitk/(tasks/(?!understanding)|families/(?!translation|cloze|mtdnn|multi_label))", at
        )
    }
    assert shown == built_in | {"permutation_lm", "classify", "regress", "choice"}


def read(gallery, name):
    """What a picture's table says, by row, and its mask."""
    [one] = [one for one in gallery.PICTURES if one.name == name]
    table, mask, *_ = gallery.drawn(one).split("\n\n")
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines()}
    body = [line.split()[1:] for line in mask.splitlines()[-len(rows["token"]) :]]
    return rows, np.array([[cell == "█" for cell in row] for row in body])


def test_the_worked_example_is_the_matrix_of_the_specification(gallery):
    rows, drawn = read(gallery, "pmlm")
    names = [
        token if token.startswith("x") else token.strip("[]")[0] + pos
        for token, pos in zip(rows["token"], rows["pos"], strict=True)
    ]
    header, expected = parse_mask(UNILM2_MASK)
    order = [names.index(name) for name in header]
    assert (drawn[np.ix_(order, order)] == expected).all()


PERMUTED = """
        C  x1  x2  x3  x4
    C   1   .   .   .   .
   x1   1   1   1   1   1
   x2   1   .   1   1   .
   x3   1   .   .   1   .
   x4   1   .   1   1   1
   q3   1   .   .   .   .
   q2   1   .   .   1   .
   q4   1   .   1   1   .
   q1   1   .   1   1   1
"""


def test_the_order_3_2_4_1_is_the_papers_figure(gallery):
    """XLNet, figure 4: a content stream sees itself, a query stream does not, nobody sees one."""
    rows, drawn = read(gallery, "permutation_lm")
    assert rows["label"] == [*"." * 5, "x3", "x2", "x4", "x1"]
    assert rows["pos"] == [*"01234", *"3241"]
    _, expected = parse_mask(PERMUTED)
    assert (drawn[:, :5] == expected).all() and not drawn[:, 5:].any()
