"""How noisy gradients are: the simple noise scale of McCandlish et al. 2018, arXiv 1812.06162.

Appendix A.1: of the mean gradients of a micro-batch of b texts and of a whole update of B texts,

    |G|^2 ~ (B |g_B|^2 - b |g_b|^2) / (B - b)      tr(S) ~ (|g_b|^2 - |g_B|^2) / (1/b - 1/B)

are unbiased for the squared norm of the true gradient and for the variance of a text's gradient.
Averaged over updates they make the scale tr(S) / |G|^2, in texts: an update far smaller than it is
mostly noise, one far larger spends texts for little.

Each rank gives the first of its micro-batches: nothing has been added to its gradient yet.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unitk.data.batching import Update
from unitk.training.parallel import Ranks

EVERY = 10  # updates between those that are looked at
DECAY = 0.95  # of the averages over the updates that were looked at
LEAST = 10  # how many of these make an average
PARTS = ("noise/norm2", "noise/inverse", "noise/ranks")  # what ranks sum up beside their losses


def first_part(
    update: Update, step: int, parameters: Sequence[nn.Parameter], ranks: Ranks, scale: float
) -> dict[str, Tensor]:
    """`PARTS` of a rank whose first micro-batch has had its backward pass; empty if not measured.

    Gradients were multiplied by `scale`. Mixed tasks are not measured, because a micro-batch holds
    only one of them; neither are sharded gradients.
    """
    alone = len(update.batches) * ranks.world == 1
    if step % EVERY or alone or update.shares or ranks.sharded or not update.batches[0].num_real:
        return {}
    texts = len(update.batches[0].owner)
    # gradients are of sums that were divided by all counts
    share = scale * texts / len(update.ids)
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    values = (norm.double() / share).square(), norm.new_tensor(1 / texts), norm.new_tensor(1)
    return dict(zip(PARTS, values, strict=True))


@dataclass
class Noise:
    """The averages."""

    state: list[float]  # [|G|^2, tr(S), updates looked at], which checkpoints keep

    def add(self, parts: dict[str, Tensor], norm: float, texts: int) -> None:
        """Look at an update of so many texts, whose gradient has this norm."""
        if not parts:
            return
        norm2, inverse, ranks = torch.stack([parts[name].double() for name in PARTS]).tolist()
        norm2, few = norm2 / ranks, ranks / inverse
        if few >= texts:
            return  # the other ranks had nothing
        found = (
            (texts * norm**2 - few * norm2) / (texts - few),
            (norm2 - norm**2) / (1 / few - 1 / texts),
        )
        self.state[:2] = [
            DECAY * old + (1 - DECAY) * new for old, new in zip(self.state, found, strict=False)
        ]
        self.state[2] += 1

    @property
    def scale(self) -> float | None:
        """The noise scale in texts; None where too little was seen, or nothing but noise."""
        signal, spread, looks = self.state
        return spread / signal if looks >= LEAST and signal > 0 and spread > 0 else None
