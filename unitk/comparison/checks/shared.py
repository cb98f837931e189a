"""Texts that train and held-out corpora share: exact copies, and near ones by their 13-grams.

Brown et al. 2020, arXiv 2005.14165, appendix C, look for 13-grams of words; these are of tokens.
Only the hashes of held-out texts are kept, and train is read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from unitk.comparison.checks.base import DataSplit, Finding, Found, Status, Subjects
from unitk.data.corpus.corpus import Corpus
from unitk.data.corpus.folders import open_corpus
from unitk.registry import register
from unitk.slots import Ids

SIZE = 13  # tokens
NEAR = 0.5  # share of a text's 13-grams in train from which on it is nearly the same
SHOWN = 3  # texts that a line names
STEP = 1 << 22  # tokens that are read at a time
BASE = np.uint64(0x9E3779B97F4A7C15)

Hashes = npt.NDArray[np.uint64]


@register("check", "shared")
def check_shared(subjects: Subjects) -> Found:
    """Held-out texts that are in train, too, exactly or nearly."""
    for split in subjects.all_splits():
        if not split.held_out:
            yield Finding("note", "shared", split.name, "there is no held-out text")
        for name, held in split.opened():
            yield compare_texts(split, name, held, subjects.shared)


def compare_texts(split: DataSplit, name: str, held: Any, allowed: float) -> Finding:
    """What the texts of a held-out corpus, or its sources, share with those of train."""
    trained = [open_corpus(place).sides[0] for place in split.train]
    same, share, size = shared_texts(held.sides[0], trained)
    alike = same | (share >= NEAR)
    exact, every, count = int(same.sum()), int(alike.sum()), len(same)
    # of all 13-grams, not the mean of texts
    covered = 100 * float((share * size).sum()) / max(int(size.sum()), 1)
    text = f"{exact} of {count} texts are in train, {every - exact} nearly"
    text += f"; {covered:.2f} % of {SIZE}-grams"
    if every:
        text += f" (text {', '.join(str(i + 1) for i in np.flatnonzero(alike)[:SHOWN])})"
    status: Status = "ok" if not every else "note" if every / count <= allowed else "FAULT"
    figures = {"texts": count, "exact": exact, "near": every - exact, "grams": covered / 100}
    return Finding(status, "shared", f"{split.name} {name}", text, figures)


def shared_texts(
    held: Corpus, trained: list[Corpus]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64], Ids]:
    """For each held-out document: whether it is one of train, which share of its 13-grams is in
    train, and how many it has."""
    bounds = np.asarray(held.sentences)[np.asarray(held.documents)]
    tokens = held.tokens(int(bounds[0]), int(bounds[-1]))
    bounds = bounds - bounds[0]
    # one hash of a whole document, one of each run of 13 tokens
    whole, grams = whole_hashes(tokens, bounds), gram_hashes(tokens)
    length = np.diff(bounds)
    size = np.maximum(length - SIZE + 1, 0)
    # the 13-grams that do not cross the end of a document
    inside = np.repeat(bounds[1:], length)[: len(grams)] - np.arange(len(grams)) >= SIZE
    known = np.unique(grams[inside])
    seen, same = np.zeros(len(known), bool), np.zeros(len(whole), bool)
    for corpus in trained:
        for part, borders in documents_of(corpus):
            seen |= np.isin(known, gram_hashes(part))
            same |= np.isin(whole, whole_hashes(part, borders))
    # hits before each place, whose differences count those of a document
    hit = np.zeros(len(grams), bool)
    hit[inside] = seen[known.searchsorted(grams[inside])]
    found = np.concatenate([[0], np.cumsum(hit)])
    last = np.minimum(bounds[:-1] + size, len(grams))
    own = found[last] - found[np.minimum(bounds[:-1], len(grams))]
    return same & (length > 0), own / np.maximum(size, 1), size


def documents_of(corpus: Corpus) -> Iterator[tuple[Ids, Ids]]:
    """Whole documents, about `STEP` tokens at a time: the tokens, and where documents begin."""
    bounds = np.asarray(corpus.sentences)[np.asarray(corpus.documents)].astype(np.int64)
    first = 0
    while first < len(bounds) - 1:  # one document at least, however long it is
        last = int(np.searchsorted(bounds, bounds[first] + STEP, "right")) - 1
        last = min(max(last, first + 1), len(bounds) - 1)
        tokens = corpus.tokens(int(bounds[first]), int(bounds[last]))
        yield tokens, bounds[first : last + 1] - bounds[first]
        first = last


def gram_hashes(tokens: Ids) -> Hashes:
    """A hash of the 13 tokens from each token on, but the last 12."""
    count = max(len(tokens) - SIZE + 1, 0)
    found = np.zeros(count, np.uint64)
    for offset in range(SIZE):
        found = (found + tokens[offset : offset + count].astype(np.uint64) + np.uint64(1)) * BASE
        found ^= found >> np.uint64(29)
    return found


def whole_hashes(tokens: Ids, bounds: Ids) -> Hashes:
    """A hash of each document, whose tokens are [bounds[i], bounds[i + 1])."""
    length = np.diff(bounds)
    powers = np.cumprod(np.full(int(length.max(initial=0)) + 1, BASE))  # modulo 2^64
    place = np.arange(len(tokens)) - np.repeat(bounds[:-1], length)
    mixed = (tokens.astype(np.uint64) + np.uint64(1)) * powers[place]
    total = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed)])
    return (total[bounds[1:]] - total[bounds[:-1]]) * BASE + length.astype(np.uint64)
