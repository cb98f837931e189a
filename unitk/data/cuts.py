"""From sentences to texts: where a corpus is cut into the pieces an objective sees.

A cut is a function of (seed, epoch, sentence lengths); example i is its i-th block. Blocks are runs
of tokens of the store; nothing is copied before an example is asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

import numpy as np

from unitk.errors import UsageError
from unitk.registry import nearest
from unitk.slots import Bools, Ids

When = tuple[int, int | None]
"""The number of an update from 1 on, and how many the run has, if that is known."""
AT_THE_END: When = 1 << 40, 1 << 40
"""The update as which evaluation and decoding lay out texts: every schedule is at its end."""
NO_BREAKS = np.empty(0, np.int64)
NO_SECONDS = np.empty((0, 2), np.int64)


@dataclass(frozen=True)
class Text:
    """What `Task.pretrain` receives: token ids without any special symbol.

    `borders` are the `sentences`, or what finds them when they are asked for. `notes` is the
    annotation byte of each token, if the corpus has one. `flag` is the sampler's verdict on the
    parts (next sentence or not), or 1 where the text is to be read from its end. `when` is the
    progress that shares depend on if they are schedules. `begins` and `ends` tell whether its
    document (the corpus, if that is one stream) begins and ends with the text. `carried`: whether
    a model reads it with what it carries of the text before (stateful rows). `beside` finds the
    symbols next to it in the corpus.
    """

    parts: list[Ids]
    borders: Ids | Callable[[], Ids]
    notes: Ids | None = None
    flag: int = 0
    when: When = AT_THE_END
    begins: bool = True
    ends: bool = True
    carried: bool = False
    beside: Callable[[], tuple[Ids, Ids]] = lambda: (NO_BREAKS, NO_BREAKS)

    @property
    def ids(self) -> Ids:
        """The parts joined."""
        return self.parts[0] if len(self.parts) == 1 else np.concatenate(self.parts)

    @cached_property
    def sentences(self) -> Ids:
        """The offsets of the sentences within the joined parts."""
        return self.borders() if callable(self.borders) else self.borders

    @property
    def before(self) -> Ids:
        """The symbol before the text, if there is one: [1] or []."""
        return self.beside()[0]

    @property
    def after(self) -> Ids:
        """The symbol after the text, if there is one: [1] or []."""
        return self.beside()[1]


@dataclass(frozen=True)
class Cut:
    """Blocks of a corpus as token offsets [starts, stops); `breaks` are document starts inside.

    `seconds` [n, 2], if given, are the second parts of the blocks, empty where a block has one part
    only. `flags` [n] is the verdict on the parts (1: they do not belong together). `edges` [n, 2],
    if given: whether a document begins with each block, and whether one ends with it; otherwise
    all do. `separated` [n, 2], if given, is the run of the breaks whose separators are in each
    block, at its very edges too; otherwise those of the breaks within it do.
    """

    starts: Ids
    stops: Ids
    breaks: Ids
    seconds: Ids = field(default_factory=lambda: NO_SECONDS)
    flags: Ids = field(default_factory=lambda: NO_BREAKS)
    edges: Ids = field(default_factory=lambda: NO_SECONDS)
    separated: Ids = field(default_factory=lambda: NO_SECONDS)

    @cached_property
    def inside(self) -> Ids:
        """The run of breaks [n, 2] whose separators are in each block."""
        if len(self.separated):
            return self.separated
        first = np.searchsorted(self.breaks, self.starts, "right")
        last = np.searchsorted(self.breaks, self.stops, "left")
        return np.stack([first, np.maximum(first, last)], axis=1)

    @property
    def tokens(self) -> Ids:
        """The tokens of each block, without separators."""
        tokens: Ids = self.stops - self.starts
        return tokens + np.diff(self.seconds)[:, 0] if len(self.seconds) else tokens

    @property
    def lengths(self) -> Ids:
        """The tokens of each block, including separators between documents."""
        return self.tokens + np.diff(self.inside)[:, 0]


class Cutter(Protocol):
    """Makes a cut from sentence borders, first sentences of documents, a block size, and draws."""

    def __call__(
        self, sentences: Ids, documents: Ids, size: int, rng: np.random.Generator
    ) -> Cut: ...


def cut_line(sentences: Ids, documents: Ids, size: int, rng: np.random.Generator) -> Cut:
    """One sentence a block; a sentence longer than `size` is truncated."""
    starts = sentences[:-1]
    ends = sentences[1:]
    stops = np.minimum(ends, starts + size)
    edges = np.stack([starts == starts, stops == ends], axis=1)
    full = ends > starts
    return Cut(starts[full], stops[full], NO_BREAKS, edges=edges[full])


def cut_doc(sentences: Ids, documents: Ids, size: int, rng: np.random.Generator) -> Cut:
    """Whole sentences of one document up to `size` tokens (RoBERTa's DOC-SENTENCES)."""
    last = np.repeat(documents[1:], np.diff(documents))  # the sentence after each one's document
    bounds = sentences[documents]
    return _fill(_split_long(sentences, size), sentences, sentences[last], size, NO_BREAKS, bounds)


def cut_full(sentences: Ids, documents: Ids, size: int, rng: np.random.Generator) -> Cut:
    """Whole sentences across documents, a separator between them (FULL-SENTENCES)."""
    last = np.full(len(sentences) - 1, sentences[-1])
    bounds = sentences[documents]
    breaks = drop_repeats(bounds[1:-1])
    return _fill(_split_long(sentences, size), sentences, last, size, breaks, bounds)


def cut_stream(sentences: Ids, documents: Ids, size: int, rng: np.random.Generator) -> Cut:
    """Fixed windows over everything, with separators between documents, from a random offset."""
    bounds = drop_repeats(sentences[documents])
    return _windows(bounds, bounds[1:-1], size, rng)


def cut_unbroken(sentences: Ids, documents: Ids, size: int, rng: np.random.Generator) -> Cut:
    """Cut as `cut_stream` does, but without separators between documents."""
    return _windows(sentences, NO_BREAKS, size, rng)


def _windows(bounds: Ids, breaks: Ids, size: int, rng: np.random.Generator) -> Cut:
    begin, end = int(bounds[0]), int(bounds[-1])
    total = end - begin + len(breaks)
    offset = int(rng.integers(min(size, max(total, 1))))
    # edges count tokens and separators; of the latter those before an edge are no tokens
    edges = drop_repeats(np.concatenate([[0], np.arange(offset, total, size), [total]]))
    number = np.searchsorted(breaks - begin + np.arange(len(breaks)), edges)
    border = begin + edges - number
    starts = border[:-1]
    stops = border[1:]
    full = stops > starts  # a window of one symbol may be a separator
    whole = np.stack([starts == begin, stops == end], axis=1)
    separated = NO_SECONDS
    if len(breaks):
        separated = np.stack([number[:-1], number[1:]], axis=1)[full]
    return Cut(starts[full], stops[full], breaks, edges=whole[full], separated=separated)


CUTS: dict[str, Cutter] = {"doc": cut_doc, "full": cut_full, "stream": cut_stream, "line": cut_line}


def cut(
    how: str | Cutter, sentences: Ids, documents: Ids, size: int, rng: np.random.Generator
) -> Cut:
    """Cut by the name given to `--blocks`, or as the task does, in at most `size` tokens."""
    if isinstance(how, str):
        if how not in CUTS:
            hint = nearest(how, CUTS)
            raise UsageError(f"--blocks must be one of {', '.join(CUTS)}, got {how!r}{hint}")
        how = CUTS[how]
    return how(np.asarray(sentences), np.asarray(documents), size, rng)


def drop_repeats(rising: Ids) -> Ids:
    """Rising numbers, each once; `np.unique` takes a hundred times as long for millions."""
    return rising[np.append(True, rising[1:] > rising[:-1])[: len(rising)]]


def chain(follow: Ids) -> list[int]:
    """The rising numbers 0, follow[0], follow[follow[0]], ... below the length of `follow`."""
    numbers = list[int]()
    at = 0
    steps = follow.tolist()
    while at < len(steps):
        numbers.append(at)
        at = steps[at]
    return numbers


def _split_long(sentences: Ids, size: int) -> Ids:
    """Sentence borders, with further ones within sentences of more than `size` tokens."""
    long = np.flatnonzero(np.diff(sentences) > size)
    extra = [np.arange(sentences[i] + size, sentences[i + 1], size) for i in long]
    return np.sort(np.concatenate([sentences, *extra])) if extra else sentences


def _fill(borders: Ids, sentences: Ids, limit: Ids, size: int, breaks: Ids, bounds: Ids) -> Cut:
    """Fill blocks greedily with pieces, up to `size` tokens and not beyond a sentence's `limit`.

    `bounds` are the first tokens of documents, and the end.
    """
    borders = drop_repeats(borders)  # empty sentences share a border
    if len(borders) < 2:
        return Cut(borders[:0], borders[:0], breaks)
    home = np.searchsorted(sentences, borders[:-1], "right") - 1
    # positions count a separator before each document that begins inside a block
    place = borders + np.searchsorted(breaks, borders, "right")
    # for every border the last one that a block from there may reach, whole pieces only
    reach = np.searchsorted(place, place[:-1] + size, "right") - 1
    reach = np.minimum(reach, np.searchsorted(borders, limit[home], "left"))
    edge = chain(np.maximum(reach, np.arange(len(reach)) + 1))
    starts = borders[edge]
    stops = borders[[*edge[1:], len(reach)]]
    ends = np.stack([starts, stops], axis=1)
    return Cut(starts, stops, breaks, edges=bounds[np.searchsorted(bounds, ends)] == ends)


@dataclass(frozen=True)
class SentencePairs:
    """BERT's cut into pairs of parts; flag 1 where the second part is from another document.

    A block is a run of sentences of one document, split between two of them into parts a and b.
    With a probability b is replaced by sentences of another document; the sentences that b had are
    then put back: the next block begins with them. Everything is drawn for each sentence as if a
    block began there, on lengths alone; only the chain of beginnings is followed one by one.
    Devlin et al. 2019; `create_pretraining_data.py` of the official code.

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
        edge, home, first = without_empty(sentences, documents)
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
        begin = _draw_from_others(home, first, rng)
        room = np.maximum(target - (edge[split] - edge[:-1]), 1)
        fetched = begin + 1
        if not self.single:
            fetched = _reach(edge, begin, room, first[home[begin] + 1])
        # the next block begins where this one ends; after part a if part b is from elsewhere
        kind = far.astype(np.int64)
        if self.same:
            near, begin_near, limit_near = _draw_from_same(split, home, first, rng)
            near &= ~far & (rng.random(len(home)) * (1 - self.random) < self.same)
            reach = np.maximum(_reach(edge, begin_near, room, limit_near), begin_near + 1)
            begin, fetched = np.where(near, begin_near, begin), np.where(near, reach, fetched)
            kind = 2 * far + near
            far = far | near
        used = chain(np.where(far, split, end))
        a = edge[np.stack([here, split], axis=1)[used]]
        following = np.stack([split, end], axis=1)[used]
        elsewhere = np.stack([begin, fetched], axis=1)[used]
        b = edge[np.where(far[used, None], elsewhere, following)]
        return cut_parts(a, b, size, rng, kind[used])


@dataclass(frozen=True)
class Turns:
    """A cut of dialogues, whose sentences are turns, into runs of three; flag 1 where the first or
    the last turn of a run is one of another dialogue (ERNIE 1.0).

    Sun et al. 2019, arXiv 1904.09223, section 4.2. A run of one turn is left as it is.
    """

    random: float = 0.5  # probability of another dialogue's turn

    def __call__(self, sentences: Ids, documents: Ids, size: int, rng: np.random.Generator) -> Cut:
        edge, home, first = without_empty(sentences, documents)
        here = np.flatnonzero((np.arange(len(home)) - first[home]) % 3 == 0)
        end = np.minimum(here + 3, first[home[here] + 1])
        far = (rng.random(len(here)) < self.random) & (end > here + 1)
        opens = far & (rng.random(len(here)) < 0.5)  # the first turn is replaced, or the last
        drawn = _draw_from_others(home, first, rng)[here]
        # sentence numbers [start, stop) of the other dialogue's turn, and of those that are kept
        other = np.stack([drawn, drawn + 1], axis=1)
        kept = np.stack([here + opens, end - (far & ~opens)], axis=1)
        other_first = opens[:, None]
        a = edge[np.where(other_first, other, kept)]
        # a run that is kept whole has no second part
        b = edge[np.where(far[:, None], np.where(other_first, kept, other), 0)]
        return cut_parts(a, b, size, rng, far.astype(np.int64))


def without_empty(sentences: Ids, documents: Ids) -> tuple[Ids, Ids, Ids]:
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


def _draw_from_others(home: Ids, first: Ids, rng: np.random.Generator) -> Ids:
    """For each sentence a random one of another document (of the same if there is only one)."""
    documents = len(first) - 1
    other = home
    if documents > 1:
        other = (home + rng.integers(1, documents, len(home))) % documents
    return rng.integers(first[other], first[other + 1])


def _draw_from_same(
    split: Ids, home: Ids, first: Ids, rng: np.random.Generator
) -> tuple[Bools, Ids, Ids]:
    """For a part from each sentence to before `split`: a random sentence of the document that is
    neither in it nor next to it. Returns whether there is one, its number, and the end of the
    sentences that may follow it."""
    here = np.arange(len(home))
    start = first[home]
    stop = first[home + 1]
    # those before the part, but the last, and those after it, but the first
    before = np.maximum(here - 1 - start, 0)
    after = np.maximum(stop - split - 1, 0)
    pick = rng.integers(np.maximum(before + after, 1))  # among both, in their order
    early = pick < before
    begin = np.where(early, start + pick, split + 1 + pick - before)
    near = before + after > 0
    return near, np.where(near, begin, here), np.where(early, here - 1, stop)


def cut_parts(a: Ids, b: Ids, size: int, rng: np.random.Generator, flags: Ids) -> Cut:
    """The cut of texts of two parts [n, 2], each shortened to `size` tokens: the longer part loses
    some, at its front or back with equal chances, until both fit."""
    long_a, long_b = a[:, 1] - a[:, 0], b[:, 1] - b[:, 0]
    over = np.maximum(long_a + long_b - size, 0)
    # first the longer part alone
    first = np.minimum(over, np.abs(long_a - long_b))  # until they are equally long
    rest = over - first
    # then in turns, and b first
    cuts = [
        (a, np.where(long_a > long_b, first, 0) + rest // 2),
        (b, np.where(long_a > long_b, 0, first) + (rest + 1) // 2),
    ]
    fronts = [rng.binomial(lost, 0.5) for _, lost in cuts]
    a, b = (
        np.stack([part[:, 0] + front, part[:, 1] - (lost - front)], axis=1)
        for (part, lost), front in zip(cuts, fronts, strict=True)
    )
    return Cut(a[:, 0], a[:, 1], NO_BREAKS, b, flags)
