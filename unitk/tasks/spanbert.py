"""SpanBERT.  Joshi et al. 2020, arXiv 1907.10529, sections 3.1 to 3.3 and figure 1.

Spans of whole words are hidden; each hidden token is predicted at its place (mlm), and from the two
slots at the borders of its span and its place in the span (sbo).

    text     a  b  c  d  e  f        hidden [1, 2, 3] and [5]
    token    C  a  M  M  M  e  x  S
    pos      0  1  2  3  4  5  6  7
    at       0  0  0  0  0  0  0  0
    mlm      .  .  b  c  d  .  f  .
    sbo      .  .  b  c  d  .  f  .     of b, c and d: slots 1 and 5; of f: slots 5 and 7

Spans that touch are one. All tokens of a span read [MASK], or all themselves, or all other words.
Spans at the ends of a text have the borders C and S; the official code does not ask for these.

Words may be joined to phrases or entities that the corpus has as annotations (`--task.units`): a
span is then made of these, and hides none in part.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import ceil
from typing import Literal

import numpy as np

from unitk.data.cuts import Text
from unitk.errors import require
from unitk.options.fields import Part, Positive, Share, Weight, Weights
from unitk.registry import register
from unitk.slots import Ask, Bools, Example, Ids
from unitk.spans import length_law, word_spans
from unitk.tasks.base import share_at
from unitk.tasks.ernie import MARKS, begin_units
from unitk.tasks.mlm import Masked


def borders(hidden: Ids, labels: Ids, run: Ids) -> Ask:
    """Ask for each hidden token at the slots around its run; `run` numbers these from 0 on."""
    # a run ends where the next one begins, and the last one with the last hidden token
    first = np.flatnonzero(np.diff(run, prepend=-1))
    left = hidden[first] - 1
    right = hidden[np.append(first[1:], len(run)) - 1] + 1
    rows = np.stack([left[run], right[run], hidden], axis=1)
    return Ask("sbo", "sbo:span", "x", rows, labels, np.ones(len(labels), np.float32))


@register("task", "spanbert")
class SpanBERT(Masked):
    """Predict hidden spans at their places and from their borders (SpanBERT)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Masked.Config):
        """The law of spans, and what is shown of them."""

        mask_ratio: Share = 0.15
        """Share of hidden tokens, rounded up (section 3.1). A schedule is possible: validation and
        evaluation use its last value."""
        stop_chance: Part = 0.2
        """Parameter of the geometric law of span lengths: probability that a span ends with each
        word (section 3.1)."""
        max_span: Positive = 10
        """Longest span, in words. The law is restricted to it (section 3.1)."""
        units: Literal["words", "phrases", "entities"] = "words"
        """Units that spans are counted in. phrases, entities: those of a corpus with annotations
        (unitk preprocess --annotate) are one word, which is hidden whole. --task.max-span 1 hides
        them one by one."""
        mask_keep_random: Weights = (0.8, 0.1, 0.1)
        """Weights of what a span reads: [MASK]s, itself, random words."""
        sbo_weight: Weight = 1.0
        """Weight of the mean loss of the span boundary objective, beside that of mlm."""

    config: Config
    arch = "spanbert_small"
    heads = ("sbo:span:20",)

    @cached_property
    def asks(self) -> dict[str, float]:
        return {"sbo": self.config.sbo_weight}

    def find_units(self, text: Text, free: Bools) -> Bools:
        """Which slots of a framed text begin a unit; `free` are those of tokens."""
        units = self.config.units
        notes = text.notes
        how = "unitk preprocess --annotate phrases=FILE"
        known = notes is not None or units == "words"
        require(known, f"--task.units {units}: --data has no annotations ({how})")
        marks = MARKS[("words", "phrases", "entities").index(units)]
        notes = np.zeros(len(text.ids), np.int64) if notes is None else notes
        begins = begin_units(self.vocab.starts[text.ids], notes, marks)
        # what follows a symbol begins a unit, even where a text was cut inside one
        return np.concatenate([[True], begins, [True]]) | np.append(True, ~free[:-1])

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        c = self.config
        tokens, seg = self.frame_parts([text.ids])
        free = self.maskable(tokens)
        places = np.flatnonzero(free)
        law = length_law(tuple((1 - c.stop_chance) ** k for k in range(c.max_span)))
        budget = max(1, ceil(share_at(c.mask_ratio, text.when) * len(places)))
        unit = self.find_units(text, free).cumsum()[places]
        taken = word_spans(unit, budget, law, rng)
        if c.units != "words":  # the last span may have cut one
            taken = np.flatnonzero(np.isin(unit, unit[taken]))
        hidden = places[taken]
        # neighbouring words that are both hidden are one run
        run: Ids = np.cumsum(np.diff(hidden, prepend=hidden[:1]) > 1)
        example = self.corrupt(tokens, seg, hidden, rng, run)
        example.asks.append(borders(hidden, tokens[hidden], run))
        return example
