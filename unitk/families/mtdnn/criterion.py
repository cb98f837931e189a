"""The loss of several labelled corpora: one mean over the labels of all."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from unitk.criterions.base import Loss, Trainable
from unitk.criterions.cross_entropy import CrossEntropy
from unitk.families.mtdnn.config import JOINT
from unitk.models.heads.base import LM
from unitk.slots import Batch


@dataclass(frozen=True)
class JointCrossEntropy(CrossEntropy):
    """The sum over the labels of all corpora (labels), and that over words where these are asked
    (lm). Parts: the loss of each corpus (NAME/loss), and labels that are right (NAME/correct).

    A mean over all labels gives a corpus the weight of its share of the update, as if each update
    had texts of a single one (algorithm 1).
    """

    def counts(self, batch: Batch) -> dict[str, float]:
        return batch.count | {JOINT: sum(batch.count[name] for name in corpora(batch))}

    def __call__(self, model: Trainable, batch: Batch, step: int, total: int | None) -> Loss:
        loss = super().__call__(model, batch, step, total)
        names = corpora(batch)
        sums = {name: loss.sums.pop(name) for name in names}
        loss.sums[JOINT] = torch.stack([*sums.values()]).sum()
        loss.parts.update({f"{name}/loss": value.detach() for name, value in sums.items()})
        if not model.training and f"{names[0]}/correct" in loss.parts:
            # a corpus is validated on its own; these are what the line about it shows
            loss.parts[f"{JOINT}/correct"] = loss.parts[f"{names[0]}/correct"]
        return loss


def corpora(batch: Batch) -> list[str]:
    """The corpora that a batch has texts of."""
    return [name for name, ask in batch.asks.items() if ask.head != LM]
