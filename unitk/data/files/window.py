"""Passages around answers: their sentences (Du et al. 2017), windows of them (Du et al. 2022)."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import regex

from unitk.data.files.pairs import PairText
from unitk.data.files.squad import SENTENCE, SQUAD_SOURCE, arrange
from unitk.errors import DataError
from unitk.vocab.base import Vocab
from unitk.vocab.scripts import CHARACTER, STOP, UNIT

SENTENCE_END = regex.compile(rf"{STOP.pattern}|\n", regex.V1)


def cut_window(
    pair: PairText, limit: int | None, vocab: Vocab, form: str = SQUAD_SOURCE
) -> PairText:
    """Shorten the passage to what the source in this form needs, and to at most `limit` tokens.

    First the sentences are taken, if the form asks for them. Of what is longer than `limit`, a
    window is kept, the largest one that fits. It has equally many words before and after `focus`,
    unless the part begins or ends there. Words are whole, unless those of the focus alone are too
    long. The focus stays whole, even if it alone is too long.
    Raises DataError if there is something to shorten and no focus.
    """
    pair = sentences_of(pair, form)
    answer, passage = pair.source

    def tokens(text: str) -> int:
        return sum(len(vocab.encode(part)) for part in arrange([answer, text], form))

    if limit is None or tokens(passage) <= limit:
        return pair
    for unit in (UNIT, CHARACTER):
        kept = _widest(pair, unit, lambda text: tokens(text) <= limit)
        if tokens(kept.source[1]) <= limit:
            break
    return kept


def _widest(pair: PairText, unit: Any, fits: Callable[[str], bool]) -> PairText:
    """The pair with the widest window of its passage that fits; or at least the units of the focus.

    `unit` is the pattern of what a window is made of.
    """
    passage = pair.source[1]
    first, stop = _focus(pair)
    units = [match.span() for match in unit.finditer(passage)]
    before = sum(end <= first for _, end in units)
    after = sum(start >= stop for start, _ in units)

    def cut(more: int) -> tuple[int, int]:
        """The characters of the focus and of `more` units, shared between both sides."""
        left = min(before, max(more // 2, more - after))  # half, or what the other side lacks
        last = len(units) - after + more - left
        return units[before - left][0], units[last - 1][1]

    # tokens of a window grow with its words: the largest that fits, by bisection
    sizes = range(before + after + 1)
    least = bisect.bisect_left(sizes, True, key=lambda more: not fits(passage[slice(*cut(more))]))
    return _crop(pair, *cut(max(least - 1, 0)))


def sentences_of(pair: PairText, form: str) -> PairText:
    """A pair whose passage is cut to the sentences that `focus` touches, if the form asks for it.

    Raises DataError without a focus.
    """
    if SENTENCE not in form:
        return pair
    passage = pair.source[1]
    first, stop = _focus(pair)
    ends = [0, *(match.end() for match in SENTENCE_END.finditer(passage)), len(passage)]
    start = max(end for end in ends if end <= first)
    end = min(end for end in ends if end >= stop)
    kept = passage[start:end]
    start += len(kept) - len(kept.lstrip())
    return _crop(pair, start, start + len(kept.strip()))


def _crop(pair: PairText, start: int, end: int) -> PairText:
    """The pair with these characters of its passage."""
    answer, passage = pair.source
    first, stop = _focus(pair)
    return replace(pair, source=[answer, passage[start:end]], focus=(first - start, stop - start))


def _focus(pair: PairText) -> tuple[int, int]:
    if pair.focus is None:
        raise DataError(f"answer {pair.source[0]!r} is not in its passage, so nothing is around it")
    return pair.focus
