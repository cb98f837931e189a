"""Numbered texts and records over one or several corpora, as the plan of an epoch needs them."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from unitk.data.corpus.columns import WORDS
from unitk.data.corpus.corpus import Corpus, Labelled
from unitk.data.cuts import AT_THE_END, NO_BREAKS, Cut, Cutter, Text, When, cut, drop_repeats
from unitk.slots import Doubles, Ids


class Joined:
    """Several corpora in order; `first[i]` is the number of the first example of corpus i."""

    first: list[int]
    tokens: Ids  # of each example
    lengths: Ids  # the same with separators between documents

    @property
    def words(self) -> Ids | None:
        """Words of each example, where all corpora say how many they have."""
        return None

    def weights(self, weight: Sequence[float]) -> Doubles:
        """The weight of each example, given one per corpus."""
        return np.repeat(np.asarray(weight, np.float64), np.diff(self.first))

    def locate(self, index: int) -> tuple[int, int]:
        """The corpus of an example, and its number there."""
        which = bisect.bisect_right(self.first, index) - 1
        return which, index - self.first[which]


class Texts(Joined):
    """Corpora of documents, cut anew for each epoch."""

    def __init__(
        self,
        corpora: Sequence[Corpus],
        *,
        blocks: str | Cutter,
        size: int,
        separator: int,
        seed: int,
        both_ways: bool = False,
        carried: bool = False,
    ) -> None:
        """With `both_ways`, all texts come once more in reverse order, flagged 1. With `carried`, a
        model reads each text with states that it carries from the one before."""
        self.corpora = corpora
        self.blocks = blocks
        self.size = size
        self.carried = carried
        self.separator = separator
        self.seed = seed
        self.both_ways = both_ways
        self.epoch: int | None = None

    def begin(self, epoch: int, size: int | None = None) -> None:
        """Cut the corpora for this epoch; `lengths` and `text` then refer to it.

        `size` replaces the block size.
        """
        self.size = size or self.size
        self.cuts = list[Cut]()
        for number, corpus in enumerate(self.corpora):
            rng = np.random.default_rng([self.seed, epoch, number])
            self.cuts.append(cut(self.blocks, corpus.sentences, corpus.documents, self.size, rng))
        self.tokens, self.lengths = (
            self._append_reverse(np.concatenate([getattr(part, name) for part in self.cuts]))
            for name in ("tokens", "lengths")
        )
        self.first = [0, *itertools.accumulate(len(part.starts) for part in self.cuts)]
        self._words: Ids | None = None
        self.epoch = epoch

    @property
    def words(self) -> Ids | None:
        if not all(corpus.has(WORDS) for corpus in self.corpora):
            return None
        if self._words is None:
            words_of_blocks = [np.empty(0, np.int64)]
            for corpus, cut in zip(self.corpora, self.cuts, strict=True):
                runs = np.stack([cut.starts, cut.stops], axis=1), cut.seconds.reshape(-1, 2)
                counts = [np.diff(_words_before(corpus, run))[:, 0] for run in runs if len(run)]
                if counts:
                    words_of_blocks.append(np.sum(counts, axis=0))
            self._words = self._append_reverse(np.concatenate(words_of_blocks))
        return self._words

    def _append_reverse(self, table: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """A table with a row for each text; with `both_ways`, its rows come again in reverse."""
        return np.concatenate([table, table[::-1]]) if self.both_ways else table

    def weights(self, weight: Sequence[float]) -> Doubles:
        return self._append_reverse(super().weights(weight))

    def locate(self, index: int) -> tuple[int, int]:
        # with `both_ways`, the second half are the same texts in reverse order
        back, number = divmod(index, self.first[-1])
        return super().locate(self.first[-1] - 1 - number if back else number)

    def text(self, index: int, when: When = AT_THE_END) -> Text:
        """Text `index` of the epoch that `begin` has cut, for an update."""
        which, i = self.locate(index)
        block, corpus = self.cuts[which], self.corpora[which]
        runs = [(int(block.starts[i]), int(block.stops[i]))]
        if len(block.seconds):
            begin, end = block.seconds[i].tolist()
            if begin < end:
                runs.append((begin, end))
        back = index // self.first[-1]
        flag = int(block.flags[i]) if len(block.flags) else back
        parts = [corpus.tokens(*run) for run in runs]
        notes = corpus.notes(*runs)
        begins, ends = block.edges[i].tolist() if len(block.edges) else (True, True)
        position = begins, ends, self.carried, lambda: self.neighbors(which, i)
        if not len(block.breaks):
            return Text(parts, lambda: _sentences(corpus, runs), notes, flag, when, *position)
        inside = block.breaks[slice(*block.inside[i])] - runs[0][0]
        # a separator closes each document that ends inside the block
        parts = [_insert(parts[0], inside, self.separator)]
        notes = None if notes is None else _insert(notes, inside, 0)

        def borders() -> Ids:
            # a separator moves what follows it by one place; the first sentence begins at 0
            sentences = _sentences(corpus, runs)
            return sentences + np.searchsorted(inside, sentences, "right") * (sentences > 0)

        return Text(parts, borders, notes, flag, when, *position)

    def neighbors(self, which: int, i: int) -> tuple[Ids, Ids]:
        """The symbol before and the symbol after block i of a corpus, [1] or [] each."""
        block = self.cuts[which]
        tokens = self.corpora[which].tokens
        start, stop = int(block.starts[i]), int(block.stops[i])
        before = after = NO_BREAKS
        if i and block.stops[i - 1] == start:
            separated = start in block.breaks[slice(*block.inside[i - 1])][-1:]
            before = np.array([self.separator]) if separated else tokens(start - 1, start)
        if i + 1 < len(block.starts) and block.starts[i + 1] == stop:
            separated = stop in block.breaks[slice(*block.inside[i + 1])][:1]
            after = np.array([self.separator]) if separated else tokens(stop, stop + 1)
        return before, after


def _insert(tokens: Ids, places: Ids, symbol: int) -> Ids:
    """`np.insert` of one symbol at these places, several times as fast."""
    longer = np.full(len(tokens) + len(places), symbol)
    words = np.ones(len(longer), bool)
    words[places + np.arange(len(places))] = False
    longer[words] = tokens
    return longer


def _words_before(corpus: Corpus, places: Ids) -> Ids:
    """The number of words before each token; within a sentence it grows in proportion."""
    at = corpus.sentences.searchsorted(places, "right").clip(1, corpus.counts.sentences) - 1
    start, words = corpus.sentences[at], corpus.words[at]
    size = np.maximum(corpus.sentences[at + 1] - start, 1)
    return words + (places - start) * (corpus.words[at + 1] - words) // size


def _sentences(corpus: Corpus, runs: list[tuple[int, int]]) -> Ids:
    """Where sentences begin in the joined tokens of some runs [start, stop) of a corpus."""
    sentences = []
    done = 0
    for start, stop in runs:
        # those that begin inside; the first one may have begun before
        low, high = corpus.sentences.searchsorted((start + 1, stop))
        # a sentence without tokens begins where the next one does
        inside = drop_repeats(corpus.sentences[low:high]) - start
        sentences += [np.array([done]), done + inside]
        done += stop - start
    return np.concatenate(sentences)


class Records(Joined):
    """Corpora of records; sources and targets beyond the limits are truncated at their end."""

    def __init__(self, corpora: Sequence[Any], max_source: int, max_target: int) -> None:
        self.corpora = corpora
        self.max_source = max_source
        self.max_target = max_target
        source, target, self.parts = (
            np.concatenate([getattr(corpus, name) for corpus in corpora])
            for name in ("source_lengths", "target_lengths", "source_parts")
        )
        self.source_lengths: Ids = np.minimum(source, max_source)
        self.target_lengths: Ids = np.minimum(target, max_target)
        self.tokens = self.lengths = self.source_lengths + self.target_lengths
        self.shortened = int(((source > max_source) | (target > max_target)).sum())
        self.first = [0, *itertools.accumulate(map(len, corpora))]

    def record(self, index: int) -> tuple[list[Ids], Any]:
        """The parts of source `index`, and its target."""
        which, number = self.locate(index)
        source, target = self.corpora[which].record(number)
        short = shorten(source, self.max_source)
        return self.corpora[which].shorten(target, short, self.max_target)


class Windows:
    """Questions whose long passages are read in windows of `max_source` tokens.

    A window that does not contain the whole answer has none, as in BERT's run_squad.py.
    """

    def __init__(self, corpus: Labelled, max_source: int) -> None:
        self.corpus = corpus
        passages = np.diff(corpus.sentences)[corpus.documents[1:] - 1]
        self.size = np.maximum(max_source - (corpus.source_lengths - passages), 0)
        self.question, self.start = windows(passages, self.size)
        cut = np.maximum(passages - self.size, 0) * (self.size > 0)
        self.source_lengths: Ids = (corpus.source_lengths - cut)[self.question]
        self.source_parts: Ids = corpus.source_parts[self.question]
        self.target_lengths = corpus.target_lengths[self.question]

    def __len__(self) -> int:
        return len(self.question)

    def record(self, index: int) -> tuple[list[Ids], Any]:
        """The question, a window of its passage, and the answer's tokens in it."""
        number, start = self.question[index], self.start[index]
        parts, span = self.corpus.record(number)
        size = self.size[number] or len(parts[-1])
        whole = start <= span[0] and span[1] <= start + size
        span = span - start if whole else np.full(2, -1)
        return [*parts[:-1], parts[-1][start : start + size]], span

    def shorten(self, span: Any, source: list[Ids], limit: int) -> tuple[list[Ids], Any]:
        """Truncate question and window if the question alone is too long."""
        return self.corpus.shorten(span, source, limit)


def windows(lengths: Ids, sizes: Ids) -> tuple[Ids, Ids]:
    """Windows over passages of these lengths: the passage of each, and its first token.

    Neighbouring windows share half of their tokens. The last two of a passage share more, as the
    last window ends with the passage. A passage with window size 0 is read whole.
    """
    over = np.maximum(lengths - sizes, 0) * (sizes > 0)
    step = np.maximum(sizes // 2, 1)
    counts = 1 - (-over // step)
    passage = np.arange(len(lengths)).repeat(counts)
    number = np.arange(len(passage)) - (counts.cumsum() - counts)[passage]
    return passage, np.minimum(number * step[passage], over[passage])


def shorten(source: list[Ids], limit: int | None) -> list[Ids]:
    """Cut the last part so that all parts together have at most `limit` tokens, if they have more.

    Only when the earlier parts alone are too long are they cut as well, from their end.
    """
    if limit is None or sum(map(len, source)) <= limit:
        return source
    kept = []
    room = limit
    for part in source:
        kept.append(part[:room])
        room -= len(kept[-1])
    return kept
