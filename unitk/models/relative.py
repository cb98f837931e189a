"""Positions in attention: a learned bias on scores, or queries and keys that rotate."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.masks import text_positions
from unitk.models.config import ModelConfig
from unitk.slots import POS, POS2


class RelativeBias(nn.Module):
    """One number per head and bucket of distances, shared by the layers (UniLMv2, section 4.1).

    It depends on the slots' `pos`, so a word and the masks in its place have the same distances.
    With `one_sided`, all buckets are for keys before the query, because a decoder sees no others
    (T5).
    """

    def __init__(self, config: ModelConfig, one_sided: bool = False):
        super().__init__()
        self.far = config.relative_distance
        self.one_sided = one_sided
        self.table = nn.Embedding(config.relative_buckets, config.num_heads)

    def forward(self, query_pos_BT: Tensor, key_pos_BS: Tensor, dtype: torch.dtype) -> Tensor:
        """The bias on the scores [B, H, T, S]."""
        # bucket the few distances there are, then look up the bias of every pair
        distance_BTS = key_pos_BS[:, None, :] - query_pos_BT[:, :, None]
        index_BTS = distance_BTS.clamp_(-self.far, self.far) + self.far
        return self.by_distance(dtype)[:, index_BTS].transpose(0, 1)

    def by_distance(self, dtype: torch.dtype) -> Tensor:
        """Each head's bias for the distances from -far to far, [H, R]."""
        distance_R = torch.arange(-self.far, self.far + 1, device=self.table.weight.device)
        bucket_R = buckets(distance_R, self.table.num_embeddings, self.far, self.one_sided)
        return self.table(bucket_R).to(dtype).mT.contiguous()


def buckets(distance: Tensor, count: int, far: int, one_sided: bool = False) -> Tensor:
    """The bucket of key position - query position (Raffel et al. 2020, arXiv 1910.10683, 2.1).

    Half of the `count` buckets are for keys after the query; if `one_sided` none is, and such keys
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


def rotation(config: ModelConfig, slots: Tensor, base: float) -> Tensor | None:
    """The rotary factors of slots [9, B, T], complex numbers of length 1: [B, 1, T, K / 2].

    Pair i of n turns by pos * base^(-i / n) (Su et al. 2021, arXiv 2104.09864, section 3.2). With
    second positions half of the pairs turn by each, without them all by the sum: a word of GLM's
    blank is then where it has its place in the text. None: the base is 0, without positions.
    """
    if not base:
        return None
    places = [slots[POS], slots[POS2]] if config.max_positions2 else [text_positions(slots)]
    pairs = config.key_width // (2 * len(places))
    turning = round(pairs * config.rotary_share)  # the other pairs have a speed of 0
    channels = torch.arange(turning, dtype=torch.float64, device=slots.device)
    speed_P = F.pad(slow_down(config, base ** (-channels / turning)), (0, pairs - turning))
    # in doubles: in floats, far positions lose their differences
    angle_BTP = torch.cat([place_BT[..., None] * speed_P for place_BT in places], -1)
    return torch.polar(torch.ones_like(angle_BTP), angle_BTP)[:, None].to(torch.complex64)


def slow_down(config: ModelConfig, speed_P: Tensor) -> Tensor:
    """The angles of a position, divided by a factor for longer texts.

    Llama 3 leaves out the pairs that turn often enough in the texts that it was trained on (Meta
    2024, https://github.com/meta-llama/llama-models, `apply_scaling`).
    """
    kept_P = torch.zeros_like(speed_P)  # the share of the speed that is not divided
    if config.rotary_wavelengths:
        short, long = (2 * math.pi / wave for wave in config.rotary_wavelengths)
        kept_P = ((speed_P - long) / (short - long)).clamp(0, 1)
    return speed_P * (kept_P + (1 - kept_P) / config.rotary_factor)


def rotate(x_BHTK: Tensor, rotation_B1TP: Tensor) -> Tensor:
    """Rotate pairs of channels (2i, 2i + 1) of queries or keys, in 32 bits at least."""
    wide_BHTK = x_BHTK.float() if x_BHTK.dtype.itemsize < 4 else x_BHTK
    if torch.compiler.is_compiling():  # which makes no code for complex numbers
        a_BHTP, b_BHTP = wide_BHTK.unflatten(-1, (-1, 2)).unbind(-1)
        cos_B1TP, sin_B1TP = torch.view_as_real(rotation_B1TP).unbind(-1)
        turned_BHTP = a_BHTP * cos_B1TP - b_BHTP * sin_B1TP, a_BHTP * sin_B1TP + b_BHTP * cos_B1TP
        return torch.stack(turned_BHTP, -1).flatten(-2)
    pairs_BHTP = torch.view_as_complex(wide_BHTK.unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs_BHTP * rotation_B1TP).flatten(-2)
