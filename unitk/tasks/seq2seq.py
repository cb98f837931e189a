"""Encoder-decoder.  Vaswani et al. 2017, arXiv 1706.03762, section 3; without pre-training.

The decoder writes the target from left to right and looks at the source.

             enc                     dec
    token    C  a  b  S              C  c  d        source a b, target c d
    pos      0  1  2  3              0  1  2
    at       0  0  0  0              0  1  2
    label    .  .  .  .              c  d  S
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from unitk.registry import register
from unitk.slots import Example, Ids, Protocol, Slots, stay, unroll
from unitk.tasks.base import Encoded, Task, places_of

Opening = Literal["cls", "sep", "both", "pad", "seps"]
"""Type of the option that chooses the symbols before source and target."""


@register("task", "seq2seq")
class Seq2Seq(Task):
    """Translate a source into a target with an encoder and a decoder, from scratch."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Task.Config):
        """The symbols before source and target."""

        opening: Opening = "cls"
        """Symbols before source and target. cls: [CLS] before both. sep: none before the source,
        [SEP] before the target (fairseq, MASS). both: [CLS] before the source, [SEP] [CLS] before
        the target (BART). pad: none before the source, [PAD] before the target (T5). seps: [SEP]
        before both (XLM)."""

    symbols: ClassVar[tuple[str, ...]] = ("pad", "cls", "sep", "mask")
    arch = "t5gemma_mini"

    @property
    def opening(self) -> str:
        return self.config.opening

    @cached_property
    def start(self) -> list[int]:
        """The first ids that the decoder reads."""
        cls, sep = self.vocab.cls, self.vocab.sep
        starts = {"sep": [sep], "both": [sep, cls], "pad": [self.vocab.pad], "seps": [sep]}
        return starts.get(self.opening, [cls])

    @property
    def before(self) -> list[int]:
        """The ids before a source."""
        return [] if self.opening in ("sep", "pad") else [self.opening_symbol]

    @property
    def opening_symbol(self) -> int:
        """The symbol that opens a text."""
        return self.vocab.sep if self.opening == "seps" else self.vocab.cls

    @cached_property
    def protocol(self) -> Protocol:
        v = self.vocab
        return Protocol(end=v.sep, banned=(v.pad, v.cls, v.mask), opened=len(self.start) - 1)

    def finetune(self, source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        return unroll(self.prompt(source), self.protocol, np.append(target, self.vocab.sep))

    def prompt(self, source: list[Ids]) -> Example:
        return self.start_decoder(source)

    def start_decoder(self, source: list[Ids], written: npt.ArrayLike = ()) -> Example:
        """The encoder reads a source; the decoder reads what opens a text and what is `written`."""
        tokens = np.append(self.start, written).astype(np.int64)
        # the decoder's clock has nothing to do with the encoder's: it begins at 0
        steps = np.arange(len(tokens))
        return Example({"enc": self.reading(source), "dec": stay(tokens, steps, at=steps)})

    def reading(self, source: list[Ids]) -> Slots:
        """C (or nothing), the source, S."""
        tokens = np.concatenate([self.before, self.join(source), [self.vocab.sep]]).astype(np.int64)
        return stay(tokens, pos=np.arange(len(tokens)))

    def lay_out_parts(self, parts: list[Ids]) -> Encoded:
        """Both towers read the parts; the decoder's last slot, which leads to S, has read all.

        Lewis et al. 2020, arXiv 1910.13461, section 3.1. A token is read where it is predicted.
        """
        example = self.start_decoder(parts, self.join(parts))
        first = len(self.start) - 1
        return Encoded(example, "dec", len(example.towers["dec"]) - 1, places_of(parts, first))
