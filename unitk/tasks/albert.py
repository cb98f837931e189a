"""ALBERT.  Lan et al. 2020, arXiv 1909.11942, sections 3.1 and 4.1, equation in 4.1.

N-grams of whole words are hidden, and two runs of sentences come in their order or swapped.

    parts    a b c | d e f           as they follow each other; here they are swapped
    token    C  d  e  M  S  a  M  M  S
    pos      0  1  2  3  4  5  6  7  8
    seg      0  0  0  0  0  1  1  1  1
    at       0  0  0  0  0  0  0  0  0
    mlm      .  .  .  f  .  .  b  c  .
    sop      1  .  .  .  .  .  .  .  .

An n-gram has n words with a probability in proportion to 1 / n; each of its tokens draws for itself
what it reads. It may run over the S between the parts, as in the official code. A document of one
sentence has one part, and its order is not asked for; the official code adds another's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unitk.data.cuts import SentencePairs, Text
from unitk.options.fields import Count, Positive, Share, Weights
from unitk.registry import register
from unitk.slots import Example
from unitk.spans import length_law, word_ngrams
from unitk.tasks.base import share_at
from unitk.tasks.mlm import Masked, ask_sentences
from unitk.vocab.base import Vocab


@register("task", "albert")
class ALBERT(Masked):
    """Predict hidden n-grams, and whether two parts are swapped (ALBERT)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Masked.Config):
        """Which words are hidden, what is shown of them, and the order of sentences."""

        mask_ratio: Share = 0.15
        """Share of hidden tokens; special symbols count. A schedule is possible: validation and
        evaluation use its last value."""
        max_ngram: Positive = 3
        """Longest n-gram, in words (section 4.1)."""
        mask_keep_random: Weights = (0.8, 0.1, 0.1)
        """Weights of the replacements of a hidden token: [MASK], itself, a random word."""
        copies: Count = 0
        """Repeat the same masks after this many epochs (official code: 40). 0: never."""
        sop: bool = True
        """Sentence order prediction: texts are pairs of parts, half of them swapped, and the model
        predicts which (section 3.1)."""

    config: Config
    arch = "albert_small"

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        self.copies = config.copies
        self.frame = 3 if config.sop else 2
        self.cut = SentencePairs(random=0, complete=False) if config.sop else None
        self.heads = ("class:sop:2",) if config.sop else ()

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        c = self.config
        swapped = c.sop and len(text.parts) > 1 and rng.random() < 0.5
        tokens, seg = self.frame_parts(text.parts[::-1] if swapped else text.parts)
        count = max(1, round(share_at(c.mask_ratio, text.when) * len(tokens)))
        free = self.maskable(tokens)
        law = length_law(tuple(1 / n for n in range(1, c.max_ngram + 1)))
        hidden = np.flatnonzero(free)[word_ngrams(self.units(tokens, free), count, law, rng)]
        example = self.corrupt(tokens, seg, hidden, rng)
        if c.sop and len(text.parts) > 1:
            example.asks.append(ask_sentences("sop", int(swapped)))
        return example
