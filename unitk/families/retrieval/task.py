"""Texts that belong together, as vectors.  Gao et al. 2021, arXiv 2104.08821, equations 1 and 5.

Each text of a pair is a doc of its own, laid out by the objective that the model was trained with.

    source a b, target c d, a hard negative e
    token    C  a  b  S  C  c  d  S  C  e  S
    doc      0  0  0  0  1  1  1  1  2  2  2
    pos      0  1  2  3  0  1  2  3  0  1  2
    at       0  0  0  0  0  0  0  0  0  0  0     as the objective has it

Nothing is asked: the criterion compares the vectors of a batch. The input "key" has a number for
the text of each doc, by which equal texts are known.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np

from unitk.errors import require
from unitk.options.fields import Count
from unitk.registry import register
from unitk.slots import Example, Ids, concatenate
from unitk.tasks.understanding.base import Understanding
from unitk.vocab.base import Vocab


@register("task", "contrastive")
class Contrastive(Understanding):
    """Learn vectors in which a source is nearest to its target (SimCSE, DSSM)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Understanding.Config):
        """The objective that lays out the texts, and hard negatives."""

        negatives: Count = 0
        """Last parts of each source that are hard negatives: texts that its target must be nearer
        than."""

    config: Config
    predicts = False  # it has vectors, which `unitk embed` writes
    arch, criterion = "bert_small", "contrastive"
    needs_criterion = "contrastive"

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        towers = self.layout.encoded([np.zeros(1, np.int64)]).example.towers
        one = f"--task.layout {config.layout}: task contrastive needs an objective of one tower"
        require([*towers] == ["x"], one)

    def prompt(self, source: list[Ids]) -> Example:
        """A source as its vector is made of it."""
        return Example({"x": self.reading(source)})

    def finetune(self, source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        count = len(source) - self.config.negatives
        parts = f"a source has {len(source)} parts"
        require(
            count > 0, f"--task.negatives {self.config.negatives}: {parts}, and one is its text"
        )
        texts = [source[:count], [target], *([one] for one in source[count:])]
        each = [next(iter(self.to_embed(parts).towers.values())) for parts in texts]
        for number, slots in enumerate(each):
            slots.doc[:] = number
        keys = np.array([zlib.crc32(slots.token.tobytes()) for slots in each])
        return Example({"x": concatenate(each)}, [], inputs={"key": keys})
