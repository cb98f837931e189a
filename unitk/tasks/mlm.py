"""Masked language model.  Devlin et al. 2019, arXiv 1810.04805, section 3.1; RoBERTa, 1907.11692.

Hidden tokens are predicted at their places, from both sides.

    text     a  b  c  d  e  f        hidden [1, 3, 4], of which d is kept and e reads another word
    token    C  a  M  c  d  x  f  S
    pos      0  1  2  3  4  5  6  7
    at       0  0  0  0  0  0  0  0
    label    .  .  b  .  d  e  .  .
    shifted  .  b  .  d  e  .  .  .     with `--task.shift on`

Shifted, a token is read at the slot before its own, as a causal model reads it (masked next-token
prediction; GPT-BERT: Charpentier and Samuel 2024, arXiv 2410.24159, section 2).

A pair of parts (`--task.nsp on`) is C a b S c d S with `seg` 0 0 0 0 1 1 1, and C is asked whether
the second part is from elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from unitk.data.cuts import SentencePairs, Text
from unitk.errors import require
from unitk.options.fields import Count, Positive, Share, Weights
from unitk.registry import register
from unitk.slots import Ask, Bools, Example, Ids, lm, stay
from unitk.spans import corrupt, run_places, take_fitting
from unitk.tasks.base import Task, share_at
from unitk.vocab.base import Vocab


def layout(tokens: Ids, seg: Ids, hidden: Ids, shown: Ids, shift: bool = False) -> Example:
    """Lay out framed tokens; `hidden` places read `shown` and are asked for, there or a slot before
    (`shift`)."""
    read = tokens.copy()
    read[hidden] = shown
    slots = stay(read, pos=np.arange(len(read)), seg=seg)
    return Example({"x": slots}, [lm(hidden - shift, tokens[hidden], name="mlm")])


def ask_sentences(name: str, flag: int) -> Ask:
    """Ask at C about two parts: flag 1 where the second is from elsewhere, or they are swapped."""
    first = np.zeros((1, 1), np.int64)
    return Ask(name, f"class:{name}", "x", first, np.array([flag]), np.ones(1, "f"))


class Masked(Task):
    """The base of tasks that hide tokens and ask for them; prompts with [MASK]s are filled."""

    symbols = ("pad", "cls", "sep", "mask")
    arch = "qwen3_mini"
    infills = True
    shift = False  # a hidden token is asked for at the slot before it

    def units(self, tokens: Ids, free: Bools) -> Ids:
        """Numbers, rising, of the words that free tokens belong to."""
        # what follows a symbol begins a word, even where a text was cut inside one
        starts = self.vocab.starts[tokens] | np.append(True, ~free[:-1])
        return np.cumsum(starts)[free]

    def corrupt(
        self, tokens: Ids, seg: Ids, hidden: Ids, rng: np.random.Generator, run: Ids | None = None
    ) -> Example:
        """Lay out framed tokens; of the `hidden` ones something else is shown, alike in a `run`."""
        rates = self.config.mask_keep_random
        shown = corrupt(tokens[hidden], self.vocab.mask, self.words, rates, rng, run)
        return layout(tokens, seg, hidden, shown, self.shift)

    def prompt(self, source: list[Ids]) -> Example:
        """A source with [MASK]s, which are asked for in one pass; the labels are no answers."""
        tokens, seg = self.frame_parts(source)
        hidden = self.masks(tokens)
        return layout(tokens, seg, hidden, tokens[hidden], self.shift)

    def fills(self, source: list[Ids], written: Ids) -> tuple[Ids, list[Ids]]:
        return np.flatnonzero(self.join(source) == self.vocab.mask), list(written[:, None])


@register("task", "mlm")
class MLM(Masked):
    """Predict hidden tokens from both sides, with or without next sentences (BERT, RoBERTa)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Task.Config):
        """Which tokens are hidden, what is shown of them, and next-sentence prediction."""

        mask_ratio: Share = 0.15
        """Share of hidden tokens; special symbols count (section 3.1). A schedule is possible:
        validation and evaluation use its last value."""
        rounding: Literal["nearest", "random"] = "nearest"
        """Rounding of the number of hidden tokens. nearest: as BERT. random: up with the
        probability of its fraction (RoBERTa)."""
        mask_keep_random: Weights = (0.8, 0.1, 0.1)
        """Weights of the replacements of a hidden token: [MASK], itself, a random word (appendix
        A.1)."""
        whole_words: bool = False
        """Hide all tokens of a word or none."""
        max_span: Positive = 1
        """Hide runs of 1 to this many tokens or whole words, of uniform length, until
        --task.mask-ratio is reached. All tokens of a run are masked, kept or random (GPT-BERT:
        3)."""
        shift: bool = False
        """Predict a hidden token at the slot before it, like a causal model (GPT-BERT: on)."""
        copies: Count = 0
        """Repeat the same masks after this many epochs (BERT: 10). 0: never."""
        nsp: bool = False
        """Next sentence prediction: texts are pairs of parts, half of them from two documents, and
        the model predicts which (BERT: on)."""
        parts: Literal["segments", "sentences"] = "segments"
        """Parts of a pair: runs of sentences (BERT), or one sentence each (RoBERTa's
        SENTENCE-PAIR)."""

        def __post_init__(self) -> None:
            super().__post_init__()
            paired = self.parts == "segments" or self.nsp
            require(paired, "--task.parts sentences has no effect without --task.nsp on")

    config: Config

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        self.copies = config.copies
        self.frame = 3 if config.nsp else 2
        self.cut = SentencePairs(single=config.parts == "sentences") if config.nsp else None
        self.heads = ("class:nsp:2",) if config.nsp else ()
        self.shift = config.shift

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        c = self.config
        tokens, seg = self.frame_parts(text.parts)
        exact = share_at(c.mask_ratio, text.when) * len(tokens)
        count = round(exact) if c.rounding == "nearest" else int(exact + rng.random())
        hidden, run = self.hide(tokens, self.maskable(tokens), max(count, 1), rng)
        example = self.corrupt(tokens, seg, hidden, rng, run)
        if c.nsp and len(text.parts) > 1:
            example.asks.append(ask_sentences("nsp", text.flag))
        return example

    def hide(
        self, tokens: Ids, free: Bools, count: int, rng: np.random.Generator
    ) -> tuple[Ids, Ids | None]:
        """Places of `count` tokens, of whole words that fit, or of runs; the run of each."""
        places = free.nonzero()[0]
        c = self.config
        if c.max_span == 1 and not c.whole_words:
            return np.sort(rng.permutation(places)[:count]), None
        unit = self.units(tokens, free) if c.whole_words else np.arange(len(places))
        if c.max_span > 1:
            taken, run = run_places(unit, count, c.max_span, rng)
            return places[taken], run
        number, size = np.unique(unit, return_counts=True)
        order = rng.permutation(len(number))
        return places[np.isin(unit, number[order[take_fitting(size[order], count)]])], None
