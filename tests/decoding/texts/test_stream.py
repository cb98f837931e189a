"""A stream is the text that `generate` finds, piece by piece; who leaves it ends the work."""

from __future__ import annotations

import threading

import pytest

import unitk
from unitk.decoding.texts.stream import pieces
from unitk.errors import UsageError


@pytest.fixture(scope="module")
def model():
    return unitk.load("unitk-base-en", task="lm")


@pytest.mark.parametrize("how", [{"beam": 1}, {"sampling": True, "sampling_topp": 0.9}])
def test_pieces_make_up_the_output(how, model):
    how |= {"max_len": 12, "nbest": 1, "best_of": 1, "sentences": 0}
    found = list(model.stream("It was a cold night", **how))
    [[whole]] = model.generate("It was a cold night", **how)
    assert "".join(found) == whole.text
    assert len(found) > 6 and all(found)


def test_a_prefix_is_the_first_piece(model):
    found = list(model.stream("It was", prefix="a cold", max_len=6, sampling=True))
    assert "".join(found).startswith("a cold")


def test_leaving_ends_the_work(model):
    before = threading.active_count()
    for _ in model.stream("It was", max_len=2000, sampling=True, min_len=2000):
        break
    assert threading.active_count() == before


@pytest.mark.parametrize("how", [{"beam": 3, "sampling": False}, {"nbest": 2}])
def test_one_output_is_written(how, model):
    with pytest.raises(UsageError, match="nbest"):
        model.stream("It was", **how)


def test_half_a_character_is_held_back():
    def work(tell):
        for text in ("a", "a\ufffd", "a\u00e9", "aX"):
            tell(text)
        return "a\u00e9b"

    assert list(pieces(work)) == ["a", "\u00e9", "b"]


def test_an_error_of_the_work_is_the_readers():
    def work(tell):
        tell("a")
        raise ValueError("no")

    found = pieces(work)
    assert next(found) == "a"
    with pytest.raises(ValueError, match="no"):
        next(found)
