"""Loss as a function of weights and tokens: the fit of Hoffmann et al. 2022, arXiv 2203.15556.

    loss(N, D) = floor + A / N^alpha + B / D^beta          section 3.3, equation 2

The paper minimizes Huber losses of logarithms from many beginnings. Given the exponents, the other
three numbers are those of a linear problem with numbers of at least 0. So it is solved here for a
grid of exponents, refined around the best pair: there are no beginnings to choose. Intervals are
over fits to rungs that are drawn with replacement.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from unitk.errors import require
from unitk.slots import Doubles

LEAST = 6
"""Rungs that a fit needs: it has five numbers."""
LOW, HIGH, POINTS = 0.05, 1.2, 12
GRIDS, FINEST = 60, 1e-4
"""The most grids, and the relative distance of the exponents of the last one."""
DRAWS, LEVEL = 100, 0.95
HUBER = 1e-3
"""Residual of the logarithm from which on a rung counts linearly (Hoffmann et al.: 10^-3)."""
SETS = [np.array(positive) for size in (3, 2, 1) for positive in combinations(range(3), size)]
"""Which of floor, A and B are above 0."""


@dataclass(frozen=True)
class Law:
    """The five numbers of a fit. A and B are those of millions of weights and of tokens."""

    floor: float
    of_weights: float
    of_tokens: float
    alpha: float
    beta: float

    def loss(self, weights: float, tokens: float) -> float:
        """The loss of a model with this many weights after this many tokens."""
        of_weights = self.of_weights / (weights / 1e6) ** self.alpha
        return self.floor + of_weights + self.of_tokens / (tokens / 1e6) ** self.beta


@dataclass(frozen=True)
class Fit:
    """A law, and the laws of the draws of its rungs."""

    law: Law
    draws: list[Law]

    def predict(self, weights: float, tokens: float) -> tuple[float, float, float]:
        """The loss of a model that was not fitted, and its interval."""
        drawn = [law.loss(weights, tokens) for law in self.draws]
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return self.law.loss(weights, tokens), float(low), float(high)

    def interval(self, name: str) -> tuple[float, float, float]:
        """A number of the law, and its interval."""
        drawn = [getattr(law, name) for law in self.draws]
        low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return getattr(self.law, name), float(low), float(high)


def check_rungs(sizes: Collection[object], budgets: Collection[object]) -> None:
    """Raise a UsageError for fewer rungs than `LEAST`, or fewer than three sizes or budgets."""
    require(
        len(sizes) >= LEAST,
        f"--sizes, --tokens: a fit needs {LEAST} rungs beside the held-out one, got {len(sizes)}",
    )
    for values, name in ((sizes, "--sizes"), (budgets, "--tokens")):
        require(len({*values}) > 2, f"{name}: a fit needs three or more, got {len({*values})}")


def fit(weights: Sequence[float], tokens: Sequence[float], losses: Sequence[float]) -> Fit:
    """Fit rungs; raises UsageError for what `check_rungs` refuses, and losses not finite."""
    check_rungs(weights, tokens)
    rungs = np.array([weights, tokens, losses], np.float64)
    count = rungs.shape[1]
    require(np.isfinite(rungs).all(), "a rung has no finite loss, so that nothing is fitted")
    law = fit_once(rungs)
    # a seed of its own, so that a fit of the same rungs is the same fit
    rng = np.random.default_rng(count)
    draws = list[Law]()
    while len(draws) < DRAWS:
        sample = rungs[:, rng.integers(count, size=count)]
        # an exponent, its factor and the floor are not known from two sizes or budgets
        if all(len(np.unique(row)) > 2 for row in sample[:2]):
            draws.append(fit_once(sample))
    return Fit(law, draws)


def fit_once(rungs: Doubles) -> Law:
    """The law of least Huber loss over rungs (weights, tokens, losses), [3, R]."""
    weights = rungs[0] / 1e6
    tokens = rungs[1] / 1e6
    losses = rungs[2]
    alphas = betas = np.geomspace(LOW, HIGH, POINTS)
    step = (HIGH / LOW) ** (1 / (POINTS - 1))
    best = np.inf
    law = Law(0, 0, 0, 0, 0)
    for _ in range(GRIDS):
        alpha, beta = (grid.ravel() for grid in np.meshgrid(alphas, betas))
        # [G, R, 3]: what floor, A and B are multiplied by, for each pair of exponents
        terms = np.stack(
            [
                np.ones((len(alpha), len(losses))),
                weights[None] ** -alpha[:, None],
                tokens[None] ** -beta[:, None],
            ],
            2,
        )
        numbers = solve_terms(terms / losses[:, None])
        residuals = np.log(np.maximum((terms @ numbers[:, :, None])[:, :, 0], 1e-9) / losses)
        size = np.abs(residuals)
        # linear beyond HUBER, so that one run that went wrong does not bend the law
        costs = np.where(size < HUBER, size**2 / 2, HUBER * (size - HUBER / 2)).sum(1)
        at = int(costs.argmin())
        inner = True
        if costs[at] < best:
            inner = alphas[0] < alpha[at] < alphas[-1] and betas[0] < beta[at] < betas[-1]
            best = costs[at]
            floor, of_weights, of_tokens = map(float, numbers[at])
            law = Law(floor, of_weights, of_tokens, float(alpha[at]), float(beta[at]))
        if step - 1 < FINEST:
            break
        # a grid around the best pair, finer if that is not at the edge of the last one
        alphas, betas = (
            np.geomspace(exponent / step, exponent * step, 7).clip(LOW, HIGH)
            for exponent in (law.alpha, law.beta)
        )
        step **= 0.5 if inner else 1.0
    return law


def solve_terms(terms_GR3: Doubles) -> Doubles:
    """For each G, the three numbers of at least 0 whose products with the terms are nearest to 1.

    Rungs count by their relative errors, which are those of logarithms as long as they are small.
    Those far away count less in three repetitions (iteratively reweighted least squares).
    """
    weight_GR = np.ones(terms_GR3.shape[:2])
    numbers_G3 = np.zeros((len(terms_GR3), 3))
    for _ in range(4):
        best_G = np.full(len(terms_GR3), np.inf)
        for positive in SETS:  # of a few numbers, all sets that are above 0 are tried
            # normal equations; the diagonal keeps columns apart that a draw has made alike
            weighted = terms_GR3[:, :, positive] * weight_GR[:, :, None]
            gram = weighted.mT @ weighted + 1e-12 * np.eye(len(positive))
            numbers = np.linalg.solve(gram, weighted.mT @ weight_GR[:, :, None])[:, :, 0]
            errors = (weighted @ numbers[:, :, None])[:, :, 0] - weight_GR
            cost_G = np.where((numbers >= 0).all(1), (errors**2).sum(1), np.inf)
            better = cost_G < best_G
            best_G = np.where(better, cost_G, best_G)
            whole = np.zeros_like(numbers_G3)
            whole[:, positive] = numbers
            numbers_G3 = np.where(better[:, None], whole, numbers_G3)
        size_GR = np.abs((terms_GR3 @ numbers_G3[:, :, None])[:, :, 0] - 1)
        weight_GR = np.sqrt(HUBER / np.maximum(size_GR, HUBER))
    return numbers_G3
