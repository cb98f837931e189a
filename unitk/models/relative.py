"""A learned bias on attention scores for the distance between two positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from unitk.models.config import ModelConfig


class RelativeBias(nn.Module):
    """One number per head and bucket of distances, shared by the layers (UniLMv2, section 4.1).

    It reads the slots' `pos`, so that a word and the masks in its place have the same distances.
    `one_sided`: all buckets are of keys before the query, as a decoder sees no others (T5).
    """

    def __init__(self, config: ModelConfig, one_sided: bool = False):
        super().__init__()
        self.far, self.one_sided = config.relative_distance, one_sided
        self.table = nn.Embedding(config.relative_buckets, config.num_heads)

    def forward(self, query_pos_BT: Tensor, key_pos_BS: Tensor, dtype: torch.dtype) -> Tensor:
        """What is added to the scores [B, H, T, S]."""
        # bucket the few distances there are, then look up the bias of every pair
        distance_BTS = key_pos_BS[:, None, :] - query_pos_BT[:, :, None]
        index_BTS = distance_BTS.clamp_(-self.far, self.far) + self.far
        return self.by_distance(dtype)[:, index_BTS].transpose(0, 1)

    def by_distance(self, dtype: torch.dtype) -> Tensor:
        """Each head's bias for the distances -far to far, [H, R]."""
        every = torch.arange(-self.far, self.far + 1, device=self.table.weight.device)
        bucket_R = buckets(every, self.table.num_embeddings, self.far, self.one_sided)
        by_distance_HR: Tensor = self.table(bucket_R).to(dtype).mT.contiguous()
        return by_distance_HR


def buckets(distance: Tensor, count: int, far: int, one_sided: bool = False) -> Tensor:
    """The bucket of key position - query position (Raffel et al. 2020, arXiv 1910.10683, 2.1).

    Half of the `count` buckets are for keys behind the query; if `one_sided` none is, and such keys
    are as near as the query itself. Of a side, the first half holds one distance each, the rest
    grow by equal factors up to `far`, beyond which all is one.
    """
    side = count if one_sided else count // 2
    exact = side // 2
    size = (distance.neg().clamp(min=0) if one_sided else distance.abs()).double()
    # in doubles and with a grain added, a power of the factor falls into its own bucket
    factors = torch.log(size.clamp(min=exact) / exact) / math.log(far / exact) * (side - exact)
    wide = (exact + (factors + 1e-9).long()).clamp(max=side - 1)
    bucket = torch.where(size < exact, size.long(), wide)
    return bucket if one_sided else bucket + side * (distance > 0)
