"""Permutation language model.  Yang et al. 2019, arXiv 1906.08237, sections 2.2 and 2.3, figure 1.

The words are predicted in a drawn order, each from those before it in that order. A word has two
slots: its content, which later words see, and the query that asks for it, which nobody sees.

    text     a  b  c  d        order 3, 2, 4, 1
    token    C  a  b  c  d  M  M  M  M
    pos      0  1  2  3  4  3  2  4  1
    at       0  7  3  1  5  0  2  4  6
    label    .  .  .  .  .  c  b  d  a

With r the rank of a word, from 0, its query looks at the time 2r and its content comes at 2r + 1.
Words that nothing asks for are there from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unitk.data.cuts import Text
from unitk.errors import require
from unitk.registry import register
from unitk.slots import Example, Ids, lm, query, stay
from unitk.tasks.base import Task


def layout(tokens: Ids, order: Ids, mask: int) -> Example:
    """Lay out framed tokens; those at the places `order` are predicted, in this order."""
    ranks = np.arange(len(order))
    at = np.zeros(len(tokens), np.int64)
    at[order] = 2 * ranks + 1
    content = stay(tokens, np.arange(len(tokens)), at=at)
    queries = query(np.full(len(order), mask), order, at=2 * ranks)
    return Example({"x": content + queries}, [lm(len(tokens) + ranks, tokens[order])])


@register("task", "permutation_lm")
class PermutationLM(Task):
    """Predict the words of a text in a drawn order (XLNet)."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Which words are predicted."""

        share: float = 1 / 6
        """Share of the words: the last ones of the order (section 2.3: one in 6 or 7)."""
        order: tuple[int, ...] = ()
        """Predict the words with these numbers, from 1, in this order, instead of drawing one."""

        def __post_init__(self) -> None:
            require(0 < self.share <= 1, f"--task.share must be in (0, 1], got {self.share:g}")
            distinct = len(set(self.order)) == len(self.order) and min(self.order, default=1) > 0
            require(distinct, f"--task.order needs distinct numbers from 1, got {self.order}")

    config: Config
    symbols = ("pad", "cls", "mask")
    arch = "glm_small"
    frame = 1

    def slots(self, n: Ids) -> Ids:
        drawn = np.ceil(self.config.share * n).astype(np.int64)
        return n + self.frame + (len(self.config.order) or drawn)

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        order, n = np.array(self.config.order, np.int64), len(text.ids)
        if len(order):
            require(order.max() <= n, f"--task.order names word {order.max()} of {n}")
        else:
            order = rng.permutation(n)[: int(np.ceil(self.config.share * n))] + 1
        tokens = np.concatenate([[self.vocab.cls], text.ids])
        return layout(tokens, order, self.vocab.mask)
