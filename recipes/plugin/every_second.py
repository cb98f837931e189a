"""Every second word: the smallest objective, for docs/adding-an-objective.md.

Every second word is hidden; the model sees the others on both sides.

    text     a  b  c  d  e     hidden from b on
    token    C  a  M  c  M  e
    pos      0  1  2  3  4  5
    at       0  0  0  0  0  0
    label    .  .  b  .  d  .
"""

from __future__ import annotations

import numpy as np

from unitk.data.cuts import Text
from unitk.registry import register
from unitk.slots import Example, lm, stay
from unitk.tasks.base import Task


@register("task", "every_second")
class EverySecond(Task):
    """Predict every second word from its neighbours."""

    symbols = ("pad", "cls", "mask")
    arch = "bert_tiny"
    frame = 1

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        ids = np.append(self.vocab.cls, text.ids)
        first = 1 + rng.integers(min(2, len(text.ids)))
        hidden = np.arange(first, len(ids), 2)
        shown = ids.copy()
        shown[hidden] = self.vocab.mask
        slots = stay(shown, pos=np.arange(len(ids)))
        return Example({"x": slots}, [lm(hidden, label=ids[hidden])])
