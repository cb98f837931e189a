"""ERNIE 1.0.  Sun et al. 2019, arXiv 1904.09223, sections 3.2 and 4.2, figures 2 and 3.

Whole units are hidden: words, phrases or entities, which the corpus has as annotations.

    text     a b [c d e] f | g h       [c d e] is a phrase: a unit of the second level
    token    C  a  b  M  M  M  f  S  g  h  S
    pos      0  1  2  3  4  5  6  7  8  9  10
    seg      0  0  0  0  0  0  0  0  1  1  1
    at       0  0  0  0  0  0  0  0  0  0  0
    mlm      .  .  .  c  d  e  .  .  .  .  .
    nsp      1  .  .  .  .  .  .  .  .  .  .     1: the parts follow each other, the reverse of BERT

Dialogues (DLM) are runs of turns, here a b, c and d e: `seg` is the role of the speaker, 0 asks and
1 answers.

    token    C  a  M  S  c  S  d  e  S
    seg      0  0  0  0  1  1  0  0  0
    mlm      .  .  b  .  .  .  .  .  .
    dialogue 1  .  .  .  .  .  .  .  .     0: a turn of another dialogue stands for one of these

Each unit is hidden by a chance of its own, and one at least; each of its tokens draws what it
reads. In the official code, the first token of a unit draws for the choice of the unit, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unitk.data.corpus.annotate import ANSWERER, ASKER, ENTITY_FIRST, ENTITY_INSIDE, FIRST, INSIDE
from unitk.data.cuts import SentencePairs, Text, Turns, When
from unitk.errors import require
from unitk.options.fields import Share, Weights
from unitk.registry import register
from unitk.slots import Bools, Example, Ids
from unitk.spans import choose
from unitk.tasks.base import share_at
from unitk.tasks.mlm import Masked, ask_sentences
from unitk.vocab.base import Vocab

MARKS = (0, 0), (FIRST, INSIDE), (ENTITY_FIRST, ENTITY_INSIDE)
"""The annotations of the first token of a unit and of its others, for each level."""


def begin_units(begins: Bools, notes: Ids, marks: tuple[int, int]) -> Bools:
    """Which tokens begin a unit: a word (`begins`), or what is marked, of which the words do not.

    What follows a marked unit begins one, also inside a word.
    """
    first, inside = ((notes & mark) > 0 for mark in marks)
    # a token after a marked one that does not continue its unit
    follows = np.append(False, (first | inside)[:-1]) & ~inside
    return (begins & ~inside) | first | follows


def choose_units(unit: Ids, share: float, rng: np.random.Generator) -> Ids:
    """Places of units that are chosen by a chance of their own, one unit at least.

    `unit` [n] has the number of each place's unit, rising.
    """
    # one draw for each unit, which all of its places look up
    numbers, own = np.unique(unit, return_inverse=True)
    draws = rng.random(len(numbers))
    return np.flatnonzero(draws[own] <= max(share, draws.min()))


@register("task", "ernie")
class ERNIE(Masked):
    """Predict hidden words, phrases and entities, and whether two parts follow (ERNIE 1.0)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Masked.Config):
        """Which units are hidden, what is shown of them, and the question about the parts."""

        mask_ratio: Share = 0.15
        """Probability that a unit is hidden (section 3.2). A schedule is possible: validation and
        evaluation use its last value."""
        levels: Weights = (1.0, 0.0, 0.0)
        """Weights of the levels: how often the units of a text are words, phrases or entities.
        The latter two need a corpus with annotations (paper: 1,1,1 with --task.stages on)."""
        stages: bool = False
        """Train the levels one after the other. Their weights are shares of the run (section
        3.2)."""
        mask_keep_random: Weights = (0.8, 0.1, 0.1)
        """Weights of the replacements of a hidden token: [MASK], itself, a random word."""
        nsp: bool = True
        """Next sentence prediction: texts are pairs of parts, half of them from two documents, and
        the model predicts which."""
        dialogue: bool = False
        """Texts are dialogues, whose sentences are turns. The model predicts whether a turn is of
        another dialogue (section 4.2)."""

        def __post_init__(self) -> None:
            super().__post_init__()
            several = sum(weight > 0 for weight in self.levels) > 1
            require(
                several or not self.stages,
                "--task.stages on has no effect with one level in --task.levels",
            )
            require(self.nsp or not self.dialogue, "--task.dialogue on needs --task.nsp on")

    config: Config
    arch = "ernie_small"

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        if config.dialogue:
            self.cut = Turns()
            self.frame = 4  # C, and an S after each of three turns
        elif config.nsp:
            self.cut = SentencePairs()
            self.frame = 3
        self.heads = ("class:nsp:2",) if config.nsp else ()

    def level(self, text: Text, rng: np.random.Generator) -> int:
        """Whether the units of a text are words (0), phrases (1) or entities (2)."""
        weights = self.config.levels
        if self.config.stages:
            return stage_at(weights, text.when, "stages on")
        return choose(weights, rng)

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        v, c = self.vocab, self.config
        level = self.level(text, rng)
        notes = text.notes
        require(
            notes is not None or not level,
            f"--task.levels {','.join(f'{weight:g}' for weight in c.levels)}: --data has no "
            "annotations (unitk preprocess --annotate phrases=FILE)",
        )
        notes = np.zeros(len(text.ids), np.int64) if notes is None else notes
        parts = np.split(text.ids, text.sentences[1:]) if c.dialogue else text.parts
        tokens, part = self.frame_parts(parts)
        seg = roles(notes, text.sentences)[part] if c.dialogue else part
        places = np.flatnonzero(self.maskable(tokens))
        kept = text.ids != v.sep
        units = begin_units(v.starts[text.ids], notes, MARKS[level])
        # parts begin units, also where they were cut inside one; so do documents within a text
        units[np.cumsum([0, *map(len, parts)])[:-1]] = True
        units[1:] |= ~kept[:-1]
        share = share_at(c.mask_ratio, text.when)
        hidden = places[choose_units(units.cumsum()[kept], share, rng)]
        example = self.corrupt(tokens, seg, hidden, rng)
        if c.nsp and len(parts) > 1:
            ask = ask_sentences("nsp", 1 - text.flag)
            example.asks.append(replace(ask, name="dialogue") if c.dialogue else ask)
        return example


def roles(notes: Ids, sentences: Ids) -> Ids:
    """The role of each turn: 1 answers. Without annotations of roles, they take turns."""
    if not (notes & (ASKER | ANSWERER)).any():
        return np.arange(len(sentences)) % 2
    return ((notes[sentences] & ANSWERER) > 0).astype(np.int64)


def stage_at(shares: Sequence[float], when: When, option: str) -> int:
    """The number of the stage that an update belongs to, of stages with these shares of the run."""
    step, total = when
    require(total is not None, f"--task.{option} needs the number of updates: give --max-steps")
    # the last update of a stage is at the end of its share, not after it
    done = np.cumsum(shares) / sum(shares)
    return int(np.searchsorted(done, step / (total or 1) - 1e-9))
