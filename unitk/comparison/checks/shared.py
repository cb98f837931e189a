"""Texts that train and held-out corpora share: exact copies, and near ones.

Texts are compared by their words, whatever their case, blanks and marks are. Brown et al. 2020,
arXiv 2005.14165, appendix C, look for runs of 13 words. A short text with one word changed has
none, so texts are also compared without each of their words, and by runs of 5 words with each text
of train. Only the hashes of held-out texts are kept, and train is read once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from unitk.comparison.checks.base import Finding, Findings, Status, Subjects
from unitk.comparison.checks.words import (
    HashedTexts,
    Hashes,
    hash_corpus,
    hash_runs,
    hash_texts,
    join_texts,
    runs_within,
)
from unitk.data.corpus.folders import corpus_vocab, open_corpus
from unitk.registry import register
from unitk.slots import Bools, Ids

LONG, SHORT = 13, 5  # words of a run
NEAR = 0.5  # share of a text's runs in train from which on it is nearly the same
LEAST = 8  # words from which on texts that differ in one of them are nearly the same
COMMON = 8  # held-out texts that have a run, beyond which it tells none of them
SHOWN = 3  # texts that a line names


@register("check", "shared")
def check_shared(subjects: Subjects) -> Findings:
    """Held-out texts that are in train, too, exactly or nearly."""
    for split in subjects.all_splits():
        if not split.held_out:
            yield Finding("note", "shared", split.name, "there is no held-out text")
        trained = [(open_corpus(place).sides[0], corpus_vocab(place)) for place in split.train]
        for name, held in split.open_splits():
            texts = join_texts(hash_corpus(held.sides[0], corpus_vocab(split.held_out[name])))
            parts = (part for corpus, vocab in trained for part in hash_corpus(corpus, vocab))
            yield compare_texts(f"{split.name} {name}", texts, parts, subjects.shared)


def compare_texts(
    subject: str, held: HashedTexts, trained: Iterable[HashedTexts], allowed: float
) -> Finding:
    """Compare held-out texts, or the sources of pairs, with those of train."""
    shared = find_shared(held, trained)
    alike = shared.same | shared.near
    exact = int(shared.same.sum())
    every = int(alike.sum())
    count = len(alike)
    # of all runs, not the mean of texts
    covered = float(shared.hits.sum()) / max(int(shared.runs.sum()), 1)
    text = f"{exact} of {count} texts are in train, {every - exact} nearly"
    text += f"; {100 * covered:.2f} % of {LONG}-grams"
    if every:
        text += f" (text {', '.join(str(i + 1) for i in np.flatnonzero(alike)[:SHOWN])})"
    status: Status = "ok"
    if every > allowed * count:
        status = "FAULT"
    elif every or covered > allowed:
        status = "note"
    figures = {"texts": count, "exact": exact, "near": every - exact, "grams": covered}
    return Finding(status, "shared", subject, text, figures)


@dataclass(frozen=True)
class SharedTexts:
    """For each held-out text, what it shares with train."""

    same: Bools  # [D] a text of train has the same words
    near: Bools  # [D] one differs in a word, or has half of the runs
    hits: Ids  # [D] runs of 13 words that are somewhere in train
    runs: Ids  # [D] runs of 13 words


def find_shared(held: HashedTexts, trained: Iterable[HashedTexts]) -> SharedTexts:
    """Compare held-out texts with those of train, which are read part by part."""
    lengths = held.lengths
    number = np.repeat(np.arange(len(lengths)), lengths)
    hashes, hashes_without = hash_texts(held)
    whole = Known.of(hashes, np.arange(len(hashes)))
    without = Known.of(hashes_without, number)
    long, short = (Known.of(*runs_within(held, size)) for size in (LONG, SHORT))
    runs, some_runs = (
        np.bincount(matches.text, minlength=len(lengths)) for matches in (long, short)
    )
    enough = NEAR * np.maximum(some_runs, LEAST - SHORT + 1)
    near = np.zeros(len(lengths), bool)
    for part in trained:
        other, other_without = hash_texts(part)
        whole.look_for(other)
        # a word more or less, or another one
        near[whole.text[whole.places_of(other_without)]] = True
        without.look_for(other)
        without.look_for(other_without)
        long.look_for(hash_runs(part.words, LONG))
        near |= most_in_one_text(short, *runs_within(part, SHORT), len(lengths)) >= enough
    near |= np.bincount(without.text[without.seen], minlength=len(lengths)) > 0
    near &= lengths >= LEAST
    hits = np.bincount(long.text[long.seen], minlength=len(lengths))
    near |= (hits >= NEAR * runs) & (runs > 0)
    same = np.bincount(whole.text[whole.seen], minlength=len(lengths)) > 0
    return SharedTexts(same & (lengths > 0), near, hits, runs)


@dataclass(frozen=True)
class Known:
    """Hashes of held-out texts in rising order, and which of them were seen in train; [K] each."""

    hashes: Hashes
    text: Ids  # the text that each is of
    seen: Bools

    @classmethod
    def of(cls, hashes: Hashes, text: Ids) -> Known:
        """Hashes with the number of their text."""
        order = np.argsort(hashes, kind="stable")
        return cls(hashes[order], text[order], np.zeros(len(order), bool))

    def spans_of(self, hashes: Hashes) -> tuple[Ids, Ids]:
        """Which of these hashes are known, and the first place of each of them."""
        if not len(self.hashes):
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        # sorted ones are looked up in the order of memory
        order = np.argsort(hashes)
        place = self.hashes.searchsorted(hashes[order])
        hit = self.hashes[np.minimum(place, len(self.hashes) - 1)] == hashes[order]
        return order[hit], place[hit]

    def places_of(self, hashes: Hashes) -> Ids:
        """All places of these hashes."""
        _, first = self.spans_of(hashes)
        return expand_spans(first, self.times[first])

    def look_for(self, hashes: Hashes) -> None:
        """Note which hashes are among these."""
        self.seen[self.places_of(hashes)] = True

    @cached_property
    def times(self) -> Ids:
        """How often the hash of each place is known from there on."""
        return self.hashes.searchsorted(self.hashes, "right") - np.arange(len(self.hashes))


def expand_spans(first: Ids, size: Ids) -> Ids:
    """The numbers of runs that begin at `first` and have these sizes, one after the other."""
    return np.arange(size.sum()) + np.repeat(first - (np.cumsum(size) - size), size)


def most_in_one_text(known: Known, hashes: Hashes, text: Ids, count: int) -> Ids:
    """For each held-out text, how many of its runs are in one of some texts, at most.

    These texts have the runs `hashes`, each of which is in a `text`.
    """
    which, place = known.spans_of(hashes)
    # a run counts once for each text that it is in
    pairs = np.sort(text[which] * len(known.hashes) + place)
    pairs = pairs[np.diff(pairs, prepend=-1) > 0]
    text, place = np.divmod(pairs, max(len(known.hashes), 1))
    size = known.times[place]
    telling = size <= COMMON
    text, place, size = text[telling], place[telling], size[telling]
    keys = np.repeat(text, size) * count + known.text[expand_spans(place, size)]
    keys, times = np.unique(keys, return_counts=True)
    most = np.zeros(count, np.int64)
    np.maximum.at(most, keys % max(count, 1), times)
    return most
