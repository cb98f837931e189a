"""ELECTRA: replaced token detection.  Clark et al. 2020, arXiv 2003.10555, section 3.1, figure 2.

Tokens are hidden as in BERT, and a generator is asked for them. What it draws replaces them, and
the discriminator tells for each token whether it is that of the text.

    text     a  b  c  d  e  f        hidden [1, 4], of which the generator draws b and x
    token    C  a  M  c  d  M  f  S        what the generator reads
    pos      0  1  2  3  4  5  6  7
    at       0  0  0  0  0  0  0  0
    mlm      .  .  b  .  .  e  .  .        what it is asked for
    draw     .  .  u  .  .  v  .  .        numbers that decide what it draws
    read     C  a  b  c  d  x  f  S        what the discriminator reads, of the same slots
    replaced 0  0  0  0  0  1  0  0        what it is asked for

The last two rows are made in a training step (`unitk.families.electra.criterion`). The input
"x.draw" [T] has the numbers, so that the same example is always judged by the same draws.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unitk.data.cuts import Text
from unitk.errors import require
from unitk.families.electra.config import DETECT
from unitk.options.fields import Weights
from unitk.registry import register
from unitk.slots import Example, Floats, Ids
from unitk.tasks.mlm import MLM
from unitk.vocab.base import Vocab

DRAW = "x.draw"


def layout(example: Example, hidden: Ids, draw: Floats) -> Example:
    """A masked text with a number in [0, 1) beside each `hidden` slot."""
    beside = np.zeros(len(example.towers["x"]), np.float32)
    beside[hidden] = draw
    return replace(example, inputs={**example.inputs, DRAW: beside})


@register("task", "electra")
class Electra(MLM):
    """Tell which tokens a generator has replaced, and train the generator (ELECTRA)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(MLM.Config):
        """BERT's options of hidden tokens; they are predicted at their own slots, without pairs."""

        mask_keep_random: Weights = (0.85, 0.15, 0.0)
        """Weights of the replacements of a hidden token in what the generator reads: [MASK],
        itself, a random word (the official code)."""

        def __post_init__(self) -> None:
            super().__post_init__()
            require(not self.nsp, "--task.nsp on: task electra has no next-sentence prediction")
            require(
                not self.shift, "--task.shift on: task electra replaces tokens at their own slots"
            )

    config: Config
    arch, criterion = "electra_mini", "electra"

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        self.heads = (DETECT,)

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        example = super().pretrain(text, rng)
        # without pairs, nothing but hidden tokens is asked
        hidden = example.asks[0].rows[:, 0]
        return layout(example, hidden, rng.random(len(hidden), np.float32))
