"""Span laws: which stretches of a text an objective hides. Pure functions of (bounds, budget, rng).

Spans are rows [start, end) of an int64 array [n, 2]. Last comes what is shown of hidden tokens.
"""

from __future__ import annotations

import bisect
import functools
import itertools
import math

import numpy as np
import numpy.typing as npt

from unitk.slots import Bools, Doubles, Ids

Spans = npt.NDArray[np.int64]


def places_in(spans: Spans) -> Ids:
    """The places that spans cover, in the order of the spans."""
    start, stop = spans.T
    sizes = stop - start
    # one run over all places, moved for each span to where it starts
    places: Ids = (start - sizes.cumsum() + sizes).repeat(sizes)
    places += np.arange(len(places))
    return places


def choose(weights: tuple[float, ...], rng: np.random.Generator) -> int:
    """One of the numbers 0, 1, ... with probabilities as the weights."""
    return bisect.bisect_right([*itertools.accumulate(weights)], rng.random() * sum(weights))


def draw_lengths(law: Doubles, count: int, rng: np.random.Generator) -> Ids:
    """Lengths 1, 2, ... by a cumulative law: its inverse at uniform points."""
    return law.searchsorted(rng.random(count), "right") + 1


@functools.cache
def poisson_law(mean: float, longest: int) -> Doubles:
    """Cumulative law of Poisson(mean) on 1..longest, as far as float64 holds any of it."""
    k = np.arange(1, min(longest, int(mean + 10 * math.sqrt(mean)) + 80) + 1)
    log = k * math.log(mean) - mean - np.array([math.lgamma(i + 1) for i in k])
    law = np.exp(log - log.max())  # of large means exp alone would be 0
    return np.cumsum(law) / law.sum()


@functools.cache
def poisson_moments(mean: float, longest: int) -> tuple[float, float]:
    """Mean and variance of `poisson_law`."""
    law = np.diff(poisson_law(mean, longest), prepend=0.0)
    k = np.arange(1, len(law) + 1)
    m = float(law @ k)
    return m, float(law @ k**2) - m**2


def poisson_lengths(budget: int, mean: float, longest: int, rng: np.random.Generator) -> Ids:
    """Lengths from Poisson(mean) on 1..longest until their sum reaches `budget`.

    The sum exceeds the budget by less than the last length (GLM, `ConstructBlockStrategy`).
    """
    # a few more than expected, so that one draw is mostly enough
    law = poisson_law(mean, longest)
    count = int(budget / mean) + 8
    lengths = draw_lengths(law, count, rng)
    while (total := lengths.cumsum())[-1] < budget:
        lengths = np.append(lengths, draw_lengths(law, count, rng))
    return lengths[: int(total.searchsorted(budget)) + 1] if budget else lengths[:0]


def poisson_counts(
    budget: int, mean: float, max_zeros: int, rng: np.random.Generator
) -> tuple[Ids, int]:
    """Lengths above 0 from Poisson(mean), and the number of zeros drawn until they reach `budget`.

    The last length is cut to fit (BART, `DenoisingDataset` of fairseq). A draw of more than
    `max_zeros` zeros is repeated.
    """
    while True:
        lengths = rng.poisson(mean, int(budget / mean) + 8)
        while lengths.sum() < budget:
            lengths = np.append(lengths, rng.poisson(mean, len(lengths)))
        total = lengths.cumsum()
        reached = int(total.searchsorted(budget))
        lengths[reached] -= total[reached] - budget
        drawn = lengths[: reached + 1]
        zeros = int((drawn == 0).sum())
        if zeros <= max_zeros:
            return drawn[drawn > 0], zeros


def scatter(lengths: Ids, size: int, rng: np.random.Generator) -> Spans:
    """Place spans of these lengths, in this order, into [0, size): uniform, at least one apart.

    Raises ValueError when they do not fit.
    """
    count = len(lengths)
    apart = lengths + 1
    stops = apart.cumsum()  # of each span and a place after it, if no others were free
    free = size + 1 - int(stops[-1])
    if free < 0:
        raise ValueError(f"{count} spans of {int(lengths.sum())} tokens do not fit into {size}")
    # n draws from the free places, sorted, are the room left of each span
    starts = rng.integers(0, free + 1, count)
    starts.sort()
    starts += stops - apart
    return np.array([starts, starts + lengths]).T


