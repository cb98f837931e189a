"""BART.  Lewis et al. 2020, arXiv 1910.13461, sections 2.2, 3.1 and figure 2.

The encoder reads a text whose sentences are permuted and whose spans are each one MASK; the decoder
writes the text.

    text     a  b  c  d  e  f            sentences a b c and d e f
    permuted d  e  f  a  b  c            spans [1, 3) and, of length 0, before b
             enc                         dec
    token    C  d  M  a  M  b  c  S      S  C  a  b  c  d  e  f
    pos      0  1  2  3  4  5  6  7      0  1  2  3  4  5  6  7
    at       0  0  0  0  0  0  0  0      0  1  2  3  4  5  6  7
    label    .  .  .  .  .  .  .  .      .  a  b  c  d  e  f  S

Lengths of spans are of words and follow a Poisson law, of which 0 is a part. Spans begin at
different words and may overlap; one that begins inside another has no MASK of its own.
Fine-tuning is that of an encoder-decoder. A prompt with MASKs is written without them.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import Annotated

import numpy as np

from unitk.data.cuts import Text
from unitk.options.fields import Bound, Chance, Share
from unitk.registry import register
from unitk.slots import Example, Ids, unroll
from unitk.spans import Spans, poisson_counts
from unitk.tasks.base import max_share, share_at
from unitk.tasks.seq2seq import Opening, Seq2Seq


def infill_spans(tokens: Ids, spans: Spans, shown: Ids) -> Ids:
    """Tokens with one of `shown` for each span; one that begins inside another leaves nothing."""
    start, stop = spans.T
    depth = np.zeros(len(tokens) + 1, np.int64)  # of places after the first one of a span
    np.add.at(depth, start + 1, 1)
    np.add.at(depth, stop, -1)
    read = tokens.copy()
    read[start] = shown
    # the running sum counts the spans that a place is inside of, after their first one
    return read[depth.cumsum()[:-1] == 0]


@register("task", "bart")
class BART(Seq2Seq):
    """Write a text whose spans are masked and whose sentences are permuted (BART)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Seq2Seq.Config):
        """The law of spans, and which sentences change places."""

        mask_ratio: Share = 0.3
        """Share of the words that spans hide (section 3). A schedule is possible: validation and
        evaluation use its last value."""
        mean_span: Annotated[float, Bound(0.1, 1000, above=True)] = 3.0
        """Mean of the Poisson law of span lengths, in words (section 2.2). fairseq's commands have
        3.5."""
        permute_sentences: Chance = 1.0
        """Share of the sentences that change places (section 3)."""
        mask_random: Chance = 0.0
        """Probability that a random word replaces a span instead of [MASK]. Of spans of length 0 it
        is a share. fairseq's commands have 0.1."""
        opening: Opening = "both"
        """Symbols before source and target. both: [CLS] before the source, [SEP] [CLS] before the
        target, as in the released models. The other values are those of task seq2seq."""

    config: Config
    arch = "t5gemma_mini"
    infills = True

    def slots(self, n: Ids) -> Ids:
        return n + self.frame + self.inserts(n)

    def inserts(self, words: Ids) -> Ids:
        """The most spans of length 0: six deviations above the mean."""
        budget = np.ceil(max_share(self.config.mask_ratio) * words)
        mean = budget * np.exp(-self.config.mean_span) / self.config.mean_span
        return np.ceil(mean + 6 * np.sqrt(mean) + 1).astype(np.int64)

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        share = share_at(self.config.mask_ratio, text.when)
        ids = text.ids
        return super().finetune([self.add_noise(ids, text.sentences, share, rng)], ids, rng)

    def add_noise(self, ids: Ids, sentences: Ids, share: float, rng: np.random.Generator) -> Ids:
        """Corrupt a text whose sentences begin at these places, for the encoder."""
        c, v = self.config, self.vocab
        parts = np.split(np.arange(len(ids)), sentences[1:])
        moved = rng.permutation(len(parts))[: ceil(c.permute_sentences * len(parts))]
        order = np.arange(len(parts))
        order[moved] = rng.permutation(moved)
        tokens = ids[np.concatenate([parts[i] for i in order])]
        begins = v.starts[tokens]
        begins[np.cumsum([0, *(len(parts[i]) for i in order[:-1])])] = True  # sentences do, too
        edges = np.append(np.flatnonzero(begins), len(tokens))
        words = len(edges) - 1
        budget = max(1, ceil(share * words))
        max_zeros = int(self.inserts(np.array(len(ids))))
        lengths, zeros = poisson_counts(budget, c.mean_span, max_zeros, rng)
        first = rng.permutation(words)[: len(lengths)]
        spans = np.stack([edges[first], edges[np.minimum(first + lengths, words)]], axis=1)
        shown = np.full(len(lengths) + zeros, v.mask)
        chance = rng.random(len(shown))
        random = chance < c.mask_random
        # of those of length 0 a fixed share, rounded up (official code)
        random[chance[:zeros].argsort()] = np.arange(zeros) < ceil(c.mask_random * zeros)
        shown[random] = rng.choice(self.words, random.sum())
        read = infill_spans(tokens, spans, shown[zeros:])
        # spans of length 0, at any places of the result
        places = np.sort(rng.permutation(len(read) + zeros)[:zeros]) - np.arange(zeros)
        return np.insert(read, places, shown[:zeros])

    def lay_out_continuation(self, before: Ids, text: Ids) -> Example:
        """The encoder reads what is before and a MASK, the decoder what is before."""
        return unroll(
            self.start_decoder([np.append(before, self.vocab.mask)], before), self.protocol, text
        )
