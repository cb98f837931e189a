"""UL2.  Tay et al. 2023, arXiv 2205.05131, section 3.1, table 1 and figure 3.

T5's spans of three kinds; a mode symbol is in front of what is read.

    text     a  b  c  d  e  f        mode S: the rest of the text is written
             enc                     dec
    token    m  a  b  c  d  X  S     P  X  e  f
    pos      0  1  2  3  4  5  6     0  1  2  3
    at       0  0  0  0  0  0  0     0  1  2  3
    label    .  .  .  .  .  .  .     X  e  f  S

    one tower, `--task.towers one`: a prefix language model
    token    m  a  b  c  d  X  S  P  X  e  f
    pos      0  1  2  3  4  5  6  7  8  9  10
    at       0  0  0  0  0  0  0  1  2  3  4
    label    .  .  .  .  .  .  .  X  e  f  S

R hides spans of 3 or 8 tokens, 15 %; X spans of 3, 8 or 64, 50 %, or of 64, 15 %; S the last
quarter. Prompts have mode S, or R where [MASK]s are to be filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from unitk.data.cuts import Text
from unitk.errors import check_option, require
from unitk.options.fields import Weights
from unitk.registry import register
from unitk.slots import Example, Ids, stay, unroll
from unitk.spans import choose
from unitk.tasks.base import Encoded, places_of
from unitk.tasks.t5 import Sentinels, hidden_counts
from unitk.vocab.base import Vocab

R, S, X = range(3)
DENOISERS = (
    ((3.0, 0.15), (8.0, 0.15)),
    ((np.inf, 0.25),),
    ((3.0, 0.5), (8.0, 0.5), (64.0, 0.15), (64.0, 0.5)),
)
"""Mean length of a span and share of the text, by mode; infinite: one span, at the end."""


@register("task", "ul2")
class UL2(Sentinels):
    """Short, long and final spans, each kind with a symbol in front (UL2)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Sentinels.Config):
        """The mixture of denoisers, their symbols, and in how many towers."""

        mixture: Weights = (2.0, 1.0, 4.0)
        """Weights of the modes R, S and X. All denoisers of a mode have the same probability; by
        default a mode weighs as much as it has denoisers (table 1)."""
        modes: tuple[str, ...] = ()
        """Texts in front of a source, for R, S and X ([NLU],[S2S],[NLG] in the released model).
        Default: the last three sentinels."""
        towers: Literal["one", "two"] = "two"
        """two: an encoder and a decoder. one: one tower, in which a source sees only itself."""

        def __post_init__(self) -> None:
            super().__post_init__()
            require(
                len(self.modes) in (0, 3),
                f"--task.modes must be three texts, got {len(self.modes)}",
            )
            check_option(self, "task.sentinels", self.sentinels > 3, "above 3")

    config: Config

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        modes = [np.array(self.vocab.encode(mode)) for mode in config.modes]
        if not modes:
            self.sentinels, last = np.split(self.sentinels, [-3])
            modes = list(last[:, None])
        self.modes = modes
        self.frame = 2 + max(map(len, modes))
        if config.towers == "one":  # the symbols before source and target are in one row
            self.frame += len(self.before) + len(self.start) - 1

    @classmethod
    def component(cls, kind: str, config: Any) -> str:
        single = kind == "arch" and config.towers == "one"
        return "qwen3_mini" if single else super().component(kind, config)

    def slots(self, n: Ids) -> Ids:
        counts = [
            hidden_counts(n, share, mean, len(self.sentinels))
            for mode in DENOISERS
            for mean, share in mode
        ]
        longest: Ids = np.max([n, *(hidden + spans for hidden, spans in counts)], axis=0)
        if self.config.towers == "one":
            longest = n + 2 * np.max([spans for _, spans in counts], axis=0)
        return longest + self.frame

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        mode = choose(self.config.mixture, rng)
        mean, share = DENOISERS[mode][int(rng.integers(len(DENOISERS[mode])))]
        read, written = self.add_noise(text.ids, share, mean, rng)
        written = np.append(written, self.vocab.sep)
        return unroll(self.lay_out_prompt(read, mode=mode), self.protocol, written)

    def lay_out_prompt(self, ids: Ids, written: Sequence[int] = (), mode: int = S) -> Example:
        example = super().lay_out_prompt(np.concatenate([self.modes[mode], ids]), written)
        if self.config.towers == "two":
            return example
        enc, dec = example.towers.values()
        return Example({"x": enc + stay(dec.token, dec.pos + len(enc), at=dec.now + 1)})

    def prompt(self, source: list[Ids]) -> Example:
        blank = any((part == self.vocab.mask).any() for part in source)
        return self.lay_out_prompt(self.number_blanks(source), mode=R if blank else S)

    def lay_out_parts(self, parts: list[Ids]) -> Encoded:
        """One tower: the source, and the slot at which its output would begin."""
        if self.config.towers == "two":
            return super().lay_out_parts(parts)
        example = self.lay_out_prompt(self.join(parts))
        first = len(self.before) + len(self.modes[S])
        return Encoded(example, "x", len(example.towers["x"]) - 1, places_of(parts, first))