def most_spans(budget: int | Ids, mean: float, longest: int) -> Ids:
    """A bound of the number of spans that `poisson_lengths` draws: six deviations above the mean.

    The count of a renewal process has mean B / m and variance s^2 B / m^3.
    """
    m, variance = poisson_moments(mean, longest)
    return np.ceil(budget / m + 1 + 6 * np.sqrt(variance / m**3 * budget)).astype(np.int64)


def most_share(mean: float, longest: int) -> float:
    """The share of a text that `poisson_spans` can hide in a few draws."""
    m, _ = poisson_moments(mean, longest)
    return 0.9 * m / (m + 1)  # a token is between two spans


def poisson_spans(
    size: int,
    budget: int,
    mean: float,
    longest: int,
    max_spans: int,
    walls: Ids,
    rng: np.random.Generator,
) -> Spans:
    """At most `max_spans` spans of about `budget` tokens, one token or more between any two.

    Draws that do not fit into [0, size) or cover one of the `walls` are drawn again; after a
    hundred of the latter the walls give way.
    """
    longest = min(longest, size)
    tries = 0
    while True:
        lengths = poisson_lengths(budget, mean, longest, rng)
        if len(lengths) > max_spans or lengths.sum() + len(lengths) - 1 > size:
            continue
        spans = scatter(rng.permutation(lengths), size, rng)
        tries += 1
        if tries > 100 or not len(walls):
            return spans
        before = np.searchsorted(spans[:, 0], walls, "right")  # spans that begin up to each wall
        if not (np.append(0, spans[:, 1])[before] > walls).any():
            return spans


def sentence_spans(ends: Bools, budget: int, max_spans: int, rng: np.random.Generator) -> Spans:
    """Whole sentences, drawn until `budget` tokens are reached, at most `max_spans` of them.

    A sentence runs up to and including a token marked in `ends`.
    """
    stops = np.unique(np.append(np.flatnonzero(ends) + 1, len(ends)))
    sentences = rng.permutation(np.stack([np.append(0, stops[:-1]), stops], axis=1))
    reached = int(np.searchsorted(np.cumsum(sentences[:, 1] - sentences[:, 0]), budget))
    return sentences[: min(reached + 1, max_spans)]


def long_span(size: int, least: int, rng: np.random.Generator) -> Spans:
    """One span of `least` to all tokens of the text, uniform in length and place."""
    length = int(rng.integers(least, size + 1))
    start = int(rng.integers(size - length + 1))
    return np.array([[start, start + length]])


def alternating_spans(size: int, hidden: int, count: int, rng: np.random.Generator) -> Spans:
    """`count` spans of `hidden` tokens in all, of which the last one ends the text.

    What is hidden and what is shown is each cut into as many parts, any cut as likely as another;
    they take turns (T5, `random_spans_noise_mask` of the official code). Where all is hidden, so is
    the beginning.
    """

    def parts(total: int) -> Ids:
        cuts = np.sort(rng.permutation(max(total - 1, 0))[: count - 1]) + 1
        return np.diff(cuts, prepend=0, append=total)

    lengths = parts(hidden)
    gaps = parts(size - hidden)
    stops = (lengths + gaps).cumsum()
    return np.stack([stops - lengths, stops], axis=1)


def edge_start(size: int, length: int, edge: tuple[float, float], rng: np.random.Generator) -> int:
    """The start of a span of `length` in [0, size).

    It is at the beginning or at the end with the probabilities `edge`, else anywhere (MASS;
    `restricted_mask_sent` of the official code).
    """
    last = size - length
    point = rng.random()
    anywhere = int(rng.integers(last + 1))
    if point < edge[0]:
        return 0
    return last if point < sum(edge) else anywhere


