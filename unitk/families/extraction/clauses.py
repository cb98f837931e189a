"""Which clauses of a source an output may leave out (`--extract`); torch-free."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import regex

from unitk.slots import Bools
from unitk.vocab.scripts import STOP

MARK = regex.compile(
    r"(\p{Ps}(?:[^\p{Ps}\p{Pe}]|(?1))*\p{Pe})"
    r"|[,;:](?=\s)|(?<=\s)\p{Pd}(?=\s)|[\p{SB=SContinue}--[\p{ASCII}\p{Pd}]]",
    regex.V1,
)
"""Brackets with all that they hold, or a mark between two clauses; no comma within a number."""


def find_jumps(pieces: Sequence[str]) -> Bools:
    """[n + 1, n + 1] whether token q of n may come where token p would, if nothing were left out.

    `pieces` are the texts of the tokens; the end symbol has number n.

    An output may leave out whole sentences. Within a sentence it may leave out brackets, and what
    is between two equal marks, or between a mark and the stop, with one mark.
    """
    text = "".join(pieces)
    ends = np.cumsum([len(piece) for piece in pieces]).tolist()
    border = {end: token for token, end in enumerate(ends, 1)}  # place in the text -> next token
    for token in reversed(range(len(pieces))):  # a blank goes with the word after it
        border[ends[token] - len(pieces[token].lstrip())] = token
    jumps: list[tuple[int, int]] = []  # from place to place
    sentences = [0]
    begin = 0
    for stop in STOP.finditer(f"{text} A"):
        end = len(text[: stop.end()].rstrip())
        if end in border:  # else a token reaches into the next sentence
            jumps += jumps_within(text, begin, stop.start())
            sentences.append(border[end])
            begin = end
    if not begin:
        jumps += jumps_within(text, 0, len(text))
        sentences.append(len(pieces))
    follows = np.eye(sentences[-1] + 1, dtype=bool)
    follows[np.ix_(sentences, sentences)] = True
    follows[0, -1] = False  # an output has a sentence
    for left, right in jumps:
        if left in border and right in border:
            follows[border[left], border[right]] = True
    return np.triu(follows)


def jumps_within(text: str, begin: int, stop: int) -> Iterator[tuple[int, int]]:
    """The places of a sentence between which an output may leave it out."""
    marks = []
    for mark in MARK.finditer(text, begin, stop):
        if mark[1]:
            yield mark.span()
        else:
            marks.append(mark)
            yield mark.start(), stop
    for left, right in itertools.combinations(marks, 2):
        if left[0] == right[0]:
            yield left.start(), right.start()
            yield left.start(), right.end()
            yield left.end(), right.end()
