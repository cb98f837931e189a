"""XLNet's attention, and what it carries from one text of a stateful row to the next.

Yang et al. 2019, arXiv 1906.08237, section 2.5; Dai et al. 2019, arXiv 1901.02860, section 3.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from unitk.families.xlnet.config import XLNetConfig
from unitk.models.attention import Attention, View
from unitk.models.config import ModelConfig
from unitk.models.model import Model
from unitk.models.state import Carry, Condition
from unitk.slots import BORN, CROSS, DIES, NEVER, NOW, POS, POS2, SEG, TOKEN, Batch


class RelativeAttention(Attention):
    """Self-attention that knows where a key is, seen from the query, and whether it is of the same
    segment: of one head, with its own vectors u, v, w and s,

        score = ((q + u) k + (q + v) W sinusoid(i - j) + (q + w) s[seg_i != seg_j]) / sqrt(K)

    None of its maps has a bias.
    """

    def __init__(self, config: ModelConfig):
        super().__init__(replace(config, bias=False))
        width = config.heads_width
        self.width = config.width
        self.distances = nn.Linear(config.width, width, bias=False)
        self.segments = nn.Embedding(2, width)

        def vector() -> nn.Parameter:
            return nn.Parameter(config.init_std * torch.randn(width))

        self.content_bias = vector()
        self.position_bias = vector()
        self.segment_bias = vector()

    def score_bias(self, query_BHTK: Tensor, key_BHSK: Tensor, view: View) -> Tensor:
        """The terms of the scores besides q k / sqrt(K)."""

        def of_heads(table: Tensor) -> Tensor:
            """[..., H * K] as [H, ..., K], in the dtype of the queries."""
            apart = table.reshape(*table.shape[:-1], self.num_heads, -1)
            return apart.movedim(-2, 0).type_as(query_BHTK)

        u_HK, v_HK, w_HK = map(of_heads, (self.content_bias, self.position_bias, self.segment_bias))
        # u k is the same for all queries
        score_BHTS = u_HK[:, None] @ key_BHSK.mT
        # scores for each distance that there is, then those of the pairs
        distance_BTS = view.queries[POS][:, :, None] - view.keys[POS][:, None]
        low, high = map(int, distance_BTS.aminmax())
        every_R = torch.arange(low, high + 1, device=distance_BTS.device)
        wave_RD = sinusoid(every_R, self.width).type_as(query_BHTK)
        r_HRK = of_heads(self.distances(wave_RD))
        near_BHTR = (query_BHTK + v_HK[:, None]) @ r_HRK.mT
        index_BHTS = (distance_BTS - low)[:, None].expand(-1, self.num_heads, -1, -1)
        score_BHTS = score_BHTS + near_BHTR.gather(3, index_BHTS)
        # two scores for each query: of keys of its own segment, and of others
        same_BHT2 = (query_BHTK + w_HK[:, None]) @ of_heads(self.segments.weight).mT
        other_BTS = view.queries[SEG][:, :, None] != view.keys[SEG][:, None]
        score_BHTS = score_BHTS + torch.where(
            other_BTS[:, None], same_BHT2[..., 1:], same_BHT2[..., :1]
        )
        return self.scale * score_BHTS


def sinusoid(distance: Tensor, width: int) -> Tensor:
    """Sines of distances, then cosines: [..., width] (Vaswani et al. 2017, 1706.03762, 3.5)."""
    even = torch.arange(0, width, 2, dtype=torch.float64, device=distance.device)
    angle = distance[..., None] / 10_000 ** (even / width)
    return torch.cat([angle.sin(), angle.cos()], -1)


class XLNetNetwork(Model):
    """A tower whose layers look at the states that entered them in the text before, too."""

    config: XLNetConfig

    def condition(self, batch: Batch) -> Condition:
        """The embeddings of the docs' tasks, and what the rows carried in."""
        return replace(super().condition(batch), memory=batch.carry)

    def states_to_carry(self, slots: Tensor, entered_BLTD: Tensor, memory: Carry) -> Carry:
        """The last states that entered each layer, those of the memory before included.

        "states" [B, L, M, D], and their "slots" [B, 9, M], whose positions are counted from where
        the next text begins. Queries and pads are no part of it; what is lacking is never born.
        """
        length = self.config.memory_length
        size_B = (slots[BORN] < NEVER).sum(1)
        # a text is read towards its last slot: from its end, positions fall
        ends_B2 = torch.stack([slots[POS, :, 0], slots[POS].gather(1, size_B[:, None] - 1)[:, 0]])
        step_B = torch.where(ends_B2[1] < ends_B2[0], -1, 1)
        table = slots.transpose(0, 1)
        if memory:
            old = memory["slots"].clone()
            old[:, POS] += slots[POS, :, :1]
            table = torch.cat([old, table], 2)
            entered_BLTD = torch.cat([memory["states"].type_as(entered_BLTD), entered_BLTD], 2)
        # contents come first in a row: the last of them is `size_B` after the memory
        before = table.shape[2] - slots.shape[2]
        index_BM = (before + size_B)[:, None] + torch.arange(-length, 0, device=slots.device)
        kept_BM = index_BM.clamp(min=0)
        table = table.gather(2, kept_BM[:, None].expand(-1, len(slots), -1)).clone()
        table[:, POS] -= (ends_B2[1] + step_B)[:, None]
        # alive from the start, for ever, and of segment 0, as in the official code
        table[:, [TOKEN, POS2, SEG, NOW, CROSS]] = 0
        lacks_BM = (index_BM < 0) | (table[:, BORN] == NEVER)
        table[:, BORN] = torch.where(lacks_BM, NEVER, -NEVER)
        table[:, DIES] = NEVER
        where = kept_BM[:, None, :, None].expand(-1, entered_BLTD.shape[1], -1, self.config.width)
        return {"states": entered_BLTD.gather(2, where), "slots": table.contiguous()}
