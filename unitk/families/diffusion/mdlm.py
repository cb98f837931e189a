"""Masked diffusion.  Sahoo et al. 2024, arXiv 2406.07524, section 3; Nie et al. 2025, 2502.09992.

Of the n tokens of a text and its end, any number is hidden, each as often, and weighs n over it:
the mean loss is an upper bound of -log p of a token (LLaDA, section 2.4, equation 6).

    text     a  b  c  d            hidden [1, 3, 4] of n = 5
    token    C  a  M  c  M  M
    pos      0  1  2  3  4  5
    at       0  0  0  0  0  0
    label    .  .  b  .  d  S
    weight   .  .  w  .  w  w      5 / 3
    shifted  .  b  .  d  S  .      with `--task.shift on`

A uniform time t hides k tokens with probability 1 / (n + 1), and the mean of 1 / t is (n + 1) / k
then. Each k from 1 on with probability 1 / n and the weight n / k has the same loss. Sources are
continued by [MASK]s, all of which are filled in.

A causal model opens its mask step by step (Gong et al. 2025, arXiv 2410.17891, section 3.3): with
`--task.future`, token i of n sees that share of the n - 1 - i tokens after it, the nearest ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from unitk.data.cuts import Text
from unitk.options.fields import Share as Share01
from unitk.registry import register
from unitk.slots import BORN, NOW, Example, Floats, Ids, Slots, lm, stay
from unitk.tasks.base import Task, share_at
from unitk.vocab.base import Vocab

Share = tuple[float, float]
Hiding = tuple[Example, Ids]  # what is laid out, and the places of the hidden tokens


def layout(tokens: Ids, hidden: Ids, weight: Floats, *, mask: int, shift: bool = False) -> Example:
    """Lay out tokens; `hidden` places read `mask` and are asked for, there or a slot before
    (`shift`), with a weight each."""
    read = tokens.copy()
    read[hidden] = mask
    ask = replace(lm(hidden - shift, tokens[hidden], name="bound"), weight=weight)
    return Example({"x": stay(read, pos=np.arange(len(read)))}, [ask])


def draw(block: Ids, share: Share, rng: np.random.Generator) -> tuple[Ids, Floats]:
    """Numbers of the hidden ones of tokens in a `block` each (rising), and their weights.

    Of the n tokens of a block k are hidden, each k between these shares of n as likely as the
    others, and weigh n / k. The blocks of a text divide the law of k evenly among them, so that
    its loss varies less, as the official codes spread times evenly over a batch.
    """
    _, first, count = np.unique(block, return_index=True, return_counts=True)
    which = np.arange(len(count)).repeat(count)
    low = np.maximum(1, np.ceil(share[0] * count)).astype(np.int64)
    high = np.maximum(low, np.floor(share[1] * count)).astype(np.int64)
    uniform = (rng.permutation(len(count)) + rng.random(len(count))) / len(count)
    hides = low + (uniform * (high - low + 1)).astype(np.int64)
    order = np.lexsort([rng.random(len(block)), which])  # the tokens of each block, shuffled
    rank = np.arange(len(block)) - first[which]
    hidden = np.sort(order[rank < hides[which]])
    return hidden, (count / hides)[which[hidden]].astype(np.float32)


def narrow(example: Example, share: float) -> Example:
    """The example with tokens that see this share of those after them: 0 is a causal mask."""
    table = example.towers["x"].table.copy()
    place = np.arange(table.shape[1])
    table[BORN] = place
    table[NOW] = place + (share * (len(place) - 1 - place)).astype(np.int64)
    return Example({"x": Slots(table)}, example.asks)


class Diffusion(Task):
    """What hides any share of a text's tokens and its end; it generates in several passes."""

    symbols = ("pad", "cls", "sep", "mask")
    arch = "qwen3_mini"
    infills = from_nothing = bounds = True
    driver, estimator = "passes", "drawn"

    @dataclass(frozen=True, kw_only=True)
    class Config(Task.Config):
        """Ends of texts, and where hidden tokens are asked for."""

        ends: bool = True
        """Every text has an end, also where --blocks cuts a document (official code); it is hidden
        as tokens are. off: no text has an end, and documents of --blocks stream no separator."""
        opening: Literal["cls", "sep"] = "cls"
        """Symbol before a text. cls: [CLS]. sep: [SEP], the end of the text before it (MDLM with
        GPT-2's vocabulary)."""
        shift: bool = False
        """Predict a hidden token at the slot before it, as a causal model does: a model of task lm
        goes on from there (--init-from)."""

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        self.frame = 1 + config.ends
        self.shift, self.separates = config.shift, config.ends
        self.first = {"cls": vocab.cls, "sep": vocab.sep}[config.opening]

    def delimit(self, ids: Ids, end: Ids | tuple[int, ...]) -> Ids:
        """Tokens between the symbol before a text and what comes after."""
        return np.concatenate([[self.first], ids, end]).astype(np.int64)

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        tokens = self.delimit(text.ids, (self.vocab.sep,) * self.config.ends)
        return self.hide(tokens, 1, self.share, rng)[0]

    @property
    def share(self) -> Share:
        """Least and largest share that training hides."""
        return 0.0, 1.0

    def hide(self, tokens: Ids, first: int, share: Share, rng: np.random.Generator) -> Hiding:
        """Lay out tokens, of which those from `first` on may be hidden, between these shares."""
        raise NotImplementedError

    def bound(self, before: Ids, text: Ids, rng: np.random.Generator) -> tuple[Example, Ids]:
        """A text that comes after `before`, any share of it hidden; its weighted cost is a bound.

        Also returns the number of the token that each label is. Where texts have ends, theirs is
        hidden as tokens are, and has the number after them.
        """
        tokens = self.delimit(np.append(before, text), (self.vocab.sep,) * self.config.ends)
        example, hidden = self.hide(tokens, 1 + len(before), (0, 1), rng)
        return example, hidden - 1 - len(before)

    def lay_out_asked(self, tokens: Ids, asked: Ids) -> Example:
        """Lay out tokens to be generated: all stay, and the labels of the asked ones are no
        answers."""
        raise NotImplementedError

    def prompt(self, source: list[Ids]) -> Example:
        """A source with [MASK]s, which are asked for; the labels are no answers."""
        tokens = self.delimit(self.join(source), (self.vocab.sep,) * self.config.ends)
        return self.lay_out_asked(tokens, self.masks(tokens))

    def canvas(self, source: list[Ids], output: Ids) -> Example:
        """Lay out a source and an output with [MASK]s, with an ask for each of its slots.

        The labels of the asks have no meaning.
        """
        tokens = self.delimit(self.join(source), output)
        return self.lay_out_asked(tokens, np.arange(len(tokens) - len(output), len(tokens)))

    def fills(self, source: list[Ids], written: Ids) -> tuple[Ids, list[Ids]]:
        return np.flatnonzero(self.join(source) == self.vocab.mask), list(written[:, None])


@register("task", "mdlm")
class MDLM(Diffusion):
    """Fill in any share of hidden tokens, which bounds the likelihood (MDLM, LLaDA)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Diffusion.Config):
        """How far a token sees."""

        future: Share01 = 1.0
        """Share of the tokens after it that a token sees in training on text. A schedule opens the
        mask of a causal model: constant:value=1,warmup=0.5 does so in half of the run."""

    config: Config

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        example = super().pretrain(text, rng)
        share = share_at(self.config.future, text.when)
        return example if share >= 1 else narrow(example, share)

    def hide(self, tokens: Ids, first: int, share: Share, rng: np.random.Generator) -> Hiding:
        hidden, weight = draw(np.zeros(len(tokens) - first, np.int64), share, rng)
        hidden += first
        return layout(tokens, hidden, weight, mask=self.vocab.mask, shift=self.shift), hidden

    def lay_out_asked(self, tokens: Ids, asked: Ids) -> Example:
        slots = stay(tokens, pos=np.arange(len(tokens)))
        return Example({"x": slots}, [lm(asked - self.shift, tokens[asked], name="bound")])
