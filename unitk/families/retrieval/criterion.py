"""The loss of vectors of texts that belong together.

E pairs, D texts of each (a source, its target, hard negatives), N = E * D docs, W dimensions, M =
E * (D - 1) texts that a source may belong to.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from unitk.criterions.base import Loss, Network
from unitk.errors import UsageError, require
from unitk.families.retrieval.config import ContrastiveConfig
from unitk.slots import BORN, DOC, NEVER, TOKEN, Batch


@dataclass(frozen=True)
class Contrast:
    """The sum over pairs (pairs) of the cross-entropy of the target among all targets and hard
    negatives of the batch. Part: pairs/correct, the pairs whose target is the nearest text.

    A text that equals the target is no negative of its source.
    """

    config: ContrastiveConfig
    symbols: tuple[int, ...]

    def counts(self, batch: Batch) -> dict[str, float]:
        return {"pairs": float(int(batch.owner.max()) + 1)}

    def undivided(self) -> str:
        """The option that requires whole updates: the negatives are those of the whole update."""
        return "--criterion contrastive"

    def __call__(self, model: Network, batch: Batch, step: int, total: int | None) -> Loss:
        if "key" not in batch.inputs:
            raise UsageError("--criterion contrastive is for --task contrastive")
        states, _ = model(batch, model.condition(batch))
        vectors_NW = self.vectors(states["x"].float(), batch)
        pairs = int(batch.owner.max()) + 1
        each_EDW, key_ED = (
            one.unflatten(0, (pairs, -1)) for one in (vectors_NW, batch.inputs["key"])
        )
        width = vectors_NW.shape[1]
        widths = self.config.widths or (width,)
        most = f"--criterion.widths: vectors have {width} dimensions, got {widths[-1]}"
        require(widths[-1] <= width, most)
        losses = []
        for own in widths:
            scores_EM = self.scores(each_EDW[..., :own], key_ED)
            losses.append(self.cross_entropy(scores_EM))
        label_E = self.targets(scores_EM)
        correct = (scores_EM.detach().argmax(1) == label_E).sum().float()
        return Loss({"pairs": torch.stack(losses).mean()}, {"pairs/correct": correct})

    def vectors(self, states_BTD: Tensor, batch: Batch) -> Tensor:
        """The vector of each doc [N, W], as `unitk embed` pools it."""
        slots: Tensor = batch.towers["x"]
        count, doc, flat = len(batch.owner), slots[DOC].flatten(), states_BTD.flatten(0, 1)
        real = slots[BORN].flatten() < NEVER
        places = torch.arange(len(doc), device=doc.device)
        if self.config.pool != "mean":
            last = self.config.pool == "last"
            # pads have the doc of the first text of their row, so they stand for none
            edge = torch.where(real, places, -1 if last else len(doc))
            found = doc.new_full((count,), -1 if last else len(doc))
            how = "amax" if last else "amin"
            return flat[found.scatter_reduce(0, doc, edge, how)]
        symbols = torch.tensor(self.symbols, device=doc.device)
        counted = (real & ~torch.isin(slots[TOKEN].flatten(), symbols)).type_as(flat)
        summed = flat.new_zeros(count, flat.shape[1]).index_add(0, doc, flat * counted[:, None])
        words = flat.new_zeros(count).index_add(0, doc, counted)
        return summed / words.clamp(min=1)[:, None]

    def scores(self, each_EDW: Tensor, key_ED: Tensor) -> Tensor:
        """The cosines of sources and other texts by the temperature, [E, M]; -inf: the same text as
        the target."""
        unit_EDW = F.normalize(each_EDW, dim=-1)
        texts_MW, key_M = unit_EDW[:, 1:].flatten(0, 1), key_ED[:, 1:].flatten()
        scores_EM = unit_EDW[:, 0] @ texts_MW.mT / self.config.temperature
        own_EM = F.one_hot(self.targets(scores_EM), len(key_M)).bool()
        same_EM = key_M[None] == key_ED[:, 1, None]
        return scores_EM.masked_fill(same_EM & ~own_EM, -torch.inf)

    def targets(self, scores_EM: Tensor) -> Tensor:
        """Where the target of each source stands among all texts."""
        pairs, texts = scores_EM.shape
        return torch.arange(pairs, device=scores_EM.device) * (texts // pairs)

    def cross_entropy(self, scores_EM: Tensor) -> Tensor:
        """The sum over pairs, in one direction or the mean of both."""
        label_E = self.targets(scores_EM)
        loss = F.cross_entropy(scores_EM, label_E, reduction="sum")
        if not self.config.symmetric:
            return loss
        # hard negatives are of no source
        back_EE = scores_EM[:, label_E].mT
        own_E = torch.arange(len(label_E), device=label_E.device)
        return (loss + F.cross_entropy(back_EE, own_E, reduction="sum")) / 2
