"""ERNIE 2.0's tasks of sentences.  Sun et al. 2020, arXiv 1907.12412, "Structure-aware" and
"Semantic-aware Pre-training Tasks".

C is asked for a class of the whole text. `order`: a paragraph is cut between sentences into 1 to m
segments, which are shuffled. The classes are all orders of 1, of 2, ..., of m segments.

    text     a b | c d e | f           shown in the order 2, 0, 1 of 012 021 102 120 201 210
    token    C  f  S  a  b  S  c  d  e  S
    seg      0  0  0  1  1  1  2  2  2  2
    order    7  .  .  .  .  .  .  .  .  .      1 + 2 orders of fewer segments, then the fifth

`distance`: two parts follow each other (0), are of one document (1), or of two (2). `relevance`: a
query and a title that was clicked (0), that was shown beside it (1), or any other (2).

    token    C  a  b  S  c  d  S
    seg      0  0  0  0  1  1  1
    distance 2  .  .  .  .  .  .

`discourse`: of two sentences, the second began with a connective, which is left out.

    text     a b . However , c .
    token    C  a  b  .  S  c  .  S
    discourse 3 .  .  .  .  .  .  .            the fourth of the list of connectives
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import factorial

import numpy as np

from unitk.data.cuts import Cut, cut_parts, without_empty
from unitk.slots import Bools, Example, Ids, stay
from unitk.tasks.base import frame_parts
from unitk.tasks.mlm import ask_sentences


def layout(name: str, parts: list[Ids], label: int, cls: int, sep: int) -> Example:
    """Lay out parts, and ask C for a class."""
    tokens, seg = frame_parts(parts, cls, sep)
    slots = stay(tokens, pos=np.arange(len(tokens)), seg=seg)
    return Example({"x": slots}, [ask_sentences(name, label)])


def num_orders(segments: int) -> int:
    """How many orders 1 to `segments` segments have in all."""
    return sum(factorial(n) for n in range(1, segments + 1))


def shuffle_segments(
    text: Ids, borders: Ids, most: int, rng: np.random.Generator
) -> tuple[list[Ids], int]:
    """A text in up to `most` segments, cut at some of the `borders`, in a random order; its class.

    The number of segments and the order are uniform.
    """
    count = int(rng.integers(1, min(most, len(borders) + 1) + 1))
    cuts = np.sort(rng.permutation(borders)[: count - 1])
    segments = np.split(text, cuts)
    order = tuple(rng.permutation(count).tolist())
    # permutations come in lexicographic order
    rank = list(permutations(range(count))).index(order)
    return [segments[i] for i in order], num_orders(count - 1) + rank


def find_connectives(
    text: Ids, starts: Ids, words: Bools, markers: dict[tuple[int, ...], int]
) -> list[tuple[int, int, int]]:
    """Find the sentences that begin with a connective and are not the first of their text.

    Returns the number of each, and the size in tokens and the class of its connective.
    `starts` are the offsets of all sentences. `words` [n] tells which tokens begin a word: one must
    come after a connective.
    """
    sizes: Sequence[int] = sorted({len(marker) for marker in markers}, reverse=True)
    connectives = []
    for number, start in enumerate(starts.tolist()[1:], start=1):
        stop = starts[number + 1] if number + 1 < len(starts) else len(text)
        for size in sizes:
            label = markers.get(tuple(text[start : start + size].tolist()))
            if label is not None and start + size < stop and words[start + size]:
                connectives.append((number, size, label))
                break
    return connectives


@dataclass(frozen=True)
class Queries:
    """A cut of documents whose first sentence is a query, the second the title that was clicked,
    and the others titles that were shown. A block is a query and one title (ERNIE 2.0).

    Sun et al. 2020, arXiv 1907.12412, "IR Relevance Task". Flag 0: clicked, 1: shown, 2: a title of
    another document. The flags are equally frequent among documents with a title that was shown.
    """

    def __call__(self, sentences: Ids, documents: Ids, size: int, rng: np.random.Generator) -> Cut:
        edge, _, first = without_empty(sentences, documents)
        counts = np.diff(first)
        document = np.arange(len(first) - 1)
        flag = rng.integers(3, size=len(document))
        flag = np.where((flag == 1) & (counts < 3), 2 * rng.integers(2, size=len(document)), flag)
        # a document other than the own one, as long as there are two
        other = (document + rng.integers(1, max(len(document), 2), len(document))) % max(
            len(document), 1
        )
        other_document = np.where(flag == 2, other, document)
        # sentence 0 of a document is its query, 1 was clicked
        least = 1 + (flag == 1)
        place = rng.integers(least, np.maximum(counts[other_document], least + 1))
        place = np.where(flag == 0, 1, place)
        kept = (
            (counts > 1)
            & (counts[other_document] > 1)
            & ((flag < 2) == (other_document == document))
        )
        query = first[:-1][kept]
        title = (first[other_document] + place)[kept]
        a, b = (edge[np.stack([row, row + 1], axis=1)] for row in (query, title))
        return cut_parts(a, b, size, rng, flag[kept])
