"""Block diffusion.  Arriola et al. 2025, arXiv 2503.09573 (BD3-LM), sections 3 to 5.

A text is cut into blocks, each of which is hidden and filled in as in `mdlm`, after the blocks
before it. One pass reads the clean text, but its last block, and a noised copy of every block.

    text     a  b  c  d               blocks C a | b c | d S, of which a, c, d and S are hidden
    token    C  a  b  c | C  M  b  M  M  M
    pos      0  1  2  3 | 0  1  2  3  4  5
    at       1  1  3  3 | 0  0  2  2  4  4      block b: text 2b + 1, its copy probe 2b
    label    .  .  .  . | .  a  .  c  d  S
    weight   .  .  .  . | .  1  .  2  1  1
    shifted  .  .  .  d | a  .  c  .  S  .      with `--task.shift on`

Blocks of one token are a causal model, of which `--task.shift on` makes task lm; a block as long as
the text is task mdlm. The mask is that of `pmlm`, with blocks that lie side by side, in order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from unitk.errors import require
from unitk.families.diffusion.mdlm import Diffusion, Hiding, Share, draw
from unitk.options.fields import Positive
from unitk.registry import register
from unitk.slots import Example, Floats, Ids, lm, probe, stay


def layout(
    tokens: Ids, block: Ids, hidden: Ids, weight: Floats, *, mask: int, shift: bool = False
) -> Example:
    """Lay out tokens in a `block` each (rising from 0); `hidden` places of the noised copies read
    `mask`, and are asked for as in `mdlm`."""
    read = tokens.copy()
    place = np.arange(len(tokens))
    read[hidden] = mask
    clean = int((block < block[-1]).sum())  # nothing sees the last block
    slots = stay(tokens[:clean], pos=place[:clean], at=2 * block[:clean] + 1)
    slots += probe(read, pos=place, at=2 * block)
    asked = hidden - shift
    # the slot before a block's first one is in the clean text
    rows = np.where(block[asked] == block[hidden], clean + asked, asked)
    ask = replace(lm(rows, tokens[hidden], name="bound"), weight=weight)
    return Example({"x": slots}, [ask])


@register("task", "bd3lm")
class BD3LM(Diffusion):
    """Fill in hidden tokens block by block, each after the clean ones before it (BD3-LM)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Diffusion.Config):
        """The blocks, and which shares of them are hidden."""

        block_length: Positive = 4
        """Tokens of a block; the first block has [CLS] too (4, 8 and 16 in section 6)."""
        clip: Share = (0.0, 1.0)
        """Least and largest share of a block that training hides, which makes the loss vary less
        (section 5.2; 0.45,0.95 for blocks of 4). `unitk evaluate` hides any share."""

        def __post_init__(self) -> None:
            super().__post_init__()
            low, high = self.clip
            require(
                0 <= low < high <= 1,
                f"--task.clip must be two rising shares in [0, 1], got {low:g},{high:g}",
            )

    config: Config
    hides = {"clip": "0,1"}

    def slots(self, n: Ids) -> Ids:
        tokens = n + self.frame
        size = self.config.block_length
        return tokens + (tokens - 1) // size * size

    def blocks(self, tokens: Ids) -> Ids:
        """The block of each token."""
        return np.arange(len(tokens)) // self.config.block_length

    @property
    def share(self) -> Share:
        return self.config.clip

    def hide(self, tokens: Ids, first: int, share: Share, rng: np.random.Generator) -> Hiding:
        block = self.blocks(tokens)
        hidden, weight = draw(block[first:], share, rng)
        hidden += first
        example = layout(tokens, block, hidden, weight, mask=self.vocab.mask, shift=self.shift)
        return example, hidden

    def lay_out_asked(self, tokens: Ids, asked: Ids) -> Example:
        slots = stay(tokens, pos=np.arange(len(tokens)), at=2 * self.blocks(tokens) + 1)
        return Example({"x": slots}, [lm(asked - self.shift, tokens[asked], name="bound")])
