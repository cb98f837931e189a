"""Cross-entropy over the vocabulary or over classes, with logits at the asked rows only."""

from __future__ import annotations

from dataclasses import dataclass
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

    Classes are not smoothed.
    """

    label_smoothing: float = 0.0

    def counts(self, batch: Batch) -> dict[str, float]:
        return batch.count

    def __call__(self, model: Network, batch: Batch, step: int, total: int | None) -> Loss:
        if not batch.asks:
            raise UsageError("--criterion cross_entropy: this task asks nothing")
        for ask in batch.asks.values():
            if ask.head != HEAD and not ask.head.startswith("class:"):
                what = f"{ask.name} is asked of the output layer {ask.head}"
                raise UsageError(f"--criterion cross_entropy needs words or classes, but {what}")
        states, _ = model(batch, model.condition(batch))
        loss = Loss({}, {})
        for ask in batch.asks.values():
            loss.sums[ask.name], nll, correct = self.sums(model, states[ask.tower], ask)
            if ask.head == HEAD:
                loss.parts[f"{ask.name}/nll"] = nll
            loss.parts[f"{ask.name}/correct"] = correct
        return loss

    def sums(
        self, model: Network, states_BTD: Tensor, ask: Ask, price_K: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Weighted sums over the rows of an ask: loss, nll, and how often the label is on top.

        In the loss alone, the rows may have other weights: `price_K`.
        """
        states_KD = states_BTD.flatten(0, 1).index_select(0, ask.rows[:, 0])
        price_K = ask.weight if price_K is None else price_K
        rows = states_KD, ask.label, ask.weight, price_K
        if len(states_KD) <= CHUNK:
            return self._chunk(model, ask.head, *rows)
        pieces = zip(*(part.split(CHUNK) for part in rows), strict=True)
        sums = [
            checkpoint(
                self._chunk, model, ask.head, *piece, use_reentrant=False, preserve_rng_state=False
            )
            for piece in pieces
        ]
        total, nll, correct = (torch.stack(column).sum() for column in zip(*sums, strict=True))
        return total, nll, correct

    def _chunk(
        self,
        model: Network,
        head: str,
        states_KD: Tensor,
        label_K: Tensor,
        weight_K: Tensor,
        price_K: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        logits_KV = model.head(states_KD, head)
        smoothing = self.label_smoothing if head == HEAD else 0.0
        loss, nll_K, correct_K = compare(logits_KV, label_K, price_K, smoothing)
        # products and sums, not `@`, which autocast would do in 16 bits
        return loss, (weight_K * nll_K).sum(), (weight_K * correct_K).sum()


class Compare(torch.autograd.Function):
    """`compare`, which makes the gradient of the logits while it has them at hand."""

    @staticmethod
    def forward(
        ctx: Any, logits_KV: Tensor, label_K: Tensor, price_K: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        exact = torch.promote_types(logits_KV.dtype, torch.float32)
        rows = BLOCK if logits_KV.is_cpu else CHUNK
        found = []
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
            total_K1 = z_KV.exp_().sum(-1, keepdim=True)
            loss_K1 = nll_K1 = total_K1.log() - score_K1
            # the gradient: price * (softmax - (1 - smoothing) at the label - smoothing / V)
            z_KV *= price_K1 / total_K1
            if smoothing:
                loss_K1 = torch.lerp(nll_K1, total_K1.log() - mean_K1, smoothing)
                z_KV -= price_K1 * (smoothing / z_KV.shape[1])
            own_KV.copy_(z_KV.scatter_add_(1, label_K1, (smoothing - 1) * price_K1))
            found.append(torch.cat([price_K1 * loss_K1, nll_K1, best_K1 == label_K1], 1).T)
        loss_K, nll_K, correct_K = torch.cat([logits_KV.new_empty(3, 0, dtype=exact), *found], 1)
        ctx.save_for_backward(logits_KV)
        ctx.mark_non_differentiable(nll_K, correct_K)
        return loss_K.sum(), nll_K, correct_K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        (gradient_KV,) = ctx.saved_tensors
        return gradient_KV.mul_(scale), None, None, None


def compare(
    logits_KV: Tensor, label_K: Tensor, price_K: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """The loss summed with these weights; each row's nll; whether its label is on top.

    The logits are overwritten: by their gradient, for a loss of 1.
    """
    given = logits_KV, label_K, price_K, smoothing
    found: tuple[Tensor, Tensor, Tensor] = Compare.apply(*given)  # type: ignore[no-untyped-call]
    return found
