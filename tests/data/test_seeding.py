"""Generators seeded together draw what numpy's own do."""

import numpy as np
import pytest

from unitk.data.plan import generators

LARGE = 1 << 32


@pytest.mark.parametrize("seed, epoch", [(0, 0), (1, 5), (LARGE - 1, LARGE - 1), (LARGE, 2)])
@pytest.mark.parametrize("more", [0, 1])
def test_generators_are_those_of_numpy(seed, epoch, more):
    ids = np.array([0, 1, 17, LARGE - 1, *np.random.default_rng(0).integers(0, LARGE, 50)])
    theirs = [np.random.default_rng([seed, epoch, int(i), more][: 3 + more]) for i in ids]
    ours = generators(seed, epoch, ids, more)
    assert [one.bit_generator.state for one in ours] == [one.bit_generator.state for one in theirs]


def test_numbers_of_several_words_are_seeded_as_numpy_does():
    ids = np.array([3, LARGE, 5 * LARGE + 7])
    drawn = [one.random() for one in generators(1, 2, ids)]
    assert drawn == [np.random.default_rng([1, 2, int(i)]).random() for i in ids]


def test_no_numbers_have_no_generators():
    assert generators(1, 0, np.empty(0, np.int64)) == []