def ngram_places(
    free: Bools, budget: int, chance: float, longest: int, rng: np.random.Generator
) -> Ids:
    """Places of `budget` tokens: single ones, or with a chance n-grams of 2..`longest`.

    An n-gram ends before a place that is not free, and what exceeds the budget is given back at
    random (UniLM; `get_masked_pos` of the official code).
    """
    order = rng.permutation(free.nonzero()[0])
    budget = min(budget, len(order))
    order = order[:budget]  # each hides one token or more, or is hidden: no more are needed
    sizes = _sizes(budget, chance, longest, rng)
    open_ = free.tobytes() + bytes(longest)  # 0 after the end: an n-gram stops there
    hidden: set[int] = set()
    for start, size in zip(order.tolist(), sizes.tolist(), strict=True):
        if size == 1:  # nothing happens where it is hidden
            hidden.add(start)
        elif start not in hidden:
            stop = open_.find(0, start, start + size)
            hidden.update(range(start, stop if stop >= 0 else start + size))
        if len(hidden) >= budget:
            break
    places = np.fromiter(hidden, np.int64, len(hidden))
    if len(places) > budget:
        places = rng.permutation(places)[:budget]
    places.sort()
    return places


def block_places(
    free: Bools, budget: int, chance: float, longest: int, rng: np.random.Generator
) -> tuple[Ids, Ids]:
    """Blocks in the order in which they were drawn, until `budget` tokens are hidden.

    A block is one token, or with a chance 2..`longest`, anywhere; one that touches a place that is
    hidden, not free or outside is drawn again (UniLMv2, algorithm 1). Returns the places, block by
    block, and the size of each block.
    """
    goal = min(budget, int(np.count_nonzero(free)))
    open_ = bytearray(free.tobytes() + bytes(longest))  # nothing is open after the end
    places, sizes = list[int](), list[int]()
    while len(places) < goal:
        if chance == 1 and b"\1\1" not in open_:
            chance = 0.0  # no place is left that has a neighbour: no draw would ever fit
        starts = rng.integers(len(free), size=64).tolist()  # one call for many draws
        for start, size in zip(starts, _sizes(64, chance, longest, rng).tolist(), strict=True):
            if size == 1 and open_[start]:
                open_[start] = 0
                places.append(start)
            elif size > 1 and open_.find(0, start, start + size) < 0:
                open_[start : start + size] = bytes(size)
                places += range(start, start + size)
            else:
                continue
            sizes.append(size)
            if len(places) >= goal:
                break
    return np.fromiter(places, np.int64), np.fromiter(sizes, np.int64)


def run_places(unit: Ids, budget: int, longest: int, rng: np.random.Generator) -> tuple[Ids, Ids]:
    """Places in runs of 1..`longest` units, uniform in length, until `budget` places are hidden.

    `unit` [n] numbers the units (tokens, words) that places belong to, in order. Runs cut all of
    them, and the last one taken is hidden whole (GPT-BERT, `SpanMaskingStrategy` of the official
    code). Returns the places, and for each the number of its run among the hidden ones.
    """
    sizes = rng.integers(1, longest + 1, int(unit[-1]) + 1)
    # the first run that ends after a unit is its own
    run = sizes.cumsum().searchsorted(unit, "right")
    key = rng.random(len(sizes))[run]  # one for each run: those with the smallest keys are hidden
    taken = np.flatnonzero(key <= np.sort(key)[min(budget, len(key)) - 1])
    return taken, np.unique(run[taken], return_inverse=True)[1]


@functools.cache
def length_law(weights: tuple[float, ...]) -> Doubles:
    """Cumulative law of lengths 1, 2, ... with these weights."""
    return np.cumsum(weights) / sum(weights)


