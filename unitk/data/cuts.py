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
from unitk.slots import Ids

When = tuple[int, int | None]
"""The number of an update from 1 on, and how many the run has, if that is known."""
AT_THE_END: When = 1 << 40, 1 << 40
"""What all but training reads, so that its figures compare: every schedule has come to its end."""
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
    def behind(self) -> Ids:
        """The symbol behind the text, if there is one: [1] or []."""
        return self.beside()[1]


@dataclass(frozen=True)
class Cut:
    """Blocks of a corpus as token offsets [starts, stops); `breaks` are document starts inside.

    `seconds` [n, 2], if given, are the second parts of the blocks, empty where a block has one part
    only. `flags` [n] is the verdict on the parts (1: they do not belong together). `edges` [n, 2],
    if given: whether a document begins with each block, and whether one ends with it; otherwise
    all do. `separated` [n, 2], if given, is the run of the breaks whose separators stand in each
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
        """The run of breaks [n, 2] whose separators stand in each block."""
        if len(self.separated):
            return self.separated
        first = np.searchsorted(self.breaks, self.starts, "right")
        last = np.searchsorted(self.breaks, self.stops, "left")
        return np.stack([first, np.maximum(first, last)], axis=1)

    @property
    def num_tokens(self) -> int:
        """The tokens of all blocks, without separators."""
        return int((self.stops - self.starts).sum() + np.diff(self.seconds).sum())

    @property
    def lengths(self) -> Ids:
        """The tokens of each block, including separators between documents."""
        lengths: Ids = self.stops - self.starts + np.diff(self.inside)[:, 0]
        return lengths + np.diff(self.seconds)[:, 0] if len(self.seconds) else lengths


class Cutter(Protocol):
    """Makes a cut from sentence borders, first sentences of documents, a block size, and draws."""

    def __call__(
        self, sentences: Ids, documents: Ids, size: int, rng: np.random.Generator
    ) -> Cut: ...


def cut_line(sentences: Ids, documents: Ids, size: int, rng: np.random.Generator) -> Cut:
    """One sentence a block; a sentence longer than `size` is truncated."""
    starts, ends = sentences[:-1], sentences[1:]
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
    breaks = distinct(bounds[1:-1])
    return _fill(_split_long(sentences, size), sentences, last, size, breaks, bounds)


def cut_stream(sentences: Ids, documents: Ids, size: int, rng: np.random.Generator) -> Cut:
    """Fixed windows over everything, with a separator between documents, at a random offset in
    every epoch."""
    bounds = distinct(sentences[documents])
    return _windows(bounds, bounds[1:-1], size, rng)


def cut_unbroken(sentences: Ids, documents: Ids, size: int, rng: np.random.Generator) -> Cut:
    """The same without separators."""
    return _windows(sentences, NO_BREAKS, size, rng)


def _windows(bounds: Ids, breaks: Ids, size: int, rng: np.random.Generator) -> Cut:
    begin, end = int(bounds[0]), int(bounds[-1])
    total = end - begin + len(breaks)
    offset = int(rng.integers(min(size, max(total, 1))))
    # edges count tokens and separators; of the latter those before an edge are no tokens
    edges = distinct(np.concatenate([[0], np.arange(offset, total, size), [total]]))
    number = np.searchsorted(breaks - begin + np.arange(len(breaks)), edges)
    border = begin + edges - number
    starts, stops = border[:-1], border[1:]
    full = stops > starts  # a window of one symbol may be a separator
    whole = np.stack([starts == begin, stops == end], axis=1)
    separated = np.stack([number[:-1], number[1:]], axis=1) if len(breaks) else NO_SECONDS
    separated = separated[full] if len(breaks) else separated
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


def distinct(rising: Ids) -> Ids:
    """Rising numbers, each once; `np.unique` takes a hundred times as long for millions."""
    new = np.append(True, rising[1:] > rising[:-1])
    return rising[new[: len(rising)]]


def chain(follow: Ids) -> list[int]:
    """The rising numbers 0, follow[0], follow[follow[0]], ... below the length of `follow`."""
    found, at, steps = list[int](), 0, follow.tolist()
    while at < len(steps):
        found.append(at)
        at = steps[at]
    return found


def _split_long(sentences: Ids, size: int) -> Ids:
    """Sentence borders, with further ones within sentences of more than `size` tokens."""
    lengths = np.diff(sentences)
    long = np.flatnonzero(lengths > size)
    extra = [np.arange(sentences[i] + size, sentences[i + 1], size) for i in long]
    return np.sort(np.concatenate([sentences, *extra])) if extra else sentences


def _fill(borders: Ids, sentences: Ids, limit: Ids, size: int, breaks: Ids, bounds: Ids) -> Cut:
    """Fill blocks greedily with pieces, up to `size` tokens and not beyond a sentence's `limit`.

    `bounds` are the first tokens of documents, and the end.
    """
    borders = distinct(borders)  # empty sentences share a border
    if len(borders) < 2:
        return Cut(borders[:0], borders[:0], breaks)
    home = np.searchsorted(sentences, borders[:-1], "right") - 1
    # positions count a separator before each document that begins inside a block
    ranks = np.searchsorted(breaks, borders, "right")
    place = borders + ranks
    # for every border the last one that a block from there may reach, whole pieces only
    reach = np.searchsorted(place, place[:-1] + size, "right") - 1
    reach = np.minimum(reach, np.searchsorted(borders, limit[home], "left"))
    edge = chain(np.maximum(reach, np.arange(len(reach)) + 1))
    starts, stops = borders[edge], borders[[*edge[1:], len(reach)]]
    both = np.stack([starts, stops], axis=1)
    return Cut(starts, stops, breaks, edges=bounds[np.searchsorted(bounds, both)] == both)
