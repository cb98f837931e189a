"""Schedules at exact places: warm-up, middle, end, beyond."""

import math

import pytest

from unitk import registry
from unitk.errors import UsageError
from unitk.optim.schedules import (
    Constant,
    Cosine,
    Cyclical,
    Exponential,
    InverseSqrt,
    Linear,
    LinearFromStart,
    Slanted,
    Wsd,
)


def test_linear_rises_and_falls():
    schedule = Linear(warmup=10)
    assert [schedule(step, 110) for step in (0, 5, 10, 60, 110, 500)] == [0, 0.5, 1, 0.5, 0, 0]
    assert [Linear()(step, 100) for step in (0, 25, 50, 100)] == [1, 0.75, 0.5, 0]


def test_linear_stays_at_its_floor():
    schedule = Linear(value=2.0, warmup=0.1, floor=0.25)
    assert schedule(5, 100) == 1.0
    assert schedule(10, 100) == 2.0
    assert schedule(55, 100) == pytest.approx(2 * 0.625)
    assert schedule(100, 100) == schedule(1000, 100) == 0.5


def test_linear_from_start_is_berts():
    """Rates of BERT's code at a peak of 1e-4: 1 % is gone when the warm-up of 1 % ends."""
    schedule = LinearFromStart(value=1e-4, warmup=10_000)
    found = [schedule(step, 1_000_000) for step in (0, 5000, 9999, 10_000, 500_000, 1_000_000)]
    assert found == pytest.approx([0, 5e-5, 9.999e-5, 9.9e-5, 5e-5, 0], abs=1e-18)
    assert [LinearFromStart()(step, 8) for step in range(10)] == [Linear()(s, 8) for s in range(10)]


def test_cosine_falls_to_its_floor():
    schedule = Cosine(warmup=100, floor=0.1)
    assert schedule(50, 1100) == 0.5
    assert schedule(100, 1100) == 1
    assert schedule(350, 1100) == pytest.approx(0.1 + 0.9 * (1 + math.sqrt(0.5)) / 2)
    assert schedule(600, 1100) == pytest.approx(0.55)
    assert schedule(1100, 1100) == schedule(9999, 1100) == pytest.approx(0.1)


def test_wsd_is_flat_and_then_a_line():
    schedule = Wsd(warmup=10)
    assert [schedule(step, 100) for step in (0, 5, 10, 50, 80)] == [0, 0.5, 1, 1, 1]
    assert [schedule(step, 100) for step in (85, 90, 100, 999)] == [0.75, 0.5, 0, 0]
    assert Wsd(decay=40, floor=0.5, value=4)(80, 100) == 4 * 0.75
    # a decay that is longer than what follows the warm-up begins where that ends
    assert [Wsd(decay=90, warmup=20)(step, 100) for step in (20, 60)] == [1, 0.5]


def test_inverse_sqrt_needs_no_end():
    schedule = InverseSqrt(warmup=100, floor=0.05)
    assert [schedule(step, None) for step in (50, 100, 400, 10**6)] == [0.5, 1, 0.5, 0.05]
    assert [InverseSqrt()(step, None) for step in (0, 1, 4, 100)] == [1, 1, 0.5, 0.1]


def test_constant_keeps_its_value_after_the_warm_up():
    assert [Constant(value=3, warmup=4)(step, None) for step in (0, 1, 4, 99)] == [0, 0.75, 3, 3]
    assert Constant(warmup=0.5)(25, 100) == 0.5


@pytest.mark.parametrize("kind", [Linear, LinearFromStart, Cosine, Exponential, Wsd, InverseSqrt])
@pytest.mark.parametrize("warmup", [0, 0.06, 1])
def test_the_only_update_of_a_run_has_the_whole_value(kind, warmup):
    """Its rate would be 0 at the end of most schedules, and the run would learn nothing."""
    schedule = kind(value=3, warmup=warmup)
    assert schedule(1, 1) == 3
    if kind is not InverseSqrt:  # which has no end
        assert schedule(2, 1) == schedule(2, 2) == schedule(9, 2)


def table(total, cycles, zero, ramp):
    """The value of each update, as Optimus' code writes them: specs of `frange_cycle_zero_linear`.

    Into a list of ones, cycle by cycle: zeros, then a value that grows from 0 until it passes 1.
    """
    values, period = [1.0] * total, total / cycles
    for cycle in range(cycles):
        i, value = 0, 0.0
        while i < period * zero and int(i + cycle * period) < total:
            values[int(i + cycle * period)] = 0.0
            i += 1
        while value <= 1 and ramp and int(i + cycle * period) < total:
            values[int(i + cycle * period)] = value
            value += 1 / (period * ramp)
            i += 1
    return values


