"""Cross-entropy and squared errors: the heads' losses of all asks of a batch, added up."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor

from unitk.criterions.base import Loss, Trainable, totals
from unitk.errors import UsageError, require
from unitk.slots import BORN, DOC, NEVER, Ask, Batch


@dataclass(frozen=True)
class CrossEntropy:
    """Sums of (1 - e) nll + e * mean over the vocabulary of -log p, e being the label smoothing.

    To each row `z_loss` times the squared logarithm of its softmax's denominator is added.
    With a `pad` the mean is over all words but it and the label, and the least value that targets
    of this kind allow is subtracted (UniLM's KL divergence). Only words are smoothed: other heads
    have their own losses, such as the squared error of a number. `ar` and `tar` weigh the means of
    squared states and of their squared differences in time, which are added in training.
    """

    label_smoothing: float = 0.0
    pad: int | None = None
    z_loss: float = 0.0
    ar: float = 0.0
    tar: float = 0.0

    def counts(self, batch: Batch) -> dict[str, float]:
        if not (self.ar or self.tar):
            return batch.count
        # slots, and pairs of neighbours: each doc has one less
        return batch.count | {"ar": batch.num_real, "tar": batch.num_real - len(batch.owner)}

    def __call__(self, model: Trainable, batch: Batch, step: int, total: int | None) -> Loss:
        if not batch.asks:
            raise UsageError("--criterion cross_entropy: this task has nothing to predict")
        # to count the slots that are read, the host would have to wait for a GPU
        lean = batch.docs.device.type == "cpu" and not (self.ar or self.tar)
        states, carry = model(replace(batch, only_asked=lean), model.condition(batch))
        # asks of one head share its product; those that name their candidates have their own
        together: dict[tuple[str, str, str], list[Ask]] = {}
        for ask in batch.asks.values():
            alone = "" if ask.among is None else ask.name
            together.setdefault((ask.tower, ask.head, alone), []).append(ask)
        loss = Loss({}, {}, carry)  # never means: the loop divides, once per update
        for (_, head, _), asks in together.items():
            terms = model.answer(
                states, batch, asks, None, self.label_smoothing, self.pad, self.z_loss
            )
            for ask, (total_loss, nll, correct) in zip(asks, totals(terms, asks), strict=True):
                loss.sums[ask.name] = total_loss
                if nll is not None and model.heads.get(head).words:
                    loss.parts[f"{ask.name}/nll"] = nll
                if correct is not None:
                    loss.parts[f"{ask.name}/correct"] = correct
        if model.training and (self.ar or self.tar):
            loss.sums.update(self.regularize(states, batch))
        return loss

    def regularize(self, states: Mapping[str, Tensor], batch: Batch) -> dict[str, Tensor]:
        """Sums over slots of the squared states, and over neighbours of squared differences.

        States "TOWER/raw" are those before dropout, where a model gives any.
        """
        tower = batch.decoded
        require(len(batch.towers) == 1, "--criterion.ar and tar are for models of one tower")
        slots = batch.towers[tower]
        raw_BTD = states.get(f"{tower}/raw", states[tower])
        real_BT = slots[BORN] < NEVER
        pair_BT = real_BT[:, 1:] & real_BT[:, :-1] & (slots[DOC].diff() == 0)
        parts = {
            "ar": (self.ar, states[tower], real_BT),
            "tar": (self.tar, raw_BTD.diff(dim=1), pair_BT),
        }
        return {
            name: weight * (x_BTD.float().square().mean(-1) * counted_BT).sum()
            for name, (weight, x_BTD, counted_BT) in parts.items()
            if weight
        }
