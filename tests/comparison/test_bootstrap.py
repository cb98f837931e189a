"""Intervals over seeds and items: they shrink with both, and cover what they should."""

import numpy as np
import pytest

from unitk.comparison.bootstrap import difference, interval
from unitk.errors import UsageError

rng = np.random.default_rng(0)


def test_values_are_means_and_ratios():
    scores, weights = [np.array([1.0, 3.0]), np.array([2.0, 6.0])], np.array([2.0, 4.0])
    assert interval(scores).value == 3.0
    assert interval(scores, weights).value == 6.0 / 6.0
    assert difference(scores, [np.array([1.0, 1.0])]).value == 2.0


def test_one_run_varies_with_its_items_alone():
    """As the normal approximation says."""
    scores = rng.normal(5, 2, 400)
    found = interval([scores])
    error = scores.std() / 20
    assert found.low == pytest.approx(found.value - 1.96 * error, abs=0.02)
    assert found.high == pytest.approx(found.value + 1.96 * error, abs=0.02)
    assert (found.seeds, found.items) == (1, 400)


def test_runs_that_differ_widen_the_interval():
    items = rng.normal(0, 1, 300)
    alike, apart = ([items + shift for shift in shifts] for shifts in ((0, 0, 0), (-1, 0, 1)))
    narrow, wide = interval(alike), interval(apart)
    assert wide.value == pytest.approx(narrow.value)
    assert wide.high - wide.low > 4 * (narrow.high - narrow.low)


def test_a_difference_on_the_same_items_is_narrow():
    """What items have in common falls out."""
    items = rng.normal(0, 5, 200)
    found = difference([items + 0.5 + rng.normal(0, 0.1, 200)], [items])
    assert 0.45 < found.low < 0.5 < found.high < 0.55
    alone = interval([items])
    assert alone.high - alone.low > 10 * (found.high - found.low)
    same = difference([items], [items])
    assert (same.value, same.low, same.high) == (0, 0, 0)


def test_equal_models_are_not_told_apart():
    """Of 40 differences between models that do not differ, few intervals leave out 0."""
    excluded = 0
    for _ in range(40):
        one, other = ([row for row in rng.normal(0, 1, (3, 40))] for _ in range(2))
        found = difference(one, other)
        excluded += not found.low <= 0 <= found.high
    assert excluded <= 6


def test_draws_are_a_function_of_the_scores():
    scores = [rng.normal(0, 1, 30) for _ in range(3)]
    assert interval(scores) == interval(scores)


def test_one_item_has_no_interval():
    assert np.isnan(interval([np.ones(1)]).low)
    with pytest.raises(UsageError, match="30 .* 20 "):
        difference([np.ones(30)], [np.ones(20)])