def word_spans(unit: Ids, budget: int, law: Doubles, rng: np.random.Generator) -> Ids:
    """Places of `budget` tokens in spans of whole words; the last span may cut one.

    `unit` [n] numbers the words that places belong to, rising. A span begins with the word of a
    uniformly drawn place that is not hidden, its words are as many as the law says; those that are
    hidden already count (SpanBERT, `PairWithSpanMaskingScheme` of the official code).
    """
    first, word = _words(unit)
    # in a random order, places that are not hidden come as if each were drawn among those left
    anchors = rng.permutation(len(unit))
    sizes = draw_lengths(law, len(unit), rng)
    starts = first[word[anchors]].tolist()
    stops = first[np.minimum(word[anchors] + sizes, len(first) - 1)].tolist()
    hidden: set[int] = set()
    for anchor, start, stop in zip(anchors.tolist(), starts, stops, strict=True):
        if len(hidden) >= budget:
            break
        if anchor not in hidden:
            shown = [index for index in range(start, stop) if index not in hidden]
            hidden.update(shown[: budget - len(hidden)])
    return np.sort(np.fromiter(hidden, np.int64, len(hidden)))


def word_ngrams(unit: Ids, budget: int, law: Doubles, rng: np.random.Generator) -> Ids:
    """Places of n-grams of whole words, `budget` tokens at most; n is drawn from the law.

    Words are tried in random order. An n-gram that exceeds the budget is shortened, one that
    overlaps another is passed over (ALBERT, `create_pretraining_data.py` of the official code).
    Where no word fits, the shortest is hidden.
    """
    first, word_of = _words(unit)
    count = len(first) - 1
    left = budget
    order = rng.permutation(count)
    # near the end the law is restricted to what is left of the text
    room = law[np.minimum(count - order, len(law)) - 1]
    sizes = law.searchsorted(rng.random(count) * room, "right") + 1
    edge = first.tolist()
    hidden = bytearray(count)
    for word, size in zip(order.tolist(), sizes.tolist(), strict=True):
        while size and edge[word + size] - edge[word] > left:
            size -= 1
        if size and not any(hidden[word : word + size]):
            hidden[word : word + size] = b"\1" * size
            left -= edge[word + size] - edge[word]
            if not left:
                break
    if left == budget:
        hidden[int(np.diff(first).argmin())] = 1
    return np.flatnonzero(np.frombuffer(hidden, np.bool_)[word_of])


def _words(unit: Ids) -> tuple[Ids, Ids]:
    """The first place of each word, and the number of places; the word of each, from 0 on."""
    # unit numbers rise, so a word begins wherever the number is another one than before
    begins = np.diff(unit, prepend=-1) > 0
    return np.append(np.flatnonzero(begins), len(unit)), begins.cumsum() - 1


def _sizes(count: int, chance: float, longest: int, rng: np.random.Generator) -> Ids:
    """Lengths: 1, or with a chance 2..`longest`."""
    single = rng.random(count) >= chance
    sizes = rng.integers(2, longest + 1, count)
    sizes[single] = 1
    return sizes


def take_fitting(sizes: Ids, budget: int) -> Ids:
    """Take units in order while they fit into the budget; one that does not is passed over.

    Returns their numbers; the smallest one where none fits.
    """
    left = np.arange(len(sizes))
    taken = [np.empty(0, np.int64)]
    while True:
        left = left[sizes[left] <= budget]  # of the others none will fit again
        count = int(np.searchsorted(sizes[left].cumsum(), budget, "right"))
        if not count:
            break
        taken.append(left[:count])
        budget -= int(sizes[left[:count]].sum())
        left = left[count:]
    numbers = np.concatenate(taken)
    return numbers if len(numbers) else np.argmin(sizes, keepdims=True)


def corrupt(
    ids: Ids,
    mask: int,
    words: Ids,
    rates: tuple[float, float, float],
    rng: np.random.Generator,
    run: Ids | None = None,
) -> Ids:
    """Replace hidden tokens: with these weights by the mask, by themselves, or by any word.

    Tokens with the same number (from 0) in `run` share the choice. The number of draws depends on
    the number of tokens only.
    """
    point = rng.random(len(ids)) * sum(rates)
    if run is not None:
        point = point[run]
    shown = words[rng.integers(len(words), size=len(ids))]
    np.copyto(shown, ids, where=point < rates[0] + rates[1])
    shown[point < rates[0]] = mask
    return shown
