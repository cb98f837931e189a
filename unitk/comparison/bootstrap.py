"""Intervals of a score over seeds and items: the bootstrap with both resampled.

Bouthillier et al. 2021, arXiv 2103.03098, say why seeds count; that runs share the items, which are
drawn once for all of them, is Owen 2007, arXiv 0712.1111 (the pigeonhole bootstrap).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from unitk.errors import require
from unitk.slots import Doubles

DRAWS, LEVEL = 2000, 0.95
CELLS = 1 << 22
"""Counts of items that are in memory at once."""


@dataclass(frozen=True)
class Interval:
    """A mean, and between which values it lies in `LEVEL` of the draws."""

    value: float
    low: float
    high: float
    seeds: int
    items: int

    def figures(self) -> dict[str, float | int]:
        """The figures by name."""
        return vars(self)

    def __str__(self) -> str:
        return f"{self.value:.4f} [{self.low:.4f}, {self.high:.4f}]"


def resample(scores_SN: Doubles, weights_N: Doubles, stream: int = 0) -> Doubles:
    """`DRAWS` draws of the mean of a score of S runs on N items.

    Each draw takes S runs and N items with replacement. The mean is a ratio of sums, such as bits
    per byte: scores are sums of items of these sizes. The draws of items depend on N alone, so that
    those of two models may be subtracted; the draws of runs depend on the stream, too.
    """
    num_seeds, num_items = scores_SN.shape
    items = np.random.default_rng(num_items)
    seeds = np.random.default_rng((num_seeds, stream))
    ratios = list[Doubles]()
    chunk = max(1, CELLS // num_items)
    for first in range(0, DRAWS, chunk):
        draws = min(chunk, DRAWS - first)
        # how often each item is drawn, [draws, N]
        drawn = (items.integers(num_items, size=num_items) for _ in range(draws))
        counts = np.stack([np.bincount(items, minlength=num_items) for items in drawn])
        means_DS = (counts @ scores_SN.T) / (counts @ weights_N)[:, None]
        # items are drawn once for all runs, which share them
        runs = seeds.integers(num_seeds, size=(draws, num_seeds))
        ratios.append(np.take_along_axis(means_DS, runs, 1).mean(1))
    return np.concatenate(ratios)


def interval(scores: Sequence[Doubles], weights: Doubles | None = None) -> Interval:
    """The mean of a score of some runs, [N] each, and its interval; NaN bounds for one item."""
    scores_SN, weights_N = _matrix(scores, weights)
    value = float(scores_SN.sum(1).mean() / weights_N.sum())
    return _interval(value, resample(scores_SN, weights_N), scores_SN.shape)


def difference(
    first: Sequence[Doubles], second: Sequence[Doubles], weights: Doubles | None = None
) -> Interval:
    """The first model's mean minus the second one's on the same items; their runs are apart."""
    (one_SN, weights_N), (other_SN, _) = _matrix(first, weights), _matrix(second, weights)
    count = one_SN.shape[1]
    same = count == other_SN.shape[1]
    require(same, f"{count} and {other_SN.shape[1]} items cannot be compared item by item")
    value = float((one_SN.sum(1).mean() - other_SN.sum(1).mean()) / weights_N.sum())
    apart = resample(one_SN, weights_N) - resample(other_SN, weights_N, stream=1)
    return _interval(value, apart, (min(len(one_SN), len(other_SN)), count))


def _matrix(scores: Sequence[Doubles], weights: Doubles | None) -> tuple[Doubles, Doubles]:
    scores_SN = np.stack([np.asarray(scores_N, np.float64) for scores_N in scores])
    require(scores_SN.shape[1] > 0, "an interval needs an item")
    return scores_SN, np.ones(scores_SN.shape[1]) if weights is None else weights


def _interval(value: float, draws: Doubles, shape: tuple[int, ...]) -> Interval:
    low, high = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    known = shape[1] > 1  # one item says nothing of others
    bounds = (float(low), float(high)) if known else (np.nan, np.nan)
    return Interval(value, *bounds, *shape)