@pytest.mark.parametrize("total", [7, 40, 97, 1000, 5085])
@pytest.mark.parametrize("cycles", [1, 4, 10])
@pytest.mark.parametrize(("zero", "ramp"), [(0.5, 0.25), (0.25, 0.25), (0, 0.5), (0.3, 0.5)])
def test_cyclical_is_the_official_table(total, cycles, zero, ramp):
    schedule = Cyclical(cycles=cycles, zero=zero, ramp=ramp)
    values = [schedule(step, total) for step in range(1, total + 1)]
    if total >= 4 * cycles:
        assert values == pytest.approx(table(total, cycles, zero, ramp), abs=1e-8)
    assert min(values) >= 0 and max(values) <= 1
    assert schedule(total + 5, total) == 1


def test_cyclical_is_that_by_hand():
    schedule = Cyclical(value=2, cycles=1)  # of 40 updates 20 at 0, 10 rising from 0, 10 at 2
    values = [schedule(step, 40) for step in range(1, 41)]
    assert values == pytest.approx([0] * 20 + [0.2 * i for i in range(10)] + [2] * 10)


RISING = [name for name in registry.names("schedule") if name != "cyclical"]


@pytest.mark.parametrize("name", RISING)
def test_warmup_below_one_is_a_share_of_the_run(name):
    schedule = registry.get("schedule", name)
    for step in range(0, 60, 7):
        assert schedule(warmup=0.25)(step, 40) == schedule(warmup=10)(step, 40)
    peak = 39 / 40 if name == "linear_from_start" else 1
    assert schedule(warmup=1)(1, 40) == peak


@pytest.mark.parametrize(
    "schedule", [Linear(), Wsd(), Cosine(warmup=5), InverseSqrt(warmup=0.1), Cyclical()]
)
def test_an_end_that_is_needed_and_missing_is_told(schedule):
    with pytest.raises(UsageError, match="give --max-steps"):
        schedule(7, None)


def test_what_cannot_be_meant_is_told():
    with pytest.raises(UsageError, match="warmup .*finite"):
        Linear(warmup=math.inf)
    with pytest.raises(UsageError, match="warmup .*at least 0.*-1"):
        Linear(warmup=-1)
    with pytest.raises(UsageError, match="decay .*above 0.*, got 0"):
        Wsd(decay=0)
    with pytest.raises(UsageError, match=r"floor must be.* \[0, 1\], got 5"):
        Cosine(floor=5)
    with pytest.raises(UsageError, match="zero .*ramp.*got 0.9 and 0.2"):
        Cyclical(zero=0.9, ramp=0.2)
    with pytest.raises(UsageError, match="cycles .*at least 1"):
        Cyclical(cycles=0)
    with pytest.raises(TypeError):
        Constant(floor=0.1)


def test_a_warmup_longer_than_the_run_only_rises():
    assert Linear(warmup=1000)(100, 100) == 0.1


def test_the_slanted_triangle_is_that_of_the_paper():
    """Howard and Ruder 2018, equation 3, with a cut of 0.1, a ratio of 32 and a rate of 0.01."""
    schedule = Slanted(value=0.01)
    expected = {0: 0.0003125, 50: 0.00515625, 100: 0.01, 550: 0.00515625, 1000: 0.0003125}
    assert {step: schedule(step, 1000) for step in expected} == pytest.approx(expected)
    assert schedule(2000, 1000) == pytest.approx(0.0003125)
    # the cut is a whole number, and the way down is nine times as long
    assert [schedule(step, 1005) for step in (100, 550, 1000, 1005)] == pytest.approx(
        [0.01, 0.00515625, 0.0003125, 0.0003125]
    )
    with pytest.raises(UsageError, match="ratio .*at least 1, got 0.5"):
        Slanted(ratio=0.5)


def test_the_exponential_has_the_same_factor_everywhere():
    """SiATL's weight falls from exp(-1.6) to exp(-2.3) over 15 epochs."""
    schedule = Exponential(value=math.exp(-1.6), floor=math.exp(-0.7))
    expected = [math.exp(-1.6 - 0.7 * epoch / 14) for epoch in range(15)]
    assert [schedule(epoch, 14) for epoch in range(15)] == pytest.approx(expected)
    with pytest.raises(UsageError, match=r"floor must be.* \(0, 1\], got 0"):
        Exponential(floor=0)
