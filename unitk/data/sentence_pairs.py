"""Cuts into pairs of parts: BERT's sentence pairs, and turns of dialogues.

BERT: Devlin et al. 2019; `create_pretraining_data.py` of the official code.

A block is a run of sentences of one document, split between two of them into parts a and b. With a
probability b is replaced by sentences of another document; the sentences that b had are then put
back: the next block begins with them. Everything is drawn for each sentence as if a block began
there, on lengths alone; only the chain of beginnings is followed one by one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unitk.data.cuts import NO_BREAKS, Cut, chain
from unitk.slots import Bools, Ids


@dataclass(frozen=True)
class SentencePairs:
    """A cut into pairs of parts; flag 1 where the second part is from another document.

    With `same`, flag 1 marks a second part from elsewhere in the same document, and flag 2 one from
    another document (ERNIE 2.0).
    """

    random: float = 0.5  # probability that the second part is from another document
    same: float = 0.0  # probability that it is from elsewhere in the same one
    short: float = 0.1
    """Probability of a shorter block, of 2 to all tokens. Drawn for each block; the original draws
    it once for a document."""
    complete: bool = True
    """A block of a single sentence gets a second part from elsewhere (BERT), or else none."""
    single: bool = False
    """Each part is one sentence (RoBERTa's SENTENCE-PAIR: Liu et al. 2019, section 4.2)."""

    def __call__(self, sentences: Ids, documents: Ids, size: int, rng: np.random.Generator) -> Cut:
        assert size >= 2, f"{size} tokens hold no pair"
        # a block from every sentence on is worked out at once; `chain` picks those in use
        edge, home, first = _without_empty(sentences, documents)
        here = np.arange(len(home))
        short = rng.random(len(home)) < self.short
        target = np.where(short, rng.integers(2, size + 1, len(home)), size)
        limit = first[home + 1]
        end = np.minimum(here + 2, limit) if self.single else _reach(edge, here, target, limit)
        single = end == here + 1
        # the first part ends after at least one sentence, and before the last one if there are two
        split = here + np.where(single, 1, rng.integers(1, np.maximum(end - here, 2)))
        far = rng.random(len(home)) < self.random
        far = far | single if self.complete else far & ~single
        begin = _elsewhere(home, first, rng)
        room = np.maximum(target - (edge[split] - edge[:-1]), 1)
        fetched = begin + 1
        if not self.single:
            fetched = _reach(edge, begin, room, first[home[begin] + 1])
        # the next block begins where this one ends; after part a if part b is from elsewhere
        kind = far.astype(np.int64)
        if self.same:
            near, begin_near, limit_near = _nearby(split, home, first, rng)
            near &= ~far & (rng.random(len(home)) * (1 - self.random) < self.same)
            reach = np.maximum(_reach(edge, begin_near, room, limit_near), begin_near + 1)
            begin, fetched = np.where(near, begin_near, begin), np.where(near, reach, fetched)
            kind, far = 2 * far + near, far | near
        used = chain(np.where(far, split, end))
        a = edge[np.stack([here, split], axis=1)[used]]
        near = np.stack([split, end], axis=1)[used]
        there = np.stack([begin, fetched], axis=1)[used]
        b = edge[np.where(far[used, None], there, near)]
        a, b = _shorten(a, b, size, rng)
        return Cut(a[:, 0], a[:, 1], NO_BREAKS, b, kind[used])


@dataclass(frozen=True)
class Turns:
    """A cut of dialogues, whose sentences are turns, into runs of three; flag 1 where the first or
    the last turn of a run is one of another dialogue (ERNIE 1.0).

    Sun et al. 2019, arXiv 1904.09223, section 4.2. A run of one turn is left as it is.
    """

    random: float = 0.5  # probability of another dialogue's turn

    def __call__(self, sentences: Ids, documents: Ids, size: int, rng: np.random.Generator) -> Cut:
        edge, home, first = _without_empty(sentences, documents)
        here = np.flatnonzero((np.arange(len(home)) - first[home]) % 3 == 0)
        end = np.minimum(here + 3, first[home[here] + 1])
        far = (rng.random(len(here)) < self.random) & (end > here + 1)
        opens = far & (rng.random(len(here)) < 0.5)  # the first turn is replaced, or the last
        there = _elsewhere(home, first, rng)[here]
        # sentence numbers [start, stop) of the other dialogue's turn, and of those that are kept
        other = np.stack([there, there + 1], axis=1)
        kept = np.stack([here + opens, end - (far & ~opens)], axis=1)
        # a run that is kept whole has no second part
        one, two = opens[:, None], far[:, None]
        a = edge[np.where(one, other, kept)]
        b = edge[np.where(two, np.where(one, kept, other), 0)]
        a, b = _shorten(a, b, size, rng)
        return Cut(a[:, 0], a[:, 1], NO_BREAKS, b, far.astype(np.int64))


@dataclass(frozen=True)
class Queries:
    """A cut of documents whose first sentence is a query, the second the title that was clicked,
    and the others titles that were shown. A block is a query and one title (ERNIE 2.0).

    Sun et al. 2020, arXiv 1907.12412, "IR Relevance Task". Flag 0: clicked, 1: shown, 2: a title of
    another document. The flags are equally frequent among documents with a title that was shown.
    """

    def __call__(self, sentences: Ids, documents: Ids, size: int, rng: np.random.Generator) -> Cut:
        edge, _, first = _without_empty(sentences, documents)
        counts, own = np.diff(first), np.arange(len(first) - 1)
        flag = rng.integers(3, size=len(own))
        flag = np.where((flag == 1) & (counts < 3), 2 * rng.integers(2, size=len(own)), flag)
        # a document other than the own one, as long as there are two
        other = (own + rng.integers(1, max(len(own), 2), len(own))) % max(len(own), 1)
        there = np.where(flag == 2, other, own)
        # sentence 0 of a document is its query, 1 was clicked
        least = 1 + (flag == 1)
        place = rng.integers(least, np.maximum(counts[there], least + 1))
        place = np.where(flag == 0, 1, place)
        kept = (counts > 1) & (counts[there] > 1) & ((flag < 2) == (there == own))
        query, title = first[:-1][kept], (first[there] + place)[kept]
        a, b = (edge[np.stack([one, one + 1], axis=1)] for one in (query, title))
        a, b = _shorten(a, b, size, rng)
        return Cut(a[:, 0], a[:, 1], NO_BREAKS, b, flag[kept])


def _without_empty(sentences: Ids, documents: Ids) -> tuple[Ids, Ids, Ids]:
    """Borders of the non-empty sentences, their documents, and the documents' first sentences.

    Documents without a sentence are dropped, and the others are numbered anew.
    """
    full = np.diff(sentences) > 0
    home = np.repeat(np.arange(len(documents) - 1), np.diff(documents))[full]
    sizes = np.bincount(home)
    sizes = sizes[sizes > 0]
    edge = np.append(sentences[:-1][full], sentences[-1:])
    return edge, np.repeat(np.arange(len(sizes)), sizes), np.append(0, np.cumsum(sizes))


def _reach(edge: Ids, start: Ids, target: Ids, limit: Ids) -> Ids:
    """The end of the fewest sentences from `start` on with `target` tokens, up to `limit`."""
    return np.minimum(np.searchsorted(edge, edge[start] + target, "left"), limit)


def _elsewhere(home: Ids, first: Ids, rng: np.random.Generator) -> Ids:
    """For each sentence a random one of another document (of the same if there is only one)."""
    documents = len(first) - 1
    other = home
    if documents > 1:
        other = (home + rng.integers(1, documents, len(home))) % documents
    return rng.integers(first[other], first[other + 1])


def _nearby(split: Ids, home: Ids, first: Ids, rng: np.random.Generator) -> tuple[Bools, Ids, Ids]:
    """For a part from each sentence to before `split`: a random sentence of the document that is
    neither in it nor next to it. Returns whether there is one, its number, and the end of the
    sentences that may follow it."""
    here = np.arange(len(home))
    start, stop = first[home], first[home + 1]
    # those before the part, but the last, and those behind it, but the first
    before, behind = np.maximum(here - 1 - start, 0), np.maximum(stop - split - 1, 0)
    pick = rng.integers(np.maximum(before + behind, 1))  # among both, in their order
    early = pick < before
    begin = np.where(early, start + pick, split + 1 + pick - before)
    found = before + behind > 0
    return found, np.where(found, begin, here), np.where(early, here - 1, stop)


def _shorten(a: Ids, b: Ids, size: int, rng: np.random.Generator) -> tuple[Ids, Ids]:
    """Drop tokens of the longer part, at its front or back with equal chances, until both fit."""
    long_a, long_b = a[:, 1] - a[:, 0], b[:, 1] - b[:, 0]
    over = np.maximum(long_a + long_b - size, 0)
    first = np.minimum(over, np.abs(long_a - long_b))  # until they are equally long
    rest = over - first
    # then in turns, and b first
    cuts = [
        (a, np.where(long_a > long_b, first, 0) + rest // 2),
        (b, np.where(long_a > long_b, 0, first) + (rest + 1) // 2),
    ]
    fronts = [rng.binomial(lost, 0.5) for _, lost in cuts]
    one, two = (
        np.stack([part[:, 0] + front, part[:, 1] - (lost - front)], axis=1)
        for (part, lost), front in zip(cuts, fronts, strict=True)
    )
    return one, two
