"""Schedules at exact places: warm-up, middle, end, beyond."""

import math

import pytest

from unitk import registry
from unitk.errors import UsageError
from unitk.optim.schedules import Constant, Cosine, InverseSqrt, Linear


def test_linear():
    schedule = Linear(warmup=10)
    assert [schedule(step, 110) for step in (0, 5, 10, 60, 110, 500)] == [0, 0.5, 1, 0.5, 0, 0]
    assert [Linear()(step, 100) for step in (0, 25, 50, 100)] == [1, 0.75, 0.5, 0]


def test_linear_stays_at_its_floor():
    schedule = Linear(value=2.0, warmup=0.1, floor=0.25)
    assert schedule(5, 100) == 1.0
    assert schedule(10, 100) == 2.0
    assert schedule(55, 100) == pytest.approx(2 * 0.625)
    assert schedule(100, 100) == schedule(1000, 100) == 0.5


def test_cosine():
    schedule = Cosine(warmup=100, floor=0.1)
    assert schedule(50, 1100) == 0.5
    assert schedule(100, 1100) == 1
    assert schedule(350, 1100) == pytest.approx(0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2)
    assert schedule(600, 1100) == pytest.approx(0.55)
    assert schedule(1100, 1100) == schedule(9999, 1100) == pytest.approx(0.1)


def test_inverse_sqrt_needs_no_end():
    schedule = InverseSqrt(warmup=100, floor=0.05)
    assert [schedule(step, None) for step in (50, 100, 400, 10**6)] == [0.5, 1, 0.5, 0.05]
    assert [InverseSqrt()(step, None) for step in (0, 1, 4, 100)] == [1, 1, 0.5, 0.1]


def test_constant():
    assert [Constant(value=3, warmup=4)(step, None) for step in (0, 1, 4, 99)] == [0, 0.75, 3, 3]
    assert Constant(warmup=0.5)(25, 100) == 0.5


@pytest.mark.parametrize("name", registry.names("schedule"))
def test_warmup_below_one_is_a_share_of_the_run(name):
    schedule = registry.get("schedule", name)
    for step in range(0, 60, 7):
        assert schedule(warmup=0.25)(step, 40) == schedule(warmup=10)(step, 40)
    assert schedule(warmup=1)(1, 40) == 1


@pytest.mark.parametrize("schedule", [Linear(), Cosine(warmup=5), InverseSqrt(warmup=0.1)])
def test_an_end_that_is_needed_and_missing_is_told(schedule):
    with pytest.raises(UsageError, match="give --max-steps"):
        schedule(7, None)


def test_what_cannot_be_meant_is_told():
    with pytest.raises(UsageError, match="warmup must be at least 0, got -1"):
        Linear(warmup=-1)
    with pytest.raises(UsageError, match=r"floor must be in \[0, 1\], got 5"):
        Cosine(floor=5)
    with pytest.raises(TypeError):
        Constant(floor=0.1)


def test_a_warmup_longer_than_the_run_only_rises():
    assert Linear(warmup=1000)(100, 100) == 0.1
