"""Span laws by frequency and by invariants, on fixed seeds."""

import numpy as np
import pytest

from unitk.spans import (
    long_span,
    most_spans,
    poisson_law,
    poisson_lengths,
    poisson_spans,
    scatter,
    sentence_spans,
)

NO_WALLS = np.empty(0, np.int64)


def test_poisson_law_is_truncated_and_normalised():
    law = np.diff(poisson_law(3.0, 39), prepend=0)
    # P(1..5) and the mean as measured in GLM's sampler
    assert law[:5] == pytest.approx([0.157, 0.236, 0.236, 0.177, 0.106], abs=5e-4)
    assert law @ np.arange(1, 40) == pytest.approx(3.157, abs=5e-4)
    assert law.sum() == pytest.approx(1)


def test_poisson_lengths_follow_the_law_and_reach_the_budget():
    rng = np.random.default_rng(0)
    drawn = []
    for _ in range(2000):
        lengths = poisson_lengths(76, 3.0, 39, rng)
        assert 76 <= lengths.sum() <= 76 + lengths[-1] - 1
        drawn.append(lengths)
    # the last length of a draw is biased by the stopping rule, the first is not
    firsts = np.array([lengths[0] for lengths in drawn])
    assert firsts.mean() == pytest.approx(3.157, abs=0.1)
    counts = np.array([len(lengths) for lengths in drawn])
    assert counts.mean() == pytest.approx(24.6, abs=0.3)
    assert counts.max() <= most_spans(76, 3.0, 39)
    assert len(poisson_lengths(0, 3.0, 39, rng)) == 0


def test_scatter_is_uniform_over_all_placements():
    rng = np.random.default_rng(0)
    seen: dict[tuple[int, ...], int] = {}
    for _ in range(6000):
        spans = scatter(np.array([1, 2]), 6, rng)
        seen[tuple(spans[:, 0])] = seen.get(tuple(spans[:, 0]), 0) + 1
    # starts (a, b) with b >= a + 2 and b + 2 <= 6: i.i.d. draws, so equal ones weigh half
    assert set(seen) == {(0, 2), (0, 3), (0, 4), (1, 3), (1, 4), (2, 4)}
    weight = {key: (1 if key[1] - key[0] == 2 else 2) for key in seen}
    for key, count in seen.items():
        assert count / 6000 == pytest.approx(weight[key] / 9, abs=0.02)


def test_scatter_refuses_what_does_not_fit():
    with pytest.raises(ValueError, match="do not fit"):
        scatter(np.array([3, 3]), 6, np.random.default_rng(0))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 30, 512])
def test_poisson_spans_hold_their_promises(size):
    rng = np.random.default_rng(size)
    for _ in range(200):
        budget = max(1, int(0.15 * size))
        most = int(min(most_spans(budget, 3.0, 39), size))
        spans = poisson_spans(size, budget, 3.0, 39, most, NO_WALLS, rng)
        assert 0 <= spans[0, 0] and spans[-1, 1] <= size and len(spans) <= most
        assert (spans[1:, 0] > spans[:-1, 1]).all(), "a word stands between spans"
        assert (spans[:, 1] - spans[:, 0]).sum() >= min(budget, size)


def test_no_span_covers_a_wall():
    rng = np.random.default_rng(0)
    walls = np.array([10, 20, 21])
    hidden = np.zeros(30)
    for _ in range(500):
        for a, b in poisson_spans(30, 5, 3.0, 39, 20, walls, rng):
            hidden[a:b] += 1
    assert (hidden[walls] == 0).all() and (np.delete(hidden, walls) > 0).all()


def test_sentences_are_whole():
    ends = np.array([0, 0, 1, 0, 1, 0], bool)
    rng = np.random.default_rng(0)
    whole = {(0, 3), (3, 5), (5, 6)}
    seen = set()
    for _ in range(100):
        spans = sentence_spans(ends, 1, 9, rng)
        seen |= {tuple(span) for span in spans.tolist()}
        assert len(spans) == 1
    assert seen == whole
    assert {tuple(s) for s in sentence_spans(ends, 6, 9, rng).tolist()} == whole
    assert len(sentence_spans(ends, 6, 2, rng)) == 2


def test_long_span_is_uniform_from_half_to_all():
    rng = np.random.default_rng(0)
    spans = np.concatenate([long_span(100, 0.5, rng) for _ in range(4000)])
    size = spans[:, 1] - spans[:, 0]
    assert size.min() == 50 and size.max() == 100 and size.mean() == pytest.approx(75, abs=1)
    assert spans.min() >= 0 and spans.max() <= 100
    assert long_span(1, 0.5, rng).tolist() == [[0, 1]]
