"""The visibility rule as FlexAttention's block mask: for long rows, on CUDA.

A batch becomes one row of N queries and M keys, whose `doc` tells examples apart. Its length is
rounded up to a power of two, so that few shapes are compiled; blocks of pads are never computed.
FlexAttention has no dropout and, on a CPU, no backward (torch 2.13).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from unitk.masks import sees, text_positions
from unitk.models.relative import RelativeBias
from unitk.slots import BORN, CROSS, DIES, DOC, NEVER, NOW, POS

BLOCK = 128
"""Queries and keys of a block, which is computed or passed over as a whole."""
LEAST = 16
"""The least width of heads that FlexAttention compiles on CUDA (torch 2.13)."""


@dataclass(frozen=True)
class Flex:
    """Attention of a batch's queries to its keys."""

    blocks: BlockMask
    score: Callable[..., Tensor] | None
    """Changes a score, given its row, head, query and key."""

    def __call__(self, query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
        """As `View.__call__`: [B, H, T, K], [B, G, S, K] twice -> [B, H, T, K]."""
        rows, _, width, size = query.shape
        num_queries, num_keys = self.blocks.seq_lengths
        mixed_1HNK = _kernel(query.is_cuda)(
            _row(query, num_queries),
            _row(key, num_keys),
            _row(value, num_keys),
            score_mod=self.score,
            block_mask=self.blocks,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        mixed_HNK = mixed_1HNK[0, :, : rows * width, :size]
        mixed_BHTK: Tensor = mixed_HNK.unflatten(1, (rows, width))
        return mixed_BHTK.transpose(0, 1)


def render_flex(
    queries: Tensor,
    keys: Tensor,
    dtype: torch.dtype,
    relative: RelativeBias | None = None,
    window: int = 0,
) -> Flex:
    """Slots [9, B, T] look at slots [9, B, S] by the rule, within a window if it is not 0."""
    times = queries[NOW], queries[DOC], keys[BORN], keys[DIES], keys[DOC]
    score = None
    if relative is not None:
        score = _score(relative.by_distance(dtype), relative.far, queries[POS], keys[POS])
    return Flex(block_mask(*times, text_positions(queries), text_positions(keys), window), score)


def render_flex_cross(queries: Tensor, keys: Tensor) -> Flex:
    """A decoder's slots [9, B, T] look at an encoder's [9, B, S] (`masks.cross`)."""
    born = torch.where(keys[CROSS] == 1, 0, NEVER)
    never = torch.full_like(born, NEVER)
    times = 0 * queries[NOW], queries[DOC], born, never, keys[DOC]
    return Flex(block_mask(*times, queries[POS], keys[POS], 0), None)


def block_mask(
    now: Tensor,
    query_doc: Tensor,
    born: Tensor,
    dies: Tensor,
    key_doc: Tensor,
    query_place: Tensor,
    key_place: Tensor,
    window: int,
) -> Any:
    """The rule for queries [B, T] and keys [B, S], as one row of each.

    Which blocks are seen in part or in full follows from the least and the largest value of each
    vector in it: some that nobody sees may be computed, but none that is seen is passed over.
    """
    num_queries, num_keys = _size(now.numel()), _size(born.numel())
    # pads come last, in docs of their own: a query's pad sees nothing, a key's is not seen
    now_N = _flat(now, num_queries, 0)
    query_doc_N = _flat(query_doc, num_queries, NEVER)
    born_M, dies_M = _flat(born, num_keys, NEVER), _flat(dies, num_keys, NEVER)
    key_doc_M = _flat(key_doc, num_keys, NEVER + 1)
    query_place_N, key_place_M = _flat(query_place, num_queries, 0), _flat(key_place, num_keys, 0)

    def visible(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        times = now_N[query], query_doc_N[query], born_M[key], dies_M[key], key_doc_M[key]
        if not window:
            return sees(*times)
        return sees(*times) & (abs(query_place_N[query] - key_place_M[key]) <= window)

    # least and largest value in each block of BLOCK queries [n, 1] or keys [1, m]
    (now_0, now_1), (asks_0, asks_1) = _ends(now_N, 1), _ends(query_doc_N, 1)
    (born_0, born_1), (dies_0, dies_1), (doc_0, doc_1) = (
        _ends(field_M, 0) for field_M in (born_M, dies_M, key_doc_M)
    )
    # some: intervals of doc meet, and some key may be alive at some query's time
    some = (asks_0 <= doc_1) & (doc_0 <= asks_1) & (born_0 <= now_1) & (now_0 <= dies_1)
    # full: one doc on both sides, and every key alive at every query's time; no rule is computed
    one_doc = (asks_0 == asks_1) & (doc_0 == doc_1) & (asks_0 == doc_0)
    full = one_doc & (born_1 <= now_0) & (now_1 <= dies_0)
    if window:  # some: the nearest places of both sides are near enough; full: the furthest are
        (at_0, at_1), (there_0, there_1) = _ends(query_place_N, 1), _ends(key_place_M, 0)
        some &= (there_0 - at_1 <= window) & (at_0 - there_1 <= window)
        full &= (there_1 - at_0 <= window) & (at_1 - there_0 <= window)
    return BlockMask.from_kv_blocks(
        *_list_blocks(some & ~full),
        *_list_blocks(full),
        BLOCK_SIZE=BLOCK,
        mask_mod=visible,
        seq_lengths=(num_queries, num_keys),
    )


def _score(
    by_distance_HR: Tensor, far: int, query_pos: Tensor, key_pos: Tensor
) -> Callable[..., Tensor]:
    """A function that adds the learned bias of a distance to a score."""
    query_pos_N = _flat(query_pos, _size(query_pos.numel()), 0)
    key_pos_M = _flat(key_pos, _size(key_pos.numel()), 0)

    def biased(score: Tensor, row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        distance = torch.clamp(key_pos_M[key] - query_pos_N[query], -far, far)
        return score + by_distance_HR[head, distance + far]

    return biased


def _size(slots: int) -> int:
    """The smallest power of two, at least a block, that holds this many slots."""
    return max(BLOCK, 1 << (slots - 1).bit_length())


def _flat(field: Tensor, size: int, pad: int) -> Tensor:
    return F.pad(field.flatten().int(), (0, size - field.numel()), value=pad)


def _row(x_BHTK: Tensor, size: int) -> Tensor:
    """The rows of a batch one after the other, [1, H, size, K]; K is LEAST at the least."""
    # pads are zeros: no query sees them, but 0 * nan would be nan
    x_HNK = x_BHTK.transpose(0, 1).flatten(1, 2)
    # nor do zeros after a head's numbers change its scores
    more = max(0, LEAST - x_HNK.shape[2])
    return F.pad(x_HNK, (0, more, 0, size - x_HNK.shape[1]))[None]


def _ends(field: Tensor, axis: int) -> tuple[Tensor, Tensor]:
    """Least and largest value of each block, so that queries [n, 1] (`axis` 1) meet keys [1, m]."""
    blocks = field.view(-1, BLOCK)
    return blocks.amin(1).unsqueeze(axis), blocks.amax(1).unsqueeze(axis)


def _list_blocks(blocks_QK: Tensor) -> tuple[Tensor, Tensor]:
    """How many blocks of keys each block of queries has, and which, those it has first."""
    # sorted by whether they are seen; stable, so that keys are read in the order of memory
    which = blocks_QK.int().argsort(dim=1, descending=True, stable=True)
    return blocks_QK.sum(1).int()[None, None], which.int()[None, None]


@cache
def _kernel(compiled: bool) -> Any:
    # shapes are known when it is compiled: `_size` leaves few of them
    return torch.compile(flex_attention, dynamic=False) if compiled else flex_attention
