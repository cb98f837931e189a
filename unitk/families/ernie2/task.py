"""ERNIE 2.0.  Sun et al. 2020, arXiv 1907.12412, "ERNIE 2.0 Framework" and table 6.

Each text has one objective, whose number is in the input `task`. Continual multi-task learning is
a run in K stages: stage k trains the first k objectives.

    stage        1    2    3    4      updates in thousands, of 200
    knowledge    20   10   10   10     a stage is as long as its number tells: k
    order        .    30   10   10     in it, objectives before the k-th have 1 / 2k of the texts
    distance     .    .    40   10     each, and the k-th has the others
    discourse    .    .    .    50

These numbers are the paper's for four objectives. A text that an objective cannot ask about has
words hidden instead: one without a connective, or without a second part.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np

from unitk.data.cuts import AT_THE_END, SentencePairs, Text, When
from unitk.errors import check_option, require
from unitk.families.ernie2.sentences import (
    Queries,
    find_connectives,
    layout,
    num_orders,
    shuffle_segments,
)
from unitk.families.ernie2.words import capital, document, lower_case
from unitk.options.fields import Share, Weights
from unitk.registry import register
from unitk.slots import Bools, Example, Ids
from unitk.spans import choose
from unitk.tasks.base import frame_parts
from unitk.tasks.ernie import ERNIE, stage_at
from unitk.tasks.mlm import Masked
from unitk.vocab.base import Vocab

OBJECTIVES = ("knowledge", "capital", "document", "order", "distance", "discourse", "relevance")
"""Their places are their numbers in the input `task`."""
CONNECTIVES = (
    *("However", "But", "Instead", "In contrast", "Thus", "Therefore", "So", "As a result", "Then"),
    *("Finally", "In addition", "Moreover", "Similarly", "For example", "In fact", "Indeed"),
)


def shares(count: int, learning: str, when: When) -> tuple[float, ...]:
    """How often each of `count` objectives is trained at an update; all alike in validation."""
    if learning == "multitask" or when == AT_THE_END:
        return (1 / count,) * count
    sequential = learning == "sequential"
    # lengths of the stages, in any unit
    lengths = [k if sequential else 1.0 for k in range(1, count + 1)]
    k = stage_at(lengths, when, f"learning {learning}") + 1
    before = 1 / (2 * k) if sequential else 0.0
    earlier = (before,) * (k - 1)
    later = (0.0,) * (count - k)
    return (*earlier, 1 - (k - 1) * before, *later)


@register("task", "ernie2")
class ERNIE2(Masked):
    """Predict hidden units, capitals, words of a document, orders and relations (ERNIE 2.0)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Masked.Config):
        """The objectives, how they are learnt one after the other, and what each asks."""

        objectives: tuple[str, ...] = OBJECTIVES[:-1]
        """Objectives in the order of the stages: knowledge, capital, document, order, distance,
        discourse; or relevance alone, on documents of a query and titles."""
        learning: Literal["sequential", "multitask", "continual"] = "sequential"
        """sequential: continual multi-task learning, each stage adds an objective. multitask: all
        of them all the time. continual: one after the other."""
        mask_ratio: Share = 0.15
        """Probability that a unit is hidden. A schedule is possible: validation and evaluation use
        its last value."""
        levels: Weights = (1.0, 0.0, 0.0)
        """Weights of words, phrases and entities as hidden units. The latter two need a corpus with
        annotations."""
        mask_keep_random: Weights = (0.8, 0.1, 0.1)
        """Weights of the replacements of a hidden token: [MASK], itself, a random word."""
        max_segments: int = 3
        """Most segments that are shuffled, from 2 to 4. 3 have 9 orders, 4 have 33."""
        connectives: tuple[str, ...] = CONNECTIVES
        """Connectives at the beginning of a sentence that are predicted. A comma after one is left
        out, too."""

        def __post_init__(self) -> None:
            super().__post_init__()
            got = f"got {','.join(self.objectives) or 'none'}"
            known = 0 < len(self.objectives) == len({*self.objectives} & {*OBJECTIVES})
            require(known, f"--task.objectives must be some of {', '.join(OBJECTIVES)}, {got}")
            alone = self.objectives == ("relevance",) or "relevance" not in self.objectives
            require(alone, f"--task.objectives: relevance reads other texts than others, {got}")
            check_option(self, "task.max_segments", 2 <= self.max_segments <= 4, "2 to 4")
            twice = len({*self.connectives}) < len(self.connectives) or len(self.connectives) < 2
            require(not twice, "--task.connectives must be two or more different texts")
            _knowledge(self)

    config: Config
    arch = "ernie2_small"
    segments: ClassVar[tuple[int, ...]] = (0, 1, 1, 1)

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        self.knowledge = ERNIE(_knowledge(config), vocab)
        self.frame = 1 + max(2, config.max_segments)
        queries = config.objectives == ("relevance",)
        self.cut = Queries() if queries else SentencePairs(random=1 / 3, same=1 / 3)
        sizes = {"order": num_orders(config.max_segments), "discourse": len(config.connectives)}
        kinds = {"capital": "tag:capital:2", "document": "tag:document:2"}
        self.heads = tuple(
            kinds.get(name, f"class:{name}:{sizes.get(name, 3)}")
            for name in config.objectives
            if name != "knowledge"
        )

    @cached_property
    def forms(self) -> tuple[Ids, Bools]:
        """Ids in lower case, and which ids are one of two forms."""
        return lower_case(self.vocab)

    @cached_property
    def markers(self) -> dict[tuple[int, ...], int]:
        """The ids of each connective, with and without a comma, and its number."""
        spelt = [
            (tuple(self.vocab.encode(connective + comma)), number)
            for number, connective in enumerate(self.config.connectives)
            for comma in ("", ",")
        ]
        return {ids: number for ids, number in spelt if self.vocab.unk not in ids}

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        c = self.config
        name = c.objectives[choose(shares(len(c.objectives), c.learning, text.when), rng)]
        example = None if name == "knowledge" else self.lay_out_for(name, text, rng)
        if example is None:
            name = "knowledge"
            example = self.knowledge.pretrain(text, rng)
        return replace(example, inputs={"task": np.array([OBJECTIVES.index(name)])})

    def lay_out_for(self, name: str, text: Text, rng: np.random.Generator) -> Example | None:
        """Lay out a text for an objective but that of knowledge, if it has what is asked for."""
        symbols = (self.vocab.cls, self.vocab.sep)
        two = len(text.parts) > 1
        # what follows each other: both parts, or the first one
        near = text.ids if two and not text.flag else text.parts[0]
        starts = text.sentences[text.sentences < len(near)]
        if name == "capital":
            return capital(*frame_parts(text.parts, *symbols), *self.forms)
        if name == "document":
            same = two and text.flag < 2
            return document(text.parts[0], text.parts[1], *symbols) if same else None
        if name == "order":
            return layout(
                name, *shuffle_segments(near, starts[1:], self.config.max_segments, rng), *symbols
            )
        if name == "discourse":
            if not (
                connectives := find_connectives(near, starts, self.vocab.starts[near], self.markers)
            ):
                return None
            number, size, label = connectives[int(rng.integers(len(connectives)))]
            sentences = np.split(near, starts[1:])
            return layout(name, [sentences[number - 1], sentences[number][size:]], label, *symbols)
        return layout(name, text.parts, text.flag, *symbols) if two else None


def _knowledge(config: ERNIE2.Config) -> ERNIE.Config:
    names = ("mask_ratio", "levels", "mask_keep_random")
    return ERNIE.Config(nsp=False, **{name: getattr(config, name) for name in names})
