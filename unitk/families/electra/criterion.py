"""The loss of ELECTRA: a generator fills hidden tokens, and a discriminator tells which differ.

Clark et al. 2020, arXiv 2003.10555, section 3.1. K hidden slots, N slots of all rows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from unitk.criterions.base import Loss, Trainable, totals
from unitk.errors import UsageError, require
from unitk.families.electra.config import DETECT
from unitk.kernels.products import recompute
from unitk.models.heads import compare
from unitk.models.heads.base import LM, Asked, gather
from unitk.slots import BORN, NEVER, TOKEN, Ask, Batch

DRAW = "x.draw"


@runtime_checkable
class Replacing(Protocol):
    """The interface of a model that this criterion needs beside `Trainable`."""

    def generator_states(self, batch: Batch) -> dict[str, Tensor]:
        """The generator's states of a text with hidden tokens."""

    def head(self, asked: Asked, name: str) -> Tensor:
        """The output of a head at asked rows."""


@dataclass(frozen=True)
class ReplacedTokens:
    """Sums of the generator's loss over hidden tokens (mlm) and of the discriminator's (detect).

    The second is that of every real slot, times `weight`. Parts: detect/nll is without the weight,
    detect/correct the share of slots that are told right, detect/replaced that of slots whose token
    differs from the text's.
    """

    weight: float

    def counts(self, batch: Batch) -> dict[str, float]:
        return {**batch.count, "detect": float(batch.num_real)}

    def __call__(self, model: Trainable, batch: Batch, step: int, total: int | None) -> Loss:
        has = isinstance(model, Replacing)
        require(has, "--criterion electra needs an --arch with a generator, such as electra_mini")
        assert isinstance(model, Replacing)
        if DRAW not in batch.inputs:
            raise UsageError("--criterion electra is for --task electra, whose texts have draws")
        [ask] = batch.asks.values()
        nll_K, correct_K, drawn_K = self.fill(model, batch, ask)
        read = replace_words(batch, ask, drawn_K)
        loss = Loss(
            {"mlm": (ask.weight * nll_K).sum()},
            {
                "mlm/nll": (ask.weight * nll_K.detach()).sum(),
                "mlm/correct": (ask.weight * correct_K).sum(),
            },
        )
        # draws have no gradient: the discriminator trains itself and the tables alone
        states, carry = model(read, model.condition(read))
        asked = read.asks["detect"]
        [(detect, nll, correct)] = totals(model.answer(states, read, [asked]), [asked])
        assert nll is not None and correct is not None
        loss.sums["detect"] = self.weight * detect
        loss.parts["detect/nll"] = nll
        loss.parts["detect/correct"] = correct
        loss.parts["detect/replaced"] = (asked.weight * asked.label).sum()
        return replace(loss, carry=carry)

    def fill(self, model: Replacing, batch: Batch, ask: Ask) -> tuple[Tensor, Tensor, Tensor]:
        """For each hidden slot: loss, 1 where the label is most probable, and the drawn word."""
        asked = gather(model.generator_states(batch), batch, [ask])
        draw_K = batch.inputs[DRAW].flatten()[ask.first]

        def chunk(asked: Asked, label_K: Tensor, draw_K: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            # in fp32: sums of many small probabilities decide what is drawn
            logp_KV = model.head(asked, LM).log_softmax(-1, dtype=torch.float32)
            nll_K = -logp_KV.gather(1, label_K[:, None])[:, 0]
            drawn_K = draw_words(logp_KV.detach(), draw_K)
            return nll_K, (logp_KV.argmax(1) == label_K).float(), drawn_K

        # logits of many rows are made again in backward, which bounds their memory
        count = len(ask.label)
        size = compare.CHUNK
        run = chunk if count <= size else partial(recompute, chunk)
        slices = [slice(i, i + size) for i in range(0, count, size)]
        results = [run(asked.chunk(rows), ask.label[rows], draw_K[rows]) for rows in slices]
        nll_K, correct_K, drawn_K = (torch.cat(parts) for parts in zip(*results, strict=True))
        return nll_K, correct_K, drawn_K


def draw_words(logp_KV: Tensor, draw_K: Tensor) -> Tensor:
    """The words that numbers in [0, 1) draw: the first whose cumulative probability exceeds it."""
    # the sum of all is 1 but for rounding; no word without probability is taken then
    until_KV = logp_KV.exp().cumsum(1)
    at_K1 = draw_K[:, None].to(until_KV.dtype) * until_KV[:, -1:]
    return torch.searchsorted(until_KV, at_K1, right=True)[:, 0].clamp(max=logp_KV.shape[1] - 1)


def replace_words(batch: Batch, ask: Ask, drawn_K: Tensor) -> Batch:
    """What the discriminator reads: the text with words drawn at the hidden slots of `ask`.

    It is asked at every slot whether the token differs from the text's (1); pads weigh nothing.
    """
    slots = batch.towers["x"].clone()
    token_N = slots[TOKEN].view(-1)
    place_K = ask.first
    label_N = torch.zeros_like(token_N)
    token_N[place_K] = drawn_K
    label_N[place_K] = (drawn_K != ask.label).long()
    # all slots, pads too: to count the real ones, the host would have to wait for a GPU
    real_N = (slots[BORN].flatten() < NEVER).float()
    rows = torch.arange(len(token_N), device=slots.device)[:, None]
    asked = Ask("detect", DETECT, "x", rows, label_N, real_N)
    return replace(batch, towers={"x": slots}, asks={"detect": asked}, only_asked=False)
