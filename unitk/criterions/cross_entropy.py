"""Cross-entropy over the vocabulary or over classes, with logits at the asked rows only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

from unitk.criterions.base import Loss, Network
from unitk.errors import UsageError
from unitk.slots import Ask, Batch

HEAD = "lm"
"""The output layer over the vocabulary; the others it compares are called "class:NAME"."""
CHUNK = 4096
"""Beyond so many rows, logits are made in chunks of as many and again in backward."""
BLOCK = 64
"""Rows of logits that are compared at a time on CPU."""


@dataclass(frozen=True)
class CrossEntropy:
    """Sums of (1 - e) nll + e * mean over the vocabulary of -log p, e being the label smoothing.

    With a `pad` the mean is over all words but it and the label, and the least value that targets
    of this kind allow is subtracted (UniLM's KL divergence). Classes are not smoothed.
    """

    label_smoothing: float = 0.0
    pad: int | None = None

    def counts(self, batch: Batch) -> dict[str, float]:
        return batch.count

    def __call__(self, model: Network, batch: Batch, step: int, total: int | None) -> Loss:
        if not batch.asks:
            raise UsageError("--criterion cross_entropy: this task asks nothing")
        for ask in batch.asks.values():
            if ask.head != HEAD and not ask.head.startswith("class:"):
                what = f"{ask.name} is asked of the output layer {ask.head}"
                raise UsageError(f"--criterion cross_entropy needs words or classes, but {what}")
        states, carry = model(batch, model.condition(batch))
        # asks of one output layer share its product
        together: dict[tuple[str, str], list[Ask]] = {}
        for ask in batch.asks.values():
            together.setdefault((ask.tower, ask.head), []).append(ask)
        loss = Loss({}, {}, carry)
        for (tower, head), asks in together.items():
            found = self.sums(model, states[tower], asks)
            for ask, (total_loss, nll, correct) in zip(asks, found, strict=True):
                loss.sums[ask.name] = total_loss
                if head == HEAD:
                    loss.parts[f"{ask.name}/nll"] = nll
                loss.parts[f"{ask.name}/correct"] = correct
        return loss

    def sums(
        self, model: Network, states_BTD: Tensor, asks: Sequence[Ask], price_K: Tensor | None = None
    ) -> list[tuple[Tensor, Tensor, Tensor]]:
        """Weighted sums over the rows of each ask: loss, nll, how often the label is on top.

        The asks are of one tower and one output layer. In the loss alone, their rows, one ask after
        the other, may have other weights: `price_K`.
        """
        row_K = torch.cat([ask.rows[:, 0] for ask in asks])
        label_K = torch.cat([ask.label for ask in asks])
        weight_K = torch.cat([ask.weight for ask in asks])
        states_KD = states_BTD.flatten(0, 1).index_select(0, row_K)
        given = states_KD, label_K, weight_K if price_K is None else price_K
        if len(row_K) <= CHUNK:
            loss_K, nll_K, correct_K = self._chunk(model, asks[0].head, *given)
        else:
            pieces = zip(*(part.split(CHUNK) for part in given), strict=True)
            chunk = partial(self._chunk, model, asks[0].head)
            again = partial(checkpoint, chunk, use_reentrant=False, preserve_rng_state=False)
            found = [again(*piece) for piece in pieces]
            loss_K, nll_K, correct_K = map(torch.cat, zip(*found, strict=True))
        # products and sums, not `@`, which autocast would do in 16 bits
        rows = loss_K, weight_K * nll_K, weight_K * correct_K
        parts = (row.split([len(ask.label) for ask in asks]) for row in rows)
        return [(a.sum(), b.sum(), c.sum()) for a, b, c in zip(*parts, strict=True)]

    def _chunk(
        self, model: Network, head: str, states_KD: Tensor, label_K: Tensor, price_K: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        smoothing = self.label_smoothing if head == HEAD else 0.0
        return compare(model.head(states_KD, head), label_K, price_K, smoothing, self.pad)


class Compare(torch.autograd.Function):
    """`compare`, which makes the gradient of the logits while it has them at hand."""

    @staticmethod
    def forward(
        ctx: Any,
        logits_KV: Tensor,
        label_K: Tensor,
        price_K: Tensor,
        smoothing: float,
        pad: int | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        exact = torch.promote_types(logits_KV.dtype, torch.float32)
        rows = BLOCK if logits_KV.is_cpu else CHUNK
        found = []
        size = logits_KV.shape[1]
        share = smoothing / (size if pad is None else size - 2)  # of each word that is no label
        at_label, least = 1 - smoothing, 0.0
        if pad is not None:
            least = -at_label * math.log(at_label) - smoothing * math.log(share)
        # a block of rows stays in the cache, and no second table of all logits is made
        for start in range(0, len(logits_KV), rows):
            own_KV, label_K1, price_K1 = (
                part[start : start + rows]
                for part in (logits_KV, label_K[:, None], price_K[:, None].to(exact))
            )
            z_KV = own_KV.to(exact)
            top_K1, best_K1 = z_KV.max(-1, keepdim=True)
            z_KV -= top_K1
            score_K1, mean_K1 = z_KV.gather(1, label_K1), z_KV.mean(-1, keepdim=True)
            pad_K1 = z_KV[:, [0 if pad is None else pad]]
            total_K1 = z_KV.exp_().sum(-1, keepdim=True)
            loss_K1 = nll_K1 = total_K1.log() - score_K1
            # the gradient: price * (softmax - target)
            z_KV *= price_K1 / total_K1
            if smoothing:
                rest_K1 = total_K1.log() - mean_K1
                z_KV -= price_K1 * share
                if pad is not None:  # the label and the pad have no part in the rest
                    rest_K1 = size * rest_K1 - nll_K1 - (total_K1.log() - pad_K1)
                    rest_K1 /= size - 2
                    z_KV[:, [pad]] += price_K1 * share
                    z_KV.scatter_add_(1, label_K1, price_K1 * share)
                loss_K1 = torch.lerp(nll_K1, rest_K1, smoothing) - least
            own_KV.copy_(z_KV.scatter_add_(1, label_K1, -at_label * price_K1))
            found.append(torch.cat([price_K1 * loss_K1, nll_K1, best_K1 == label_K1], 1).T)
        loss_K, nll_K, correct_K = torch.cat([logits_KV.new_empty(3, 0, dtype=exact), *found], 1)
        ctx.save_for_backward(logits_KV)
        ctx.mark_non_differentiable(nll_K, correct_K)
        return loss_K, nll_K, correct_K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale_K: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        (gradient_KV,) = ctx.saved_tensors
        return gradient_KV.mul_(scale_K[:, None]), None, None, None, None


def compare(
    logits_KV: Tensor,
    label_K: Tensor,
    price_K: Tensor,
    smoothing: float = 0.0,
    pad: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Each row's loss times its price, its nll, and whether its label is on top, [K] each.

    The logits are overwritten by the gradient of the loss.
    """
    given = logits_KV, label_K, price_K, smoothing, pad
    found: tuple[Tensor, Tensor, Tensor] = Compare.apply(*given)  # type: ignore[no-untyped-call]
    return found
