"""Queries and titles: what a pair is, shares, what is too long."""

import numpy as np
import pytest

from unitk.families.ernie2.sentences import Queries


def runs(cut):
    """[(a, b, flag)] as token ranges."""
    first = np.stack([cut.starts, cut.stops], axis=1)
    return list(zip(first.tolist(), cut.seconds.tolist(), cut.flags.tolist(), strict=True))


def test_a_query_comes_with_a_title_that_was_clicked_shown_or_neither():
    rng = np.random.default_rng(0)
    sizes = np.array([3, 5, 2, 4, 1] * 200)  # queries with 2, 4, 1, 3 and no titles
    documents = np.append(0, sizes.cumsum())
    sentences = np.append(0, rng.integers(1, 9, sizes.sum()).cumsum())
    cut = Queries()(sentences, documents, 10**6, rng)
    number = dict(zip(sentences[:-1].tolist(), range(len(sentences) - 1), strict=True))
    rates = {count: np.zeros(3) for count in (3, 5, 2, 4)}
    for (a, b), (c, d), flag in runs(cut):
        query, title = number[a], number[c]
        assert sentences[query + 1] == b and sentences[title + 1] == d
        home, there = (np.searchsorted(documents, at, "right") - 1 for at in (query, title))
        assert query == documents[home] and title > documents[there]
        assert (home == there) == (flag < 2)
        assert flag == 2 or (title == query + 1) == (flag == 0)
        rates[sizes[home]][flag] += 1
    for count in (3, 4, 5):
        # a fifth of the other documents has no title
        assert rates[count] / rates[count].sum() == pytest.approx([0.36, 0.36, 0.28], abs=0.1)
    assert rates[2][1] == 0 and rates[2].min(where=[True, False, True], initial=99) > 50
    assert len(Queries()(sentences[:4], np.array([0, 3]), 10**6, rng).starts) <= 1
    assert Queries()(sentences, documents, 7, rng).lengths.max() == 7
