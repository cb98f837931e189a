"""Cross-entropy over the vocabulary or over classes, with logits at the asked rows only."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unitk.criterions.base import Loss, Network
from unitk.errors import UsageError
from unitk.slots import Ask, Batch

HEAD = "lm"
"""The output layer over the vocabulary; the others it compares are called "class:NAME"."""
CHUNK = 4096
"""Beyond so many rows, logits are made in chunks of as many and again in backward."""


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
        exact = torch.promote_types(logits_KV.dtype, torch.float32)
        logp_KV = torch.log_softmax(logits_KV, dim=-1, dtype=exact)
        nll_K = F.nll_loss(logp_KV, label_K, reduction="none")
        loss_K = nll_K
        if self.label_smoothing and head == HEAD:
            loss_K = torch.lerp(nll_K, -logp_KV.mean(dim=-1), self.label_smoothing)
        # products and sums, not `@`, which autocast would do in 16 bits
        correct_K = logits_KV.detach().max(dim=-1).indices == label_K
        nll, correct = (weight_K * nll_K.detach()).sum(), (weight_K * correct_K).sum()
        return (price_K * loss_K).sum(), nll, correct
