"""UniLMv2's pseudo-masked language model.  Bao et al. 2020, arXiv 2002.12804, section 3, figure 2.

Every hidden token has three slots at one position: as MASK, which everything sees and which is
predicted as in BERT (AE); as itself, seen by later steps; and as pseudo token P, which is predicted
from the steps before its own (PAR).

    text     a  b  c  d  e  f           blocks [4, 6) then [2, 3): steps 1 and 2
    token    C  a  b  c  d  e  f  S | M  M  M | P  P  P
    pos      0  1  2  3  4  5  6  7 | 4  5  2 | 4  5  2
    at       0  0  5  0  3  3  0  0 | 0  0  0 | 2  2  4     step t: P probe 2t, text 2t + 1
    label    .  .  .  .  .  .  .  . | d  e  b | d  e  b     asks "ae" and "par"

Fine-tuning has no M: a source, then target tokens one to a step.

    token    C  a  b  S  P | c  P  d  P           source a b, target c d
    pos      0  1  2  3  4 | 4  5  5  6
    at       0  0  0  0  2 | 3  4  5  6
    label    .  .  .  .  c | .  d  .  S
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np

from unitk.data.cuts import SentencePairs, Text
from unitk.options.fields import Chance, Share, Weights
from unitk.registry import register
from unitk.slots import TOKEN, Example, Ids, Protocol, Slots, concatenate, lm, probe, stay, unroll
from unitk.spans import block_places, corrupt
from unitk.tasks.base import Task, max_share, share_at
from unitk.vocab.base import Vocab

LONGEST = 6  # tokens of a block (algorithm 1)


def layout(
    tokens: Ids, seg: Ids, pos: Ids, sizes: Ids, shown: Ids, *, mask: int, pseudo: int
) -> Example:
    """Lay out framed tokens; `pos` are the hidden ones, which read `shown`, block by block of these
    `sizes` in factorization order."""
    at = np.zeros(len(tokens), np.int64)
    asked = shown.copy()
    segment = seg[pos]
    time = np.arange(2, 2 * len(sizes) + 2, 2).repeat(sizes)
    at[pos] = time + 1
    asked[shown == mask] = pseudo
    text = stay(tokens, pos=np.arange(len(tokens)), at=at, seg=seg)
    pseudos = probe(asked, pos=pos, at=time, seg=segment)
    rows = len(tokens) + np.arange(len(pos))
    label = tokens[pos]
    asks = [lm(rows, label, name="ae"), lm(rows + len(pos), label, name="par")]
    return Example({"x": concatenate([text, stay(shown, pos=pos, seg=segment), pseudos])}, asks)


@register("task", "pmlm")
class PMLM(Task):
    """Predict hidden blocks at once and step by step in one pass (UniLMv2)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Task.Config):
        """The two objectives, the law of the blocks, what is shown, and word drop."""

        objective: Literal["ae", "par", "ae+par"] = "ae+par"
        """Autoencoding (ae), partially autoregressive (par), or both in one pass (table 6)."""
        blockwise: bool = True
        """Predict blocks of several tokens in one step. off: every block is one token, so that PAR
        is autoregressive (table 6)."""
        mask_ratio: Share = 0.15
        """Share of hidden tokens; special symbols count (algorithm 1). A schedule is possible:
        validation and evaluation use its last value."""
        ngram_chance: Chance = 0.4
        """Probability that a block has 2 to 6 tokens instead of one (algorithm 1)."""
        mask_keep_random: Weights = (0.8, 0.1, 0.1)
        """Weights of what M and P read, drawn once for both: themselves, the token, a random word
        (section 4.1)."""
        pseudo: Literal["own", "mask"] = "own"
        """Embedding of P: its own (section 3.2), or that of [MASK] (released models)."""
        pairs: bool = True
        """Texts are two parts of a document, with a segment each. off: --blocks cuts them."""
        word_drop: Chance = 0.5
        """Fine-tuning: probability that a visible target token reads what P drew (s2s-ft)."""

    config: Config
    symbols = ("pad", "cls", "sep", "mask")
    arch = "qwen3_mini"
    earlier = {"pairs": "off"}  # 0.1.0

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        self.cut = SentencePairs(0.0, complete=False) if config.pairs else None
        self.frame = 3 if config.pairs else 2
        own = config.pseudo == "own"
        self.first_rows = {"embed.virtual.weight": ("embed.tokens.weight", (vocab.mask,))}
        self.virtual, self.p = (("[P]",), len(vocab)) if own else ((), vocab.mask)

    @property
    def estimator(self) -> str:  # type: ignore[override]
        """Over factorizations, or from left to right as fine-tuning on pairs has it."""
        return "" if self.trained.pairs else "drawn"

    @cached_property
    def protocol(self) -> Protocol:
        v = self.vocab
        return Protocol(end=v.sep, probe=self.p, banned=(v.pad, v.cls, v.mask))

    def slots(self, n: Ids) -> Ids:
        tokens = n + self.frame
        # the last block may exceed the share by all its tokens but one
        hidden = np.ceil(max_share(self.config.mask_ratio) * tokens).astype(np.int64) + LONGEST - 1
        more: Ids = 2 * np.minimum(hidden, n)
        return tokens if self.config.objective == "ae" else tokens + more

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        v, c = self.vocab, self.config
        tokens, seg = self.frame_parts(text.parts)
        free = self.maskable(tokens)
        chance = c.ngram_chance if c.blockwise else 0.0
        count = max(math.ceil(share_at(c.mask_ratio, text.when) * len(tokens)), 1)
        places, sizes = block_places(free, count, chance, LONGEST, rng)
        shown = corrupt(tokens[places], v.mask, self.words, c.mask_keep_random, rng)
        example = layout(tokens, seg, places, sizes, shown, mask=v.mask, pseudo=self.p)
        example.asks[:] = [ask for ask in example.asks if ask.name in c.objective.split("+")]
        if c.objective != "ae":  # without AE M stays: all that is missing is its loss
            return example
        x = example.towers["x"]  # nobody at time 0 sees the other two
        ask = replace(example.asks[0], rows=example.asks[0].rows - len(shown))
        return Example({"x": Slots(x.table[:, x.now == 0])}, [ask])

    def finetune(self, source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        v = self.vocab
        words = np.append(target, self.vocab.sep)
        example = unroll(self.prompt(source), self.protocol, words)
        table, asked = example.towers["x"].table, example.asks[0].first
        shown = corrupt(words, v.mask, self.words, self.config.mask_keep_random, rng)
        table[TOKEN, asked] = np.where(shown == v.mask, self.p, shown)
        drop = rng.random(len(target)) < self.config.word_drop
        # the slot before a P holds the word that the P before it asked for
        table[TOKEN, asked[1:] - 1] = np.where(drop, shown[:-1], target)
        return example

    def lay_out_continuation(self, before: Ids, text: Ids) -> Example:
        return self.factorize(before, text, np.arange(len(text)), np.ones_like(text))

    def bound(self, before: Ids, text: Ids, rng: np.random.Generator) -> tuple[Example, Ids]:
        """A text that comes after `before`, all of it hidden and factorized in drawn blocks.

        By Jensen's inequality, the mean cost over draws is at least that of their mixture. Also
        returns the numbers of the tokens that the labels are.
        """
        chance = self.config.ngram_chance if self.config.blockwise else 0.0
        places, sizes = block_places(np.ones(len(text), bool), len(text), chance, LONGEST, rng)
        return self.factorize(before, text, places, sizes), places

    def factorize(self, before: Ids, text: Ids, places: Ids, sizes: Ids) -> Example:
        """Ask for all tokens of a text at P, in the order of `places`, block by block."""
        tokens = self.reading([np.append(before, text)]).token
        mask = self.vocab.mask
        shown = np.full(len(places), mask)
        at = places + 1 + len(before)
        example = layout(tokens, 0 * tokens, at, sizes, shown, mask=mask, pseudo=self.p)
        return replace(example, asks=example.asks[1:])

    def prompt(self, source: list[Ids]) -> Example:
        slots = self.reading([self.join(source)])
        return Example({"x": slots + probe([self.p], [len(slots)], at=2, seg=1)})
