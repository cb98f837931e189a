"""Attention whose scores depend on the query and on distances, as XLNet's, as a plug-in."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from unitk.models.attention import Attention
from unitk.models.config import EncoderDecoderConfig, ModelConfig
from unitk.slots import POS, SEG


class DistanceAttention(Attention):
    """Yang et al. 2019, arXiv 1906.08237: in one head and with the layer's own u, v, w and s,

    score = ((q + u) k + (q + v) W r_{i-j} + (q + w) s_{seg_i != seg_j}) / sqrt(K)
    """

    def __init__(self, config):
        super().__init__(config)
        heads = self.num_heads, config.key_width
        self.width = config.width
        self.map = nn.Linear(config.width, config.heads_width, bias=False)
        self.u, self.v, self.w = (nn.Parameter(0.2 * torch.randn(heads)) for _ in range(3))
        self.s = nn.Parameter(0.2 * torch.randn(2, *heads))

    def score_bias(self, query_BHTK, key_BHSK, view):
        i, j = view.queries[POS][:, :, None], view.keys[POS][:, None]
        wave = sinusoid(i - j, self.width).type_as(query_BHTK)
        r_BHTSK = self.map(wave).unflatten(-1, self.u.shape).permute(0, 3, 1, 2, 4)
        other = view.queries[SEG][:, :, None] != view.keys[SEG][:, None]
        s_BHTSK = self.s[other.long()].permute(0, 3, 1, 2, 4)
        u, v, w = (each[:, None] for each in (self.u, self.v, self.w))
        return self.scale * (
            u @ key_BHSK.mT
            + ((query_BHTK + v)[:, :, :, None] * r_BHTSK).sum(-1)
            + ((query_BHTK + w)[:, :, :, None] * s_BHTSK).sum(-1)
        )


def sinusoid(distance, width):
    """[..., width]: sines, then cosines."""
    angle = distance[..., None] / 10_000 ** (torch.arange(0, width, 2) / width)
    return torch.cat([angle.sin(), angle.cos()], -1)


@dataclass(frozen=True, kw_only=True)
class Distances(ModelConfig):
    """One tower."""

    attention_type = f"{__name__}:DistanceAttention"


@dataclass(frozen=True, kw_only=True)
class Segmented(Distances):
    """With places within blanks and with segments."""

    max_positions2: int = 64
    num_segments: int = 6


@dataclass(frozen=True, kw_only=True)
class TwoTowers(EncoderDecoderConfig):
    """An encoder and a decoder."""

    attention_type = f"{__name__}:DistanceAttention"


ARCHS = {"distances": Distances, "distances_seg": Segmented, "distances2": TwoTowers}
