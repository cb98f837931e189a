"""Prefix language model.  Raffel et al. 2020, arXiv 1910.10683, section 3.2.1 and figure 4.

The beginning of a text is read in both directions, the rest is written from left to right.

    text     a  b  c  d  e     the first two words are the prefix
    token    C  a  b  c  d  e
    pos      0  1  2  3  4  5
    at       0  0  0  1  2  3
    label    .  .  c  d  e  E
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unitk.data.cuts import Text
from unitk.options.fields import Rate
from unitk.registry import register
from unitk.slots import Example, Ids, Protocol, stay, unroll
from unitk.tasks.base import Task


@register("task", "prefix_lm")
class PrefixLM(Task):
    """Read a prefix both ways, write the rest (T5's prefix LM)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Task.Config):
        """Where the prefix ends."""

        least: Rate = 0.0
        """The prefix is a uniform share of the text, at least this much."""

    config: Config
    arch = "glm_small"

    @property
    def protocol(self) -> Protocol:
        return Protocol(end=self.vocab.sep, banned=(self.vocab.pad, self.vocab.cls))

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        ids = text.ids
        split = int(len(ids) * rng.uniform(self.config.least, 1))
        return self.finetune([ids[:split]], ids[split:], rng)

    def finetune(self, source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        return unroll(self.prompt(source), self.protocol, np.append(target, self.vocab.sep))

    def prompt(self, source: list[Ids]) -> Example:
        words = np.concatenate([[self.vocab.cls], self.join(source)])
        return Example({"x": stay(words, pos=np.arange(len(words)))})
