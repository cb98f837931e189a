"""Adaptive masking.  Edman and Fraser 2025, arXiv 2510.20475, section 3.

A masked language model whose texts come with all tokens hidden. A training step decides which of
them stay so: as many as `--task.mask-ratio` says, hard ones more often.

    text     a  b  c  d  e  f        2 of 6, of which the step takes b and f
    token    C  M  x  M  M  e  M  S        what each token reads if it is hidden
    pos      0  1  2  3  4  5  6  7
    at       0  0  0  0  0  0  0  0
    draw     .  u  v  w  x  y  z  .        numbers that decide, together with the weights of tokens
    mlm      .  a  b  c  d  e  f  .        the label of each
    read     C  a  x  c  d  e  M  S        what the model reads
    asked    .  .  b  .  .  .  f  .        what it is asked for

The last two rows are made by the criterion (`unitk.families.adaptive.criterion`). The input
"x.draw" [T] has the numbers, above 0 where a token may be hidden; "hidden" [1] is how many are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unitk.data.cuts import Text
from unitk.errors import require
from unitk.families.adaptive.config import COUNT, DIFFICULTY, DRAW
from unitk.registry import register
from unitk.slots import Example
from unitk.tasks.base import share_at
from unitk.tasks.mlm import MLM, ask_sentences
from unitk.vocab.base import Vocab


@register("task", "adaptive_mlm")
class AdaptiveMLM(MLM):
    """Predict hidden tokens, hard ones more often (AMLM)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(MLM.Config):
        """BERT's options of hidden tokens, which are hidden one by one."""

        def __post_init__(self) -> None:
            super().__post_init__()
            several = self.whole_words or self.max_span > 1
            require(
                not several,
                "--task.whole-words and --task.max-span hide several tokens at once; task "
                "adaptive_mlm weighs each token",
            )

    config: Config
    criterion = needs_criterion = "adaptive"

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        self.heads += (DIFFICULTY,)

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        c = self.config
        tokens, seg = self.frame_parts(text.parts)
        expected = share_at(c.mask_ratio, text.when) * len(tokens)
        count = round(expected) if c.rounding == "nearest" else int(expected + rng.random())
        places = np.flatnonzero(self.maskable(tokens))
        example = self.corrupt(tokens, seg, places, rng)
        if c.nsp and len(text.parts) > 1:
            example.asks.append(ask_sentences("nsp", text.flag))
        draw = np.zeros(len(tokens), np.float32)
        draw[places] = 1 - rng.random(len(places), np.float32)  # above 0
        hidden = np.array([min(max(count, 1), len(places))])
        return replace(example, inputs={DRAW: draw, COUNT: hidden})
