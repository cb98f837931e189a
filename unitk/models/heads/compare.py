"""Cross-entropy of given logits, which makes their gradient in the same pass.

This is the one place where log-probabilities of labels are computed.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 4096
"""Beyond so many rows, logits are made in chunks of as many and again in backward."""
BLOCK = 64
"""Rows of logits that are compared at a time on CPU."""


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
        z_loss: float,
    ) -> tuple[Tensor, Tensor, Tensor]:
        exact = torch.promote_types(logits_KV.dtype, torch.float32)
        rows = BLOCK if logits_KV.is_cpu else CHUNK
        found = []
        live_V, pads = _words(logits_KV, smoothing, pad)
        # without smoothing nobody asks how many columns are words: that would wait for the device
        size = int(live_V.sum()) if smoothing else len(live_V)
        live = slice(None) if size == len(live_V) else live_V
        others = size if pad is None else size - 1 - len(pads)
        share = smoothing / others  # of each word that is no label
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
            score_K1 = z_KV.gather(1, label_K1)
            if smoothing:
                mean_K1, pad_KP = z_KV[:, live].mean(-1, keepdim=True), z_KV[:, pads]
            total_K1 = z_KV.exp_().sum(-1, keepdim=True)
            log_K1 = total_K1.log()
            loss_K1 = nll_K1 = log_K1 - score_K1
            if smoothing:
                rest_K1 = log_K1 - mean_K1
                if pad is not None:  # the label and the pad have no part in the rest
                    pad_K1 = (log_K1 - pad_KP).sum(-1, keepdim=True)
                    rest_K1 = (size * rest_K1 - nll_K1 - pad_K1) / others
                loss_K1 = torch.lerp(nll_K1, rest_K1, smoothing) - least
            log_z_K1 = log_K1 + top_K1
            if z_loss:
                loss_K1 = loss_K1 + z_loss * log_z_K1.square()
            if ctx.needs_input_grad[0]:
                # price * (softmax - target), with the z-loss' share of softmax
                z_KV *= price_K1 / total_K1 * (1 + 2 * z_loss * log_z_K1)
                if smoothing:
                    z_KV.addcmul_(price_K1, live_V.to(exact), value=-share)
                    if pad is not None:
                        z_KV[:, pads] += price_K1 * share
                        z_KV.scatter_add_(1, label_K1, price_K1 * share)
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
        rows = BLOCK if gradient_KV.is_cpu else CHUNK
        # with factors of more bits, all at once would go through a table of those bits
        for own_KV, own_K in zip(gradient_KV.split(rows), scale_K.split(rows), strict=True):
            own_KV *= own_K[:, None]
        return gradient_KV, None, None, None, None, None


def _words(logits_KV: Tensor, smoothing: float, pad: int | None) -> tuple[Tensor, list[int]]:
    """Whether each column is a word that smoothing is over; and the pad if it is one.

    What an import added to the vocabulary is -inf in all rows: it is no word.
    """
    live_V = (logits_KV[: bool(smoothing)] > -torch.inf).all(0)
    return live_V, [pad] if pad is not None and live_V[pad] else []


def compare(
    logits_KV: Tensor,
    label_K: Tensor,
    price_K: Tensor,
    smoothing: float = 0.0,
    pad: int | None = None,
    z_loss: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor]:
    """Each row's loss times its price, its nll, and whether its label is on top, [K] each.

    To the loss is added `z_loss` times the square of the logarithm of the softmax's denominator.

    The logits are overwritten: by their gradient if they need one.
    """
    return Compare.apply(logits_KV, label_K, price_K, smoothing, pad, z_loss)  # type: ignore[no-untyped-call]
