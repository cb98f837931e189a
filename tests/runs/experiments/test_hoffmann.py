"""A law is found again from its own losses, with noise within its interval."""

import numpy as np
import pytest

from unitk.errors import UsageError
from unitk.runs.experiments import hoffmann
from unitk.runs.experiments.hoffmann import Law, fit

TRUE = Law(1.8, 0.9, 2.5, 0.34, 0.28)
SIZES, BUDGETS = (3e5, 7e5, 1.6e6, 5e6), (1e6, 3e6, 1e7)
RUNGS = [(size, budget) for size in SIZES for budget in BUDGETS]


@pytest.fixture(autouse=True)
def few_draws(monkeypatch):
    monkeypatch.setattr(hoffmann, "DRAWS", 20)


def losses(law, noise=0.0):
    rng = np.random.default_rng(0)
    return [law.loss(*rung) * np.exp(noise * rng.normal()) for rung in RUNGS]


def test_a_law_is_found_again():
    found = fit(*zip(*RUNGS, strict=True), losses(TRUE))
    far = 2e7, 4e7
    assert found.law.loss(*far) == pytest.approx(TRUE.loss(*far), abs=1e-4)
    assert vars(found.law) == pytest.approx(vars(TRUE), rel=1e-3)
    for name, value in vars(TRUE).items():
        _, low, high = found.interval(name)
        assert low - 1e-3 < value < high + 1e-3


def test_a_noisy_law_lies_in_its_interval():
    found = fit(*zip(*RUNGS, strict=True), losses(TRUE, 2e-3))
    value, low, high = found.predict(2e7, 4e7)
    assert low < value < high and low - 0.03 < TRUE.loss(2e7, 4e7) < high + 0.03
    assert value == pytest.approx(TRUE.loss(2e7, 4e7), abs=0.05)
    value, low, high = found.interval("beta")
    assert low <= value <= high


def test_an_outlier_moves_it_little():
    good = losses(TRUE)
    wrong = [*good[:5], good[5] * 1.2, *good[6:]]
    found = fit(*zip(*RUNGS, strict=True), wrong)
    assert found.law.loss(2e7, 4e7) == pytest.approx(TRUE.loss(2e7, 4e7), abs=0.05)


def test_numbers_are_never_negative():
    """Losses that rise with the tokens."""
    found = fit(*zip(*RUNGS, strict=True), losses(TRUE)[::-1])
    assert min(vars(found.law).values()) >= 0


@pytest.mark.parametrize(
    ("rungs", "named"),
    [
        (RUNGS[:5], "6 rungs .*5"),
        ([(1e6, 1e6 + i) for i in range(7)], "--sizes"),
        ([(1e6 + i, 1e6) for i in range(7)], "--tokens"),
        ([(1e6 + i % 2, 1e6 + i) for i in range(7)], "--sizes"),
        ([(1e6 + i, 1e6 + i % 2) for i in range(7)], "--tokens"),
    ],
)
def test_what_cannot_be_fitted(rungs, named):
    with pytest.raises(UsageError, match=named):
        fit(*zip(*rungs, strict=True), [3.0 - 0.1 * i for i in range(len(rungs))])
