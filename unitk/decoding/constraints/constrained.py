"""Beam search whose outputs contain given phrases, in any order.

Dynamic beam allocation: Post and Vilar 2018, arXiv 1804.06609, section 3. Hypotheses of an input
are sorted into banks by the words of the phrases that they have written, and the beam is dealt out
to the banks in turn, so that those that get on with the phrases are never crowded out. A phrase may
stand in any blank, and share words with another one.
"""

from __future__ import annotations

import torch
from torch import Tensor

from unitk.decoding.search import Request, Search, best


class Constrained(Search):
    """Beam search with required phrases [B, C, L], padded with -1."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        each = [one.phrases for one in request.constraints.each]
        count = max(map(len, each))
        length = max(len(phrase) for phrases in each for phrase in phrases)
        table = torch.full((len(each), count, length), -1)
        for row, phrases in zip(table, each, strict=True):
            for part, phrase in zip(row, phrases, strict=False):
                part[: len(phrase)] = torch.tensor(phrase)
        self.phrases = table.to(request.homes.device)
        self.sizes = (self.phrases >= 0).sum(2)
        self.banks = 1 + max(sum(map(len, phrases)) for phrases in each)
        self.met = (self.sizes == 0)[:, None].repeat(1, self.config.beam, 1)
        """[B, K, C] which phrases a hypothesis has written."""
        self.begun = self._begun()

    def _begun(self) -> Tensor:
        """[B, K, C, L + 1] whether the last p words of a hypothesis are the first p of a phrase."""
        parts = [torch.ones_like(self.met)]  # every hypothesis ends with the first 0 words
        for size in range(1, self.phrases.shape[2] + 1):
            if size > self.steps:  # fewer words are written than that
                parts.append(torch.zeros_like(self.met))
                continue
            tail = self.state.written[:, :, self.steps - size : self.steps]
            # [B, K, 1, p] == [B, 1, C, p]; the -1 behind a shorter phrase equals no word
            parts.append((tail[:, :, None] == self.phrases[:, None, :, :size]).all(-1))
        return torch.stack(parts, -1)

    def extend(self, logits_RV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Choose the next words as a plain search does, and record which phrases are complete."""
        back, token, place = super().extend(logits_RV)
        self.begun = self._begun()
        # a phrase of n words is complete where the last n words are its first n
        whole = self.sizes[:, None, :, None].expand(-1, self.met.shape[1], -1, 1)
        met = self.met.gather(1, back[..., None].expand_as(self.met))
        self.met = met | self.begun.gather(3, whole)[..., 0]
        return back, token, place

    def propose(self, logits_RV: Tensor) -> tuple[Tensor, ...]:
        """The continuations that the banks of an input take in turn, each bank its best first."""
        gain_BKV = self.gains(logits_RV)
        size = gain_BKV.shape[2]
        index = self._candidates(gain_BKV)
        gain = gain_BKV.flatten(1).gather(1, index)
        total = gain + self.state.score.gather(1, index // size)
        # what is named twice, and here next to itself, counts once
        total[:, 1:].masked_fill_(index[:, 1:] == index[:, :-1], -torch.inf)
        total, order = total.sort(dim=1, descending=True, stable=True)
        gain, index = gain.gather(1, order), index.gather(1, order)
        back, word = index // size, index % size
        order = self._turns(total, self._bank(back, word))[:, : self.wide]
        return self.filled(*(part.gather(1, order) for part in (total, back, word, gain)))

    def _candidates(self, gain_BKV: Tensor) -> Tensor:
        """Candidate continuations of an input, sorted, as hypothesis * V + word.

        They are the best overall, the best of each hypothesis, and those that continue a phrase.
        """
        _, each, size = gain_BKV.shape
        # the best words of each hypothesis: the best continuations of all are among them
        offset = torch.arange(each, device=gain_BKV.device)[:, None] * size
        found = best(gain_BKV.flatten(0, 1), min(self.wide, size))
        gain, word = (part.unflatten(0, (-1, each)) for part in found)
        total = (gain + self.state.score[:, :each, None]).flatten(1)
        most = total.topk(min(self.wide, total.shape[1])).indices
        most = (word + offset).flatten(1).gather(1, most)
        # The word that goes on with the longest begun part of each phrase. A complete phrase has no
        # next word; the hypothesis' own best word stands in its place.
        longest = _last(self.begun[:, :each, :, :-1])[..., None]
        follow = self.phrases[:, None].expand(-1, each, -1, -1).gather(3, longest)[..., 0]
        own = word[..., :1]
        follow = torch.where(self.met[:, :each], own, follow)
        more = (torch.cat([own, follow], 2) + offset).flatten(1)
        # sorted, so that `propose` finds equal ones side by side
        return torch.cat([most, more], 1).sort(1).values

    def _bank(self, back: Tensor, word: Tensor) -> Tensor:
        """[B, N] how many words of the phrases each continuation of a hypothesis has met."""
        # where p words of a phrase stand at the end, its next word makes p + 1
        wide = back[..., None, None].expand(-1, -1, *self.begun.shape[2:])
        begun = self.begun.gather(1, wide)[..., :-1] & (
            self.phrases[:, None] == word[..., None, None]
        )
        reached = torch.where(begun.any(-1), _last(begun) + 1, 0)
        sizes = self.sizes[:, None]
        met = self.met.gather(1, wide[..., 0]) | (reached == sizes)
        # all words of complete phrases, and those of the open phrase that has got farthest
        return (sizes * met).sum(2) + reached.masked_fill(met, 0).amax(2)

    def _turns(self, total: Tensor, bank: Tensor) -> Tensor:
        """The order in which the banks take continuations, which are sorted by their totals."""
        there = total > -torch.inf
        same = (bank[:, :, None] == bank[:, None]) & there[:, None]
        # The j-th best of a bank takes turn j. In a turn the fullest bank comes first;
        # continuations that do not exist come last.
        turn = same.tril(-1).sum(2)
        key = turn * self.banks - bank
        return key.masked_fill(~there, key.max() + 1).argsort(dim=1, stable=True)

    def _forbid(self, gain_RV: Tensor, each: int) -> None:
        super()._forbid(gain_RV, each)
        # the last blank cannot end while a phrase is missing
        lacking = ~self.met[:, :each].all(2) & (self.state.blank[:, :each] == self.state.last_blank)
        gain_RV[:, self.protocol.end].masked_fill_(lacking.flatten(), -torch.inf)

    def select(self, rows: Tensor) -> None:
        """Keep only these inputs."""
        super().select(rows)
        parts = (self.phrases, self.sizes, self.met, self.begun)
        self.phrases, self.sizes, self.met, self.begun = (part[rows] for part in parts)


def _last(flags: Tensor) -> Tensor:
    """The index of the last True along the last axis, 0 if there is none."""
    count = flags.shape[-1]
    return (flags * torch.arange(count, device=flags.device)).amax(-1)
