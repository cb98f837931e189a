"""MASS.  Song et al. 2019, arXiv 1905.02450, sections 3.1, 3.2 and figure 1.

The encoder reads a text in which a span is hidden; the decoder spells out the span, at its original
positions, fed with the token before each.

    text     a  b  c  d  e  f        span [3, 6)
             enc                          dec
    token    C  a  b  M  M  M  f  S       b  c  d
    pos      0  1  2  3  4  5  6  7       2  3  4
    at       0  0  0  0  0  0  0  0       0  1  2
    cross    1  1  1  0  0  0  1  1
    label    .  .  .  .  .  .  .  .       c  d  e

With k = 1 it predicts one token as BERT does, with k = m everything from left to right as GPT does.
The spans begin with the first word; the S at the end may be hidden, C never is. Fine-tuning is that
of an encoder-decoder. A prompt with a run of MASKs has it filled.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unitk.data.cuts import Text
from unitk.errors import UsageError, require
from unitk.options.fields import Chance, Count, Share, Weights
from unitk.registry import register
from unitk.slots import Example, Ids, lm, stay
from unitk.spans import Spans, corrupt, edge_start, places_in
from unitk.tasks.base import frame_parts, share_at
from unitk.tasks.seq2seq import Seq2Seq


def layout(tokens: Ids, hidden: Ids, shown: Ids, seen: Ids) -> Example:
    """Lay out framed tokens; `hidden` ones read `shown`; `seen`: may the decoder look at these?"""
    read = tokens.copy()
    cross = np.ones_like(tokens)
    read[hidden] = shown
    cross[hidden] = seen
    steps = np.arange(len(hidden))
    towers = {
        "enc": stay(read, pos=np.arange(len(tokens)), cross=cross),
        "dec": stay(tokens[hidden - 1], pos=hidden - 1, at=steps),
    }
    return Example(towers, [lm(steps, tokens[hidden], tower="dec")])


@register("task", "mass")
class MASS(Seq2Seq):
    """Hide a span from the encoder, spell it out in the decoder (MASS)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Seq2Seq.Config):
        """The law of the span, and what encoder and decoder see of it.

        The summarization code's variant is --task.block-size 64 --task.edge-chance 0
        --task.cross-masks on.
        """

        mask_ratio: Share = 0.5
        """Share of the text that a span hides (section 3.2). A schedule is possible: validation and
        evaluation use its last value."""
        edge_chance: tuple[Chance, ...] = (0.2,)
        """Probability that a span begins the text, and that it ends the text: one number for both,
        or two, such as 0.3,0.2. Otherwise it is anywhere (official code)."""
        block_size: Count = 0
        """Hide one span in every block of this many tokens. 0: one span in the text."""
        mask_keep_random: Weights = (0.8, 0.1, 0.1)
        """Weights of what the encoder reads in place of a hidden token: [MASK], the token, a random
        word (section 4.1)."""
        cross_masks: bool = False
        """Let the decoder attend to encoder slots that read [MASK]."""

        def __post_init__(self) -> None:
            super().__post_init__()
            require(
                len(self.edge_chance) in (1, 2) and sum(self.edges) <= 1,
                "--task.edge-chance must be a number up to 0.5, or two with a sum up to 1, "
                f"got {', '.join(map(str, self.edge_chance)) or 'none'}",
            )

        @property
        def edges(self) -> tuple[float, float]:
            """The probabilities that a span begins and that it ends the text."""
            return self.edge_chance[0], self.edge_chance[-1]

    config: Config
    arch = "t5gemma_mini"
    infills = True

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        v, c = self.vocab, self.config
        tokens, _ = frame_parts([text.ids], self.opening_symbol, v.sep)
        hidden = places_in(self.spans(len(tokens), share_at(c.mask_ratio, text.when), rng))
        shown = corrupt(tokens[hidden], v.mask, self.words, c.mask_keep_random, rng)
        return layout(tokens, hidden, shown, (shown != v.mask) | c.cross_masks)

    def spans(self, tokens: int, share: float, rng: np.random.Generator) -> Spans:
        """A span of this share of all tokens, or of every block of those but C.

        Lengths are rounded as in the official codes: of a text to the nearest, of blocks down.
        """
        size = self.config.block_size
        spans = []
        for begin in range(1, tokens, size or tokens):
            block = min(size or tokens, tokens - begin)
            length = int(share * block) if size else min(round(share * tokens), block)
            if length or begin == 1:  # a short last block may have none, a text has one
                length = max(length, 1)
                start = begin + edge_start(block, length, self.config.edges, rng)
                spans.append((start, start + length))
        return np.array(spans)

    def prompt(self, source: list[Ids]) -> Example:
        run, ids = self.run(source), self.join(source)
        if not len(run):
            return super().prompt(source)
        tokens, _ = frame_parts([ids], self.opening_symbol, self.vocab.sep)
        cross = np.ones_like(tokens)
        cross[1 + run] = self.config.cross_masks
        enc = stay(tokens, pos=np.arange(len(tokens)), cross=cross)
        return Example({"enc": enc, "dec": stay([tokens[run[0]]], [run[0]])})

    def lay_out_continuation(self, before: Ids, text: Ids) -> Example:
        return super().lay_out_continuation(
            np.append(before, np.full(len(text), self.vocab.mask)), text
        )

    def length(self, source: list[Ids]) -> int | None:
        return len(self.run(source)) or None

    def fills(self, source: list[Ids], written: Ids) -> tuple[Ids, list[Ids]]:
        run = self.run(source)
        return run, list(written[written != self.protocol.end][: len(run), None])

    def run(self, source: list[Ids]) -> Ids:
        """Places of the [MASK]s in a source, which are next to each other."""
        run = np.flatnonzero(self.join(source) == self.vocab.mask)
        if len(run) and run[-1] - run[0] >= len(run):
            raise UsageError("task mass fills one run of [MASK]s, but a source has several")
        return run
