"""Search by truths: it is a sort of all cosines, whatever the blocks."""

import numpy as np
import pytest

from unitk.families.retrieval.nearest import rank_nearest


@pytest.mark.parametrize("size", [1, 7, 64, 1000])
@pytest.mark.parametrize("most", [1, 5, 300])
def test_found_are_the_first_of_all_sorted(size, most):
    rng = np.random.default_rng(0)
    texts = rng.normal(size=(200, 6)).astype(np.float32)
    texts[50:90] = texts[10]  # equally near
    texts[[3, 120]] = 0  # empty
    queries = rng.normal(size=(9, 6)).astype(np.float32)
    queries[0] = 2 * texts[10]
    blocks = (texts[at : at + size] for at in range(0, 200, size))
    scores, numbers = rank_nearest(queries, blocks, most)
    norms = np.linalg.norm(texts, axis=1)
    cosines = queries @ texts.T / np.linalg.norm(queries, axis=1)[:, None]
    cosines = np.where(norms > 0, cosines / np.where(norms > 0, norms, 1), -np.inf)
    assert numbers.shape == (9, min(most, 200))
    wanted = np.sort(cosines, axis=1)[:, ::-1][:, :most]
    assert np.allclose(scores, wanted, rtol=1e-4, atol=1e-5)
    if most >= 5:
        assert numbers[0, :5].tolist() == [10, 50, 51, 52, 53]  # of equal ones the first
    if most == 300:
        assert {*numbers[0, -2:].tolist()} == {3, 120}
        assert (np.sort(numbers, axis=1) == np.arange(200)).all()


def test_an_empty_query_is_near_to_nothing():
    """Whatever is beside it, and in whatever block."""
    texts = np.eye(3, dtype=np.float32)
    scores, _ = rank_nearest(np.array([[0, 0, 0], [0, 1, 0]]), (texts[:2], texts[2:]), 2)
    assert np.isinf(scores[0]).all() and scores[1].tolist() == [1, 0]
