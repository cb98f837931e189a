"""Texts that belong together, as vectors.  Gao et al. 2021, arXiv 2104.08821, equations 1 and 5.

Each text is a doc of its own, laid out by the objective that the model was trained with. The vector
of a doc is the sum of its states by the weights below: the mean of its words.

    source a b, target c d, a hard negative e
    token    C  a  b  S  C  c  d  S  C  e  S
    doc      0  0  0  0  1  1  1  1  2  2  2
    pos      0  1  2  3  0  1  2  3  0  1  2
    at       0  0  0  0  0  0  0  0  0  0  0     as the objective has it
    weight   0  1/2   0  0  1/2   0  0  1  0     the input "x.weight"

With two towers (DSSM: Huang et al. 2013), sources have a tower of their own, and docs count anew:

    source   C  a  b  S                  doc 0
    target   C  c  d  S  C  e  S         docs 0 and 1

Nothing is asked: the criterion compares the vectors of an update. The input "key" [D, D] has in
each row a number for each text of the pair, by which equal texts are known; 0 is an empty text.

Pre-training on texts makes pairs of them. A sentence is the source, and its target is the text
around it (inverse cloze task: Lee et al. 2019, arXiv 1906.00300, section 5.1). A text of a single
sentence is its own target, which dropout tells apart (SimCSE, section 3).
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, Self

import numpy as np

from unitk.data.cuts import Text
from unitk.errors import DataError, require
from unitk.families.retrieval.towers import SIDES
from unitk.options.fields import Count, Part
from unitk.registry import register
from unitk.slots import Example, Floats, Ids, Slots, concatenate
from unitk.tasks.base import Pool
from unitk.tasks.understanding.base import Understanding
from unitk.vocab.base import Vocab


def layout(texts: Sequence[Slots], weights: Sequence[Floats], towers: int = 1) -> Example:
    """Lay out a source, its target and hard negatives with the weights of their states."""
    parts = {"x": slice(None)} if towers == 1 else {"source": slice(1), "target": slice(1, None)}
    keys = [
        1 + zlib.crc32(slots.token.tobytes()) if weight.any() else 0
        for slots, weight in zip(texts, weights, strict=True)
    ]
    for part in parts.values():
        for number, slots in enumerate(texts[part]):
            slots.doc[:] = number  # in each tower, docs count from 0
    inputs = {f"{name}.weight": np.concatenate(weights[part]) for name, part in parts.items()}
    inputs["key"] = np.array([keys] * (len(keys) + 1 - towers))  # a row for each doc
    slots_of = {name: concatenate(texts[part]) for name, part in parts.items()}
    return Example(slots_of, [], inputs=inputs)


def weigh(slots: Slots, vocab: Vocab, pool: Pool) -> Floats:
    """The weights [T] of the states of a text in its vector, as `unitk embed --pool` has them."""
    symbols = [number for name, number in vocab.symbols.items() if name != "unk"]
    weight = (~np.isin(slots.token, symbols)).astype(np.float32)
    if pool == "mean" or not weight.any():
        return weight / max(weight.sum(), 1)  # an empty text has zeros
    weight[:] = 0
    weight[0 if pool == "first" else -1] = 1
    return weight


@register("task", "contrastive")
class Contrastive(Understanding):
    """Learn vectors in which a source is nearest to its target (DSSM, SimCSE, ICT)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Understanding.Config):
        """The objective that lays out the texts, the vector of a text, and hard negatives."""

        pool: Pool = "mean"
        """The vector of a text: the mean of its states without special symbols, or the state of its
        first or last slot. `unitk embed` has the same default then."""
        towers: Literal["one", "two"] = "one"
        """Towers of the model. two: one reads sources, another one targets and negatives (DSSM)."""
        negatives: Count = 0
        """Parts of each source after its first one, which are hard negatives: texts that its
        target must be nearer than."""
        keep: Part = 0.1
        """Text corpora: share of the sentences that also stay in the text around them (ICT)."""

    config: Config
    predicts = False  # it has vectors, which `unitk embed` writes
    shortens = True
    arch, criterion = "bert_small", "contrastive"
    needs_criterion = "contrastive"

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        laid = self.layout.lay_out_parts([np.zeros(1, np.int64)]).example
        require(
            [*laid.towers] == ["x"] and not laid.inputs,
            f"--task.layout {config.layout}: task contrastive needs an objective of one tower, "
            "and of tokens alone",
        )
        self.pool = config.pool
        self.sides = SIDES if config.towers == "two" else SIDES[:1]
        numbers = range(1, config.negatives + 1)
        if config.negatives:
            self.fields = "text", *(f"negative{number}" for number in numbers)

    @classmethod
    def component(cls, kind: str, config: Any) -> str:
        two = kind == "arch" and config.towers == "two"
        return "two_towers_small" if two else super().component(kind, config)

    def reading_as(self, side: str) -> Self:
        task = super().reading_as(side)
        return (
            task
            if len(self.sides) == 1
            else task.with_attributes(to_embed=partial(task.embed_as, side))
        )

    def embed_as(self, side: str, source: list[Ids]) -> Example:
        """A source or a target for its tower."""
        return Example({side: self.reading(source)})

    def slots(self, n: Ids) -> Ids:
        return 2 * (n + self.frame)

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        ids, starts = text.ids, text.sentences
        if len(starts) < 2:
            return self.lay_out_texts([[ids], [ids]])
        number = rng.integers(len(starts))
        a, b = np.append(starts, len(ids))[number : number + 2]
        around = ids if rng.random() < self.config.keep else np.delete(ids, slice(a, b))
        return self.lay_out_texts([[ids[a:b]], [around]])

    def finetune(self, source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        if not self.config.negatives:
            return self.lay_out_texts([source, [target]])
        first, *negatives = source
        return self.lay_out_texts([[first], [target], *([negative] for negative in negatives)])

    def lay_out_texts(self, texts: list[list[Ids]]) -> Example:
        """The example of texts in parts."""
        laid = [self.fit(parts) for parts in texts]
        weights = [weigh(slots, self.vocab, self.config.pool) for slots in laid]
        return layout(laid, weights, len(self.sides))

    def fit(self, parts: list[Ids]) -> Slots:
        """A text laid out, its end cut off where the model has no positions for it."""
        position_limit = self.trained.position_limit
        while True:
            [slots] = self.to_embed(parts).towers.values()
            over = int(slots.pos.max(initial=0)) + 1 - position_limit if position_limit else 0
            if over <= 0:
                return slots
            if not any(map(len, parts)):
                raise DataError(f"{position_limit} positions of --arch have no room for a text")
            *before, last = parts
            parts = [*before, last[:-over]] if not before or len(last) > over else before
