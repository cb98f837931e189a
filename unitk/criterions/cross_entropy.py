"""Cross-entropy and squared errors: the heads' losses of all asks of a batch, added up."""

from __future__ import annotations

from dataclasses import dataclass

from unitk.criterions.base import Loss, Network, totals
from unitk.errors import UsageError
from unitk.slots import Ask, Batch


@dataclass(frozen=True)
class CrossEntropy:
    """Sums of (1 - e) nll + e * mean over the vocabulary of -log p, e being the label smoothing.

    To each row `z_loss` times the squared logarithm of its softmax's denominator is added.
    With a `pad` the mean is over all words but it and the label, and the least value that targets
    of this kind allow is subtracted (UniLM's KL divergence). Only words are smoothed: other heads
    have their own losses, such as the squared error of a number.
    """

    label_smoothing: float = 0.0
    pad: int | None = None
    z_loss: float = 0.0

    def counts(self, batch: Batch) -> dict[str, float]:
        return batch.count

    def __call__(self, model: Network, batch: Batch, step: int, total: int | None) -> Loss:
        if not batch.asks:
            raise UsageError("--criterion cross_entropy: this task has nothing to predict")
        states, carry = model(batch, model.condition(batch))
        # asks of one head share its product; those that name their candidates have their own
        together: dict[tuple[str, str, str], list[Ask]] = {}
        for ask in batch.asks.values():
            own = "" if ask.among is None else ask.name
            together.setdefault((ask.tower, ask.head, own), []).append(ask)
        loss = Loss({}, {}, carry)  # never means: the loop divides, once per update
        for (_, head, _), asks in together.items():
            smoothed = self.label_smoothing, self.pad, self.z_loss
            terms = model.answer(states, batch, asks, None, *smoothed)
            for ask, (mean, nll, correct) in zip(asks, totals(terms, asks), strict=True):
                loss.sums[ask.name] = mean
                if nll is not None and model.heads.named(head).words:
                    loss.parts[f"{ask.name}/nll"] = nll
                if correct is not None:
                    loss.parts[f"{ask.name}/correct"] = correct
        return loss
