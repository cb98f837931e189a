"""The loss of vectors of texts that belong together.

E pairs, D texts of each (a source, its target, hard negatives), N = E * D docs, W dimensions, M =
E * (D - 1) texts that a source may belong to.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor

from unitk.criterions.base import Loss, Trainable
from unitk.errors import UsageError, require
from unitk.families.retrieval.config import ContrastiveConfig
from unitk.slots import DOC, Batch

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Contrast:
    """The sum over pairs (pairs) of the cross-entropy of the target among all targets and hard
    negatives of the batch. Part: pairs/correct, the pairs whose target is the nearest text.

    A text that equals the target is no negative of its source, and an empty one is none of any.
    """

    config: ContrastiveConfig

    def counts(self, batch: Batch) -> dict[str, float]:
        if "key" not in batch.inputs:
            raise UsageError("--criterion contrastive is for --task contrastive")
        return {"pairs": float(len(batch.inputs["key"]) // docs_of(batch))}

    def whole_update(self) -> str:
        """The option that requires whole updates: the negatives are those of the whole update."""
        return "--criterion contrastive"

    def __call__(self, model: Trainable, batch: Batch, step: int, total: int | None) -> Loss:
        states, _ = model(batch, model.condition(batch))
        each_EDW = self.vectors(states, batch)
        width = each_EDW.shape[-1]
        key_ED = batch.inputs["key"][:: docs_of(batch)]
        widths = self.config.widths or (width,)
        require(
            widths[-1] <= width,
            f"--criterion.widths: vectors have {width} dimensions, got {widths[-1]}",
        )
        if model.training and torch.is_grad_enabled() and key_ED.shape == (1, 2):
            warn_alone()
        losses = []
        for first in widths:
            scores_EM = self.scores(each_EDW[..., :first], key_ED)
            losses.append(self.cross_entropy(scores_EM, key_ED))
        correct = (scores_EM.detach().argmax(1) == targets(scores_EM)).sum().float()
        return Loss({"pairs": torch.stack(losses).mean()}, {"pairs/correct": correct})

    def vectors(self, states: Mapping[str, Tensor], batch: Batch) -> Tensor:
        """The vectors of all texts [E, D, W], of their states by the weights of the task."""
        pooled = []
        for name, slots in batch.towers.items():
            weighted_BTW = batch.inputs[f"{name}.weight"][..., None] * states[name].float()
            vectors_NW = weighted_BTW.new_zeros(len(batch.owner), weighted_BTW.shape[-1])
            # pads have the doc of the first text of their row, and the weight 0
            vectors_NW = vectors_NW.index_add(0, slots[DOC].flatten(), weighted_BTW.flatten(0, 1))
            pooled.append(vectors_NW.unflatten(0, (-1, docs_of(batch))))
        # the tower of sources, where there are two, has one doc an example
        return torch.cat([*(vectors_ESW[:, :1] for vectors_ESW in pooled[:-1]), pooled[-1]], dim=1)

    def scores(self, each_EDW: Tensor, key_ED: Tensor) -> Tensor:
        """The cosines of sources and other texts by the temperature, [E, M]; -inf: no negative."""
        unit_EDW = F.normalize(each_EDW, dim=-1)
        texts_MW = unit_EDW[:, 1:].flatten(0, 1)
        key_M = key_ED[:, 1:].flatten()
        # 16 bits cannot tell cosines apart that a low temperature makes large
        with torch.autocast(unit_EDW.device.type, enabled=False):
            scores_EM = unit_EDW[:, 0] @ texts_MW.mT / self.config.temperature
        places_M = torch.arange(len(key_M), device=key_M.device)
        own_EM = places_M == targets(scores_EM)[:, None]
        none_EM = (key_M == key_ED[:, 1, None]) | (key_M == 0)
        return scores_EM.masked_fill(none_EM & ~own_EM, -torch.inf)

    def cross_entropy(self, scores_EM: Tensor, key_ED: Tensor) -> Tensor:
        """The sum over pairs, in one direction or the mean of both."""
        label_E = targets(scores_EM)
        loss = F.cross_entropy(scores_EM, label_E, reduction="sum")
        if not self.config.symmetric:
            return loss
        # hard negatives are of no source; equal sources are none of each other's targets, and an
        # empty one is none of any
        source_E = key_ED[:, 0]
        own_E = torch.arange(len(label_E), device=label_E.device)
        same_EE = (source_E == source_E[:, None]) | (source_E == 0)
        same_EE &= own_E != own_E[:, None]
        back_EE = scores_EM[:, label_E].mT.masked_fill(same_EE, -torch.inf)
        return (loss + F.cross_entropy(back_EE, own_E, reduction="sum")) / 2


@cache
def warn_alone() -> None:
    """Warn once that a pair without other texts to compare with has no loss."""
    log.warning(
        "an update of one pair has no negatives, and a loss of 0; a larger --batch-tokens, or a "
        "smaller --block-size, gives it more"
    )


def docs_of(batch: Batch) -> int:
    """The docs of an example: its texts, those of two towers counted from 0 in each."""
    texts: int = batch.inputs["key"].shape[1]
    return texts + 1 - len(batch.towers)


def targets(scores_EM: Tensor) -> Tensor:
    """Where the target of each source is among all texts."""
    pairs, texts = scores_EM.shape
    return torch.arange(pairs, device=scores_EM.device) * (texts // pairs)
