"""Span laws: which stretches of a text an objective hides. Pure functions of (bounds, budget, rng).

Spans are rows [start, end) of an int64 array [n, 2].
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math

import numpy as np
import numpy.typing as npt

from unitk.slots import Ids

Spans = npt.NDArray[np.int64]


def choose(weights: tuple[float, ...], rng: np.random.Generator) -> int:
    """One of the numbers 0, 1, ... with probabilities as the weights."""
    point = rng.random() * sum(weights)
    return bisect.bisect_right(list(itertools.accumulate(weights)), point)


@functools.cache
def poisson_law(mean: float, longest: int) -> npt.NDArray[np.float64]:
    """Cumulative law of Poisson(mean) restricted to 1..longest (zero excluded)."""
    k = np.arange(1, longest + 1)
    log = k * math.log(mean) - mean - np.array([math.lgamma(i + 1) for i in k])
    law = np.exp(log - log.max())
    cumulative: npt.NDArray[np.float64] = np.cumsum(law) / law.sum()
    return cumulative


@functools.cache
def poisson_moments(mean: float, longest: int) -> tuple[float, float]:
    """Mean and variance of `poisson_law`."""
    law = np.diff(poisson_law(mean, longest), prepend=0.0)
    k = np.arange(1, longest + 1)
    m = float(law @ k)
    return m, float(law @ k**2) - m**2


def poisson_lengths(budget: int, mean: float, longest: int, rng: np.random.Generator) -> Ids:
    """Lengths from Poisson(mean) on 1..longest until their sum reaches `budget`.

    The sum exceeds the budget by less than the last length (GLM, `ConstructBlockStrategy`).
    """
    law, total = poisson_law(mean, longest), 0
    drawn: list[Ids] = [np.empty(0, np.int64)]
    while total < budget:
        drawn.append(law.searchsorted(rng.random(int(budget / mean) + 8), "right") + 1)
        total += int(drawn[-1].sum())
    lengths = np.concatenate(drawn)
    reached = int(lengths.cumsum().searchsorted(budget))
    return lengths[: reached + 1] if budget > 0 else lengths[:0]


def scatter(lengths: Ids, size: int, rng: np.random.Generator, *, gap: int = 1) -> Spans:
    """Place spans of these lengths, in this order, into [0, size): uniform, `gap` apart or more.

    Raises ValueError when they do not fit.
    """
    count = len(lengths)
    free = size - int(lengths.sum()) - gap * (count - 1)
    if free < 0:
        raise ValueError(f"{count} spans of {int(lengths.sum())} tokens do not fit into {size}")
    # n draws from the free places, sorted, are the room left of each span
    room = np.sort(rng.integers(0, free + 1, count))
    starts = room + np.cumsum(lengths + gap) - lengths - gap
    return np.stack([starts, starts + lengths], axis=1)


def most_spans(budget: npt.ArrayLike, mean: float, longest: int) -> Ids:
    """A bound of the number of spans that `poisson_lengths` draws: six deviations above the mean.

    The count of a renewal process has mean B / m and variance s^2 B / m^3.
    """
    m, variance = poisson_moments(mean, longest)
    budget = np.asarray(budget, np.float64)
    most: Ids = np.ceil(budget / m + 1 + 6 * np.sqrt(variance / m**3 * budget)).astype(np.int64)
    return most


def poisson_spans(
    size: int,
    budget: int,
    mean: float,
    longest: int,
    most: int,
    walls: Ids,
    rng: np.random.Generator,
) -> Spans:
    """At most `most` spans of about `budget` tokens, one token or more between any two.

    Draws that do not fit into [0, size) or cover one of the `walls` are drawn again; after a
    hundred of the latter the walls give way.
    """
    longest, tries = min(longest, size), 0
    while True:
        lengths = poisson_lengths(budget, mean, longest, rng)
        if len(lengths) > most or lengths.sum() + len(lengths) - 1 > size:
            continue
        spans = scatter(rng.permutation(lengths), size, rng)
        tries += 1
        if tries > 100 or not len(walls):
            return spans
        before = np.searchsorted(spans[:, 0], walls, "right")  # spans that begin up to each wall
        if not (np.append(0, spans[:, 1])[before] > walls).any():
            return spans


def sentence_spans(
    ends: npt.NDArray[np.bool_], budget: int, most: int, rng: np.random.Generator
) -> Spans:
    """Whole sentences, drawn until `budget` tokens are reached, at most `most` of them.

    A sentence runs up to and including a token marked in `ends`.
    """
    stops = np.unique(np.append(np.flatnonzero(ends) + 1, len(ends)))
    sentences = rng.permutation(np.stack([np.append(0, stops[:-1]), stops], axis=1))
    reached = int(np.searchsorted(np.cumsum(sentences[:, 1] - sentences[:, 0]), budget))
    return sentences[: min(reached + 1, most)]


def long_span(size: int, least: float, rng: np.random.Generator) -> Spans:
    """One span of `least` (a share) to all of the text, uniform in length and place."""
    length = int(rng.integers(math.ceil(least * size), size + 1))
    start = int(rng.integers(size - length + 1))
    return np.array([[start, start + length]])
