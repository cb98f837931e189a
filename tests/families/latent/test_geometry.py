"""Lines and arcs between latents are those computed by hand."""

import numpy as np
import pytest

from unitk.errors import UsageError
from unitk.families.latent.space.geometry import (
    find_nearest,
    law,
    lerp,
    move_along,
    path,
    principal,
    slerp,
    solve_analogy,
)

RNG = np.random.default_rng(0)
EAST, NORTH = np.array([[1, 0], [0, 1]], np.float32)


def some(*shape):
    return RNG.standard_normal(shape, np.float32)


def test_lerp_is_that_by_hand():
    assert lerp(EAST, NORTH, 0.25).tolist() == [0.75, 0.25]


def test_slerp_is_that_by_hand():
    assert slerp(EAST, NORTH, 1 / 3) == pytest.approx([np.sqrt(3) / 2, 0.5])
    assert slerp(2 * EAST, 2 * NORTH, 0.5) == pytest.approx([np.sqrt(2)] * 2)


def test_an_arc_keeps_the_distance_from_the_origin_and_goes_at_one_speed():
    a, b = some(2, 5)
    b *= np.linalg.norm(a) / np.linalg.norm(b)
    shares, points = path(a, b, 9, "slerp")
    assert shares.tolist() == [i / 8 for i in range(9)]
    assert np.linalg.norm(points, axis=1) == pytest.approx([np.linalg.norm(a)] * 9, rel=1e-5)
    steps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    assert steps == pytest.approx([steps[0]] * 8, rel=1e-4)


def test_the_arc_between_points_of_one_direction_is_the_line():
    a = some(4)
    assert slerp(a, 3 * a, 0.5) == pytest.approx(2 * a)
    assert slerp(0 * a, a, 0.5) == pytest.approx(a / 2)
    with pytest.raises(UsageError, match="opposite"):
        slerp(a, -a, 0.5)


@pytest.mark.parametrize("how", ["lerp", "slerp"])
def test_a_path_has_both_ends_exactly(how):
    a, b = some(2, 6)
    _, points = path(a, b, 4, how)
    assert points.dtype == np.float32 and points.shape == (4, 6)
    assert (points[0] == a).all() and (points[-1] == b).all()
    assert path(a, b, 2, how)[1].tolist() == [a.tolist(), b.tolist()]


def test_an_analogy_is_that_by_hand():
    a, b, c = some(3, 4)
    assert (solve_analogy(a, a, c, 1.0) == c).all() and (solve_analogy(a, b, c, 0.0) == c).all()
    assert solve_analogy(a, b, a, 1.0) == pytest.approx(b, abs=1e-6)
    assert solve_analogy(EAST, NORTH, EAST + NORTH, 2.0).tolist() == [-1, 3]


def test_a_dimension_moves_alone():
    z = some(4)
    points = move_along(z, 2, np.array([-1.0, 0.5]))
    assert points[:, 2].tolist() == [-1, 0.5]
    assert (np.delete(points, 2, axis=1) == np.delete(z, 2)).all()


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_the_nearest_are_those_of_plain_loops(metric):
    query, points = some(3), some(20, 3)
    far = [
        np.linalg.norm(p - query)
        if metric == "euclidean"
        else 1 - p @ query / (np.linalg.norm(p) * np.linalg.norm(query))
        for p in points
    ]
    rows, found = find_nearest(query, points, 5, metric)
    assert rows.tolist() == np.argsort(far)[:5].tolist()
    assert found == pytest.approx(np.sort(far)[:5], abs=1e-6)


@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_a_point_is_its_own_nearest_and_equal_ones_keep_their_order(metric):
    points = some(6, 3)
    points[4] = points[1]
    rows, far = find_nearest(points[1], points, 9, metric)
    assert rows[:2].tolist() == [1, 4] and far[:2].tolist() == [0, 0]
    assert len(rows) == 6


def test_main_axes_are_those_of_the_covariance():
    points = some(50, 4) @ some(4, 4)
    flat, share = principal(points, 2)
    values, vectors = np.linalg.eigh(np.cov(points.T))
    for axis, which in enumerate((-1, -2)):
        by_hand = (points - points.mean(0)) @ vectors[:, which]
        assert np.abs(flat[:, axis]) == pytest.approx(np.abs(by_hand), abs=1e-4)
        assert share[axis] == pytest.approx(values[which] / values.sum(), rel=1e-4)


def test_main_axes_are_those_by_hand():
    flat, share = principal(np.array([[3, 1], [-3, 1], [0, 2], [0, 0]], np.float32), 2)
    assert flat == pytest.approx(np.array([[3, 0], [-3, 0], [0, 1], [0, -1]]), abs=1e-6)
    assert share == pytest.approx([0.9, 0.1])


def test_the_law_of_a_mixture_is_that_of_its_draws():
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=(5, 3)) + 2, rng.random((5, 3)) + 0.1
    drawn = (mean[:, None] + std[:, None] * rng.standard_normal((5, 200_000, 3))).reshape(-1, 3)
    middle, covariance = law(mean, std)
    assert middle == pytest.approx(drawn.mean(axis=0), abs=0.02)
    assert covariance == pytest.approx(np.cov(drawn.T), abs=0.03)
    one = law(mean[:1, :1], std[:1, :1])
    assert one[1] == pytest.approx(std[:1, :1] ** 2)
