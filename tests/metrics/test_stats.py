"""Statistics by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unitk.metrics.stats import grams, repetition, stats, words


def test_figures_are_those_by_hand():
    source = "The cat sat on the mat. It slept."
    figures = stats(["The cat slept <q> on the mat!"], ["a dog"], [source]).figures
    assert figures["words"] == 6 and figures["reference_words"] == 2
    assert figures["source_words"] == 8 and figures["empty"] == 0
    # of "the cat slept on the mat": cat slept, slept on are new; of the trigrams all but the last
    assert figures["new1"] == 0
    assert figures["new2"] == pytest.approx(100 * 2 / 5)
    assert figures["new3"] == pytest.approx(100 * 3 / 4)
    assert figures["new4"] == pytest.approx(100)
    assert figures["reference_new1"] == figures["reference_new2"] == 100
    assert figures["reference_new3"] == 0  # there is none


def test_shares_are_over_all_texts_together():
    figures = stats(["a b", "c", " "], ["a", "b", "c"], ["a", "d", ""]).figures
    assert figures["new1"] == pytest.approx(100 * 2 / 3)
    assert figures["words"] == 1 and figures["empty"] == 1


def test_repetition_is_that_by_hand():
    # a b c, b c a, c a b, a b c, b c d: one of five occurred before
    assert repetition([words("A b c. a b c d")]) == pytest.approx(100 / 5)
    assert repetition([words("a b c"), words("a b c")]) == 0
    assert repetition([[]]) == 0


@given(st.text(alphabet="ab c", max_size=30))
def test_what_is_copied_is_not_new(text):
    figures = stats([text], [text], [f"b {text} c"]).figures
    assert all(figures[f"new{n}"] == 0 for n in (1, 2, 3, 4))
    once = len(grams(words(text), 3)) == len(set(grams(words(text), 3)))
    assert (figures["repeated"] == 0) is once
