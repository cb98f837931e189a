"""UniLM.  Dong et al. 2019, arXiv 1905.03197, sections 2.1, 2.3 and figure 1.

Hidden tokens are predicted at their places, under one of four masks that the times alone make.

    text     a  b | c  d           hidden [2, 5]
    token    C  a  M  S  c  M  S       C  a  M  c  d  S   of one text a b c d, hidden [2]
    pos      0  1  2  3  4  5  6       0  1  2  3  4  5
    label    .  .  b  .  .  d  .       .  .  b  .  .  .
    at       0  0  0  0  0  0  0       0  1  2  3  4  5   both directions       left to right
    seg      0  0  0  0  1  1  1       2  2  2  2  2  2
    at       0  0  0  0  1  2  3       0 -1 -2 -3 -4 -5   sequence to sequence  right to left
    seg      4  4  4  4  5  5  5       3  3  3  3  3  3

Fine-tuning is sequence to sequence with hidden tokens in the target only, its S among them.
Decoding appends a MASK (a probe), reads it, and puts the word in its place. With a position shift
words are predicted at the one before, and hidden ones are misread only:

    token    C  a  b  S  c  M   label  .  .  .  c  d  S   at  0  0  0  1  2  3   seg 4 or 5
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np

from unitk.data.cuts import SentencePairs, Text
from unitk.errors import require
from unitk.options.fields import Chance, Share, Weighted, Weights
from unitk.registry import register
from unitk.slots import Example, Ids, Protocol, Row, lm, probe, stay, unroll
from unitk.spans import choose, corrupt, ngram_places
from unitk.tasks.base import Task, share_at
from unitk.tasks.mlm import ask_sentences
from unitk.vocab.base import Vocab

BOTH, SEQ2SEQ, LEFT, RIGHT = range(4)  # LEFT: from left to right


def layout(kind: int, tokens: Ids, first: int, hidden: Ids, shown: Ids) -> Example:
    """Lay out framed tokens, `first` of which belong to the first part, under one of four masks."""
    position = np.arange(len(tokens))
    second = position >= first
    times_and_segments: dict[int, tuple[Row, Row]] = {
        BOTH: (0, second),
        SEQ2SEQ: (np.maximum(position - first + 1, 0), 4 + second),
        LEFT: (position, 2),
        RIGHT: (-position, 3),
    }
    at, seg = times_and_segments[kind]
    read = tokens.copy()
    read[hidden] = shown
    slots = stay(read, pos=position, at=at, seg=seg)
    return Example({"x": slots}, [lm(hidden, tokens[hidden], name="mlm")])


@register("task", "unilm")
class UniLM(Task):
    """Predict hidden tokens under bidirectional, seq2seq and one-directional masks (UniLM)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Task.Config):
        """The four masks, which tokens are hidden, and what is shown of them."""

        shares: Annotated[tuple[float, float, float, float], Weighted()] = (2.0, 2.0, 1.0, 1.0)
        """Weights of the masks: both directions, seq2seq, left to right, right to left (section
        2.3: 1/3, 1/3, 1/6, 1/6)."""
        mask_ratio: Share = 0.15
        """Share of hidden tokens; special symbols count (section 2.3). A schedule is possible:
        validation and evaluation use its last value."""
        ngram_chance: Chance = 0.2
        """Probability that a bigram or trigram is hidden instead of one token (section 2.3)."""
        mask_keep_random: Weights = (0.8, 0.1, 0.1)
        """Weights of the replacements of a hidden token: [MASK], itself, a random word (section
        2.3)."""
        nsp: bool = True
        """Texts are pairs of parts. Under the bidirectional mask half of them are from two
        documents, and the model predicts which (section 2.3). off: --blocks cuts the texts."""
        target_mask_ratio: Chance = 0.7
        """Fine-tuning: share of the target tokens that are hidden (official recipes)."""
        position_shift: bool = False
        """Pairs: predict each token of the target at the one before it (s2s-ft, v0)."""

        def __post_init__(self) -> None:
            super().__post_init__()
            hides = self.target_mask_ratio > 0 or self.position_shift
            require(hides, "--task.target-mask-ratio must be in (0, 1], got 0")

    config: Config
    symbols = ("pad", "cls", "sep", "mask")
    arch = "qwen3_mini"
    segments = (0, 1, 0, 0, 0, 1)  # official code
    frame, from_nothing = 3, True

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        # the share of pairs from two documents: half of those with the bidirectional mask
        self.strangers = config.shares[BOTH] / sum(config.shares) / 2
        self.cut = SentencePairs(self.strangers, complete=False) if config.nsp else None
        self.heads = ("class:nsp:2",) if config.nsp else ()

    @cached_property
    def protocol(self) -> Protocol:
        v = self.vocab
        shift = self.config.position_shift
        return Protocol(end=v.sep, probe=None if shift else v.mask, banned=(v.pad, v.cls, v.mask))

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        v, c = self.vocab, self.config
        kind = self.kind(text, rng)
        parts = text.parts
        if kind in (LEFT, RIGHT):
            parts = [text.ids]
        elif kind == SEQ2SEQ and len(parts) == 1:  # split where a sentence begins, if one does
            borders = text.sentences[text.sentences > 0]
            parts = np.split(text.ids, [rng.choice(borders if len(borders) else len(text.ids))])
        tokens, part = self.frame_parts(parts)
        count = max(round(share_at(c.mask_ratio, text.when) * len(tokens)), 1)
        hidden = ngram_places(self.maskable(tokens), count, c.ngram_chance, 3, rng)
        shown = corrupt(tokens[hidden], v.mask, self.words, c.mask_keep_random, rng)
        first = int(part.searchsorted(1))  # tokens of the first part
        example = layout(kind, tokens, first, hidden, shown)
        if c.nsp and kind == BOTH and len(parts) > 1:
            example.asks.append(ask_sentences("nsp", text.flag))
        return example

    def kind(self, text: Text, rng: np.random.Generator) -> int:
        """The mask of a text; over all texts, strangers included, they have the config's shares."""
        if text.flag:  # strangers are seen in both directions only
            return BOTH
        bidirectional, *rest = (share / sum(self.config.shares) for share in self.config.shares)
        paired = self.config.nsp and len(text.parts) > 1
        return choose((bidirectional - self.strangers if paired else bidirectional, *rest), rng)

    def finetune(self, source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        v, c = self.vocab, self.config
        tokens, part = self.frame_parts([self.join(source), target])
        places = np.flatnonzero(part)  # the target's tokens and the S that ends it
        shift = int(c.position_shift)
        count = max(round(c.target_mask_ratio * len(target)), 1 - shift)
        hidden = np.sort(rng.permutation(places[: len(places) - shift])[:count])
        shown = corrupt(tokens[hidden], v.mask, self.words, c.mask_keep_random, rng)
        read = tokens[: len(tokens) - shift]
        example = layout(SEQ2SEQ, read, int(places[0]) - shift, hidden, shown)
        return replace(example, asks=[lm(places - 1, tokens[places])]) if shift else example

    def lay_out_continuation(self, before: Ids, text: Ids) -> Example:
        return unroll(self.leftward(before), replace(self.protocol, probe=self.vocab.mask), text)

    def leftward(self, before: Ids) -> Example:
        """A text that is continued under the mask from left to right."""
        words = np.append(self.vocab.cls, before)
        at = np.arange(len(words) + 1)
        asked = probe([self.vocab.mask], at[-1:], at=at[-1:], seg=2)
        return Example({"x": stay(words, at[:-1], at=at[:-1], seg=2) + asked})

    def prompt(self, source: list[Ids]) -> Example:
        if not source:
            learnt = self.config.shares[LEFT] > 0 and not self.config.position_shift
            needs = "needs the mask from left to right in --task.shares, and no position shift"
            require(learnt, f"to write from nothing, a UniLM {needs}")
            return self.leftward(self.join(source))
        tokens, _ = self.frame_parts([self.join(source)])
        if self.config.position_shift:
            return Example(layout(SEQ2SEQ, tokens, len(tokens) - 1, tokens[:0], tokens[:0]).towers)
        slots = stay(tokens, pos=np.arange(len(tokens)), seg=4)
        return Example({"x": slots + probe([self.vocab.mask], [len(tokens)], at=1, seg=5)})
