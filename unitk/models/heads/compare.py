"""Cross-entropy of given logits, which makes their gradient in the same pass.

This is the one place where log-probabilities of labels are computed.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

CHUNK = 4096
"""Beyond this many rows, logits are made in chunks of this size, and again in backward."""
SHARE = 32
"""On a GPU a chunk may have more rows: its logits in 32 bits take 1 / SHARE of the memory."""
BLOCK = 64
"""Rows of logits that are compared at a time on CPU."""


def rows_at_once(states: Tensor, model: Any) -> int:
    """How many rows of a model's logits over words may be made at once on the states' device."""
    if not states.is_cuda:
        return CHUNK
    memory: int = torch.cuda.get_device_properties(states.device).total_memory // SHARE
    return max(CHUNK, memory // (4 * len(model.decoder.embed.tokens.weight)))


Rows = Callable[[Tensor, Tensor, Tensor, "Smoothing | None", float, bool], Tensor]
"""`compare_rows`, or what it was compiled to."""


class Smoothing(NamedTuple):
    """The share of a label's probability that other words have."""

    share: float
    per_word: float  # for each of them
    live_V: Tensor  # whether a column of the logits is a word
    words: Tensor | slice  # an index of these
    size: int  # how many they are
    pad: int | None  # a word that has no part, as the label has none; None: all have
    pads: list[int]  # the pad if it is a word


class Compare(torch.autograd.Function):
    """`compare`, which makes the gradient of the logits while it has them at hand."""

    @staticmethod
    def forward(
        ctx: Any,
        logits_KV: Tensor,
        label_K: Tensor,
        price_K: Tensor,
        smoothing: Smoothing | None,
        z_loss: float,
        compare: Rows,
    ) -> tuple[Tensor, Tensor, Tensor]:
        exact = torch.promote_types(logits_KV.dtype, torch.float32)
        rows = BLOCK if logits_KV.is_cpu else CHUNK
        if compare is not compare_rows:
            rows = max(1, len(logits_KV))
        pieces = []
        # a block of rows stays in the cache, and no second table of all logits is made
        for start in range(0, len(logits_KV), rows):
            block = slice(start, start + rows)
            price_K1 = price_K[block, None].to(exact)
            needs_grad = ctx.needs_input_grad[0]
            pieces.append(
                compare(
                    logits_KV[block], label_K[block, None], price_K1, smoothing, z_loss, needs_grad
                )
            )
        loss_K, nll_K, correct_K = torch.cat([logits_KV.new_empty(3, 0, dtype=exact), *pieces], 1)
        ctx.save_for_backward(logits_KV)
        ctx.mark_non_differentiable(nll_K, correct_K)
        return loss_K, nll_K, correct_K

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, scale_K: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        (gradient_KV,) = ctx.saved_tensors
        rows = BLOCK if gradient_KV.is_cpu else CHUNK
        # with factors of more bits, all at once would go through a table of those bits
        for block_KV, block_K in zip(gradient_KV.split(rows), scale_K.split(rows), strict=True):
            block_KV *= block_K[:, None]
        return gradient_KV, None, None, None, None, None


def compare_rows(
    logits_KV: Tensor,
    label_K1: Tensor,
    price_K1: Tensor,
    smoothing: Smoothing | None,
    z_loss: float,
    needs_grad: bool,
) -> Tensor:
    """Each row's loss times its price, its nll, and whether its label is on top, [3, K].

    The logits are overwritten, by their gradient if it is wanted.
    """
    at_label, per_word = (1 - smoothing.share, smoothing.per_word) if smoothing else (1.0, 0.0)
    z_KV = logits_KV.to(price_K1.dtype)
    top_K1, best_K1 = z_KV.max(-1, keepdim=True)
    z_KV -= top_K1
    score_K1 = z_KV.gather(1, label_K1)
    if smoothing:
        mean_K1 = z_KV[:, smoothing.words].mean(-1, keepdim=True)
        pad_KP = z_KV[:, smoothing.pads]
    total_K1 = z_KV.exp_().sum(-1, keepdim=True)
    log_K1 = total_K1.log()
    loss_K1 = nll_K1 = log_K1 - score_K1
    if smoothing:
        rest_K1 = log_K1 - mean_K1
        if smoothing.pad is not None:  # the label and the pad have no part in the rest
            pad_K1 = (log_K1 - pad_KP).sum(-1, keepdim=True)
            rest_K1 = (smoothing.size * rest_K1 - nll_K1 - pad_K1) * (per_word / smoothing.share)
        loss_K1 = torch.lerp(nll_K1, rest_K1, smoothing.share)
        if smoothing.pad is not None:  # a perfect prediction costs nothing
            loss_K1 += at_label * math.log(at_label) + smoothing.share * math.log(per_word)
    log_z_K1 = log_K1 + top_K1
    if z_loss:
        loss_K1 = loss_K1 + z_loss * log_z_K1.square()
    if needs_grad:
        # price * (softmax - target), with the z-loss' share of softmax
        z_KV *= price_K1 / total_K1 * (1 + 2 * z_loss * log_z_K1)
        if smoothing:
            z_KV.addcmul_(price_K1, smoothing.live_V.to(z_KV.dtype), value=-per_word)
            if smoothing.pad is not None:
                z_KV[:, smoothing.pads] += price_K1 * per_word
                z_KV.scatter_add_(1, label_K1, price_K1 * per_word)
        if torch.compiler.is_compiling():  # no table has to be there for one number of each row
            is_label_KV = torch.arange(z_KV.shape[1], device=z_KV.device) == label_K1
            z_KV = torch.where(is_label_KV, z_KV - at_label * price_K1, z_KV)
        else:
            z_KV.scatter_add_(1, label_K1, -at_label * price_K1)
        logits_KV.copy_(z_KV)
    return torch.cat([price_K1 * loss_K1, nll_K1, best_K1 == label_K1], 1).T


@cache
def _compiled() -> Any:
    return torch.compile(compare_rows, dynamic=True)


def compare(
    logits_KV: Tensor,
    label_K: Tensor,
    price_K: Tensor,
    smoothing: float = 0.0,
    pad: int | None = None,
    z_loss: float = 0.0,
    *,
    compiled: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Each row's loss times its price, its nll, and whether its label is on top, [K] each.

    To the loss is added `z_loss` times the square of the logarithm of the softmax's denominator.
    A label that is the `pad` costs nothing (UniLM). `compiled`: by a kernel, without smoothing.

    The logits are overwritten: by their gradient if they need one.
    """
    spread = _spread(logits_KV, smoothing, pad) if smoothing else None
    price_K = price_K if pad is None else price_K.masked_fill(label_K == pad, 0)
    rows = _compiled() if compiled and not smoothing else compare_rows
    return Compare.apply(logits_KV, label_K, price_K, spread, z_loss, rows)  # type: ignore[no-untyped-call]


def _spread(logits_KV: Tensor, smoothing: float, pad: int | None) -> Smoothing:
    # which columns are words is asked here alone, as that waits for the device; what an import
    # added to the vocabulary is -inf in all rows: it is no word
    live_V = (logits_KV[:1] > -torch.inf).all(0)
    pads = [pad] if pad is not None and live_V[pad] else []
    size = int(live_V.sum())
    per_word = smoothing / (size if pad is None else size - 1 - len(pads))
    words = slice(None) if size == len(live_V) else live_V
    return Smoothing(smoothing, per_word, live_V, words, size, pad, pads)
