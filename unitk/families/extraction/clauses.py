"""Which clauses of a source an output may leave out (`--extract`); torch-free."""

from __future__ import annotations

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
    border = np.full(len(text) + 1, -1)  # place in the text -> next token
    border[ends] = np.arange(1, len(pieces) + 1)
    for token in reversed(range(len(pieces))):  # a blank goes with the word after it
        border[ends[token] - len(pieces[token].lstrip())] = token
    jumps: list[tuple[int, Sequence[int]]] = []  # from a place to others
    sentences = [0]
    begin = 0
    for stop in STOP.finditer(f"{text} A"):
        end = len(text[: stop.end()].rstrip())
        if border[end] >= 0:  # else a token reaches into the next sentence
            jumps += jumps_within(text, begin, stop.start())
            sentences.append(int(border[end]))
            begin = end
    if not begin:
        jumps += jumps_within(text, 0, len(text))
        sentences.append(len(pieces))
    follows = np.eye(sentences[-1] + 1, dtype=bool)
    follows[np.ix_(sentences, sentences)] = True
    follows[0, -1] = False  # an output has a sentence
    for left, right in jumps:
        if border[left] >= 0:
            tokens = border[right]
            follows[border[left], tokens[tokens >= 0]] = True
    return np.triu(follows)


def jumps_within(text: str, begin: int, stop: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Places of a sentence, each with the later ones up to which an output may leave it out."""
    spans: dict[str, list[tuple[int, int]]] = {}  # of equal marks
    for mark in MARK.finditer(text, begin, stop):
        if mark[1]:
            yield mark.start(), [mark.end()]
        else:
            spans.setdefault(mark[0], []).append(mark.span())
            yield mark.start(), [stop]
    for equal in spans.values():
        starts, ends = map(list, zip(*equal, strict=True))
        for number, (start, end) in enumerate(equal, 1):
            yield start, starts[number:] + ends[number:]
            yield end, ends[number:]
