"""Attention: the visibility rule, rendered once per forward and shared by the layers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk import masks
from unitk.errors import require
from unitk.models.config import ModelConfig
from unitk.models.flex import Flex, render_flex, render_flex_cross
from unitk.models.products import multiply, scores_by_products
from unitk.models.relative import RelativeBias
from unitk.slots import POS, WIDTH

Store = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Puts new keys and values [B, H, q, K] of a layer aside and returns all that can be seen."""

FLEX_WIDTH = 1024
"""From so many slots on, FlexAttention is faster on CUDA than SDPA with a dense mask: of published
figures for an H200 at 125 M parameters, 0.72 times at 512, 1.31 at 2,048 and 2.34 at 8,192 slots;
`recipes/benchmarks/attention.py` measures it."""
Rendering = Literal["auto", "dense", "flex"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class View:
    """How the queries of one forward see its keys; made once and shared by the layers."""

    num_keys: int
    """Keys and values are made for the first so many slots."""
    bias_BHTS: Tensor | None = None
    """Added to the scores: -inf where a query may not look, else 0 or the bias of the distance, in
    the scores' dtype; H is 1 where all heads share it. SDPA would turn a bool mask into this again
    in every layer."""
    causal: bool = False
    """Slot i sees the slots up to i; without `bias_BHTS`."""
    dropout: float = 0.0
    products: bool = False
    """Compute scores, softmax and sums one by one instead of calling SDPA's kernel."""
    flex: Flex | None = None
    """FlexAttention, which has all that stands above within it."""

    def behind(self, sight_BTP: Tensor) -> View:
        """The same queries with further keys in front, which they see where it says so."""
        assert self.bias_BHTS is not None
        first_B1TP = bias(sight_BTP, self.bias_BHTS.dtype)
        wide = first_B1TP.expand(-1, self.bias_BHTS.shape[1], -1, -1)
        return replace(self, bias_BHTS=torch.cat([wide, self.bias_BHTS], 3))

    def of(self, asked_Ba: Tensor) -> View:
        """How the asked slots among the queries see the keys."""
        bias = self.bias_BHTS
        return self if bias is None else replace(self, bias_BHTS=take(bias, asked_Ba))

    def __call__(
        self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor, scale: float
    ) -> Tensor:
        """What the queries find, [B, H, T, K]; scores are multiplied by `scale`."""
        if self.flex is not None:
            return self.flex(query_BHTK, key_BHSK, value_BHSK, scale)
        if not self.products:
            return F.scaled_dot_product_attention(
                query_BHTK,
                key_BHSK.to(query_BHTK.dtype),
                value_BHSK.to(query_BHTK.dtype),
                attn_mask=self.bias_BHTS,
                is_causal=self.causal,
                dropout_p=self.dropout,
                scale=scale,
            )
        scaled_BHTK = query_BHTK.to(key_BHSK.dtype) * scale
        score_BHTS = multiply(scaled_BHTK, key_BHSK.mT)
        if self.bias_BHTS is not None:
            score_BHTS += self.bias_BHTS
        weight_BHTS = F.dropout(score_BHTS.softmax(dim=-1), self.dropout)
        return multiply(weight_BHTS, value_BHSK).to(query_BHTK.dtype)


@dataclass(frozen=True)
class Source:
    """What a layer's cross-attention reads: an encoder's states as keys and values [B, H, S, K]."""

    view: View
    key: Tensor
    value: Tensor
    segment_BT: Tensor
    """Of the slots that read."""

    def of(self, asked_Ba: Tensor) -> Source:
        """What the asked slots alone read."""
        segment_Ba = self.segment_BT.gather(1, asked_Ba)
        return replace(self, view=self.view.of(asked_Ba), segment_BT=segment_Ba)


def render(
    slots: Tensor,
    sight: str,
    num_keys: int,
    dtype: torch.dtype,
    dropout: float,
    relative: RelativeBias | None = None,
    choice: Rendering = "auto",
) -> View:
    """How slots [9, B, T] see each other; `sight` is what collate found: full, causal or rule.

    This is the one place that chooses a kernel, unless the `choice` is made.
    """
    width = slots.shape[2]
    # whole multiples of WIDTH, as the kernels like; the few keys more are never born
    num_keys = min(width, -(-num_keys // WIDTH) * WIDTH)
    keys = slots[:, :, :num_keys]
    products, how = _kernel(slots, dtype, dropout, biased=relative is not None)
    exact = relative is None and (sight == "full" or (sight == "causal" and not products))
    if exact and choice == "auto":
        _say_once(logging.INFO, f"{how}, {'no mask' if sight == 'full' else 'causal'}")
        return View(width, causal=sight == "causal", dropout=dropout, products=products)
    if _flexible(slots, dropout, choice):
        return View(num_keys, flex=render_flex(slots, keys, dtype, relative))
    score_BHTS = None
    if relative is not None:
        how += ", relative positions: a table of its own for each head and row takes memory"
        score_BHTS = relative(slots[POS], keys[POS], dtype)
    _say_once(logging.INFO, f"{how}, dense mask")
    table_BHTS = bias(masks.dense(slots, keys), dtype, score_BHTS)
    return View(num_keys, table_BHTS, dropout=dropout, products=products)


def render_cross(
    slots: Tensor, source: Tensor, dtype: torch.dtype, dropout: float, choice: Rendering = "auto"
) -> View:
    """How a decoder's slots [9, B, T] see an encoder's [9, B, S]."""
    if _flexible(source, dropout, choice):
        return View(source.shape[2], flex=render_flex_cross(slots, source))
    products, how = _kernel(slots, dtype, dropout, biased=False)
    _say_once(logging.INFO, f"cross-{how}, dense mask")
    table_B1TS = bias(masks.cross(slots, source), dtype)
    return View(source.shape[2], table_B1TS, dropout=dropout, products=products)


def _flexible(slots: Tensor, dropout: float, choice: Rendering) -> bool:
    """Whether FlexAttention renders what looks at these slots."""
    if choice == "flex":
        free = "it has no dropout: give --arch.attention-dropout 0"
        require(not dropout, f"--attention flex excludes dropout of attention weights: {free}")
    long = slots.is_cuda and slots.shape[2] >= FLEX_WIDTH and not dropout
    found = choice == "flex" or (choice == "auto" and long)
    if found:
        _say_once(logging.INFO, f"attention on {slots.device.type}: FlexAttention, block mask")
    return found


def _kernel(slots: Tensor, dtype: torch.dtype, dropout: float, *, biased: bool) -> tuple[bool, str]:
    """Whether to multiply step by step, and words for the log."""
    device, products = slots.device.type, scores_by_products(slots, dtype, biased)
    if dropout and device == "cpu" and not products:
        why = f"attention dropout {dropout:g} forces a slow attention kernel on CPU"
        _say_once(logging.WARNING, f"{why}; --arch.attention-dropout 0 avoids it")
    return products, f"attention on {device}: {'matrix products' if products else 'SDPA'}"


def bias(sight_BTS: Tensor, dtype: torch.dtype, score_BHTS: Tensor | None = None) -> Tensor:
    """A bool table (True: may look) as what is added to the scores, [B, 1 or H, T, S].

    Where a query may look that is 0, or the `score_BHTS` given.
    """
    blind = torch.full((), float("-inf"), dtype=dtype, device=sight_BTS.device)
    seen = torch.zeros_like(blind) if score_BHTS is None else score_BHTS
    return torch.where(sight_BTS[:, None], seen, blind)


def compute_dtype(parameter: Tensor) -> torch.dtype:
    """The dtype linear maps give: autocast's where it is on, else the parameters'."""
    device = parameter.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return parameter.dtype


class Attention(nn.Module):
    """Multi-head self-attention with one projection for queries, keys and values, in thirds."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.num_heads, self.scale = config.num_heads, _scale(config)
        self.qkv = nn.Linear(config.width, 3 * config.heads_width, bias=config.bias)
        self.out = nn.Linear(config.heads_width, config.width, bias=config.bias)

    def forward(
        self,
        x_BTD: Tensor,
        view: View,
        store: Store | None = None,
        asked: Tensor | None = None,
    ) -> Tensor:
        query, key, value = self.project(x_BTD, view.num_keys)
        if asked is not None:
            query = take(query, asked)
        if store is not None:
            key, value = store(key, value)
        mixed_BHTK = view(query, key, value, self.scale)
        added_BTD: Tensor = self.out(mixed_BHTK.transpose(1, 2).flatten(2))
        return added_BTD

    def project(self, x_BTD: Tensor, num_keys: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of all slots, keys and values of the first `num_keys`, each [B, H, ., K]."""
        if num_keys >= x_BTD.shape[1] or not isinstance(self.qkv, nn.Linear):
            query, key, value = self.qkv(x_BTD).chunk(3, dim=-1)
            key, value = key[:, :num_keys], value[:, :num_keys]
        else:
            weight, bias = self.qkv.weight, self.qkv.bias
            width = len(weight) // 3
            first, rest = (None, None) if bias is None else (bias[:width], bias[width:])
            query = F.linear(x_BTD, weight[:width], first)
            key, value = F.linear(x_BTD[:, :num_keys], weight[width:], rest).chunk(2, dim=-1)
        return (
            _heads(query, self.num_heads),
            _heads(key, self.num_heads),
            _heads(value, self.num_heads),
        )


class CrossAttention(nn.Module):
    """Multi-head attention of a decoder's slots to an encoder's states.

    Where every segment has an output map of its own, they stand one below the other.
    """

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.num_heads, self.scale = config.num_heads, _scale(config)
        self.query = nn.Linear(config.width, config.heads_width, bias=config.bias)
        self.kv = nn.Linear(config.width, 2 * config.heads_width, bias=config.bias)
        self.maps = config.cross_maps
        self.out = nn.Linear(config.heads_width, self.maps * config.width, bias=config.bias)

    def forward(self, x_BTD: Tensor, source: Source) -> Tensor:
        query_BHTK = _heads(self.query(x_BTD), self.num_heads)
        mixed_BHTK = source.view(query_BHTK, source.key, source.value, self.scale)
        added_BTD: Tensor = self.out(mixed_BHTK.transpose(1, 2).flatten(2))
        if self.maps == 1:
            return added_BTD
        each_BTsD = added_BTD.unflatten(2, (self.maps, -1))
        own_BT11 = source.segment_BT[..., None, None]
        own_BTD: Tensor = each_BTsD.take_along_dim(own_BT11, 2).squeeze(2)
        return own_BTD

    def weights(self, x_BTD: Tensor, source: Source) -> Tensor:
        """How much each slot looks at each state that is read, [B, T, S]: the mean of the heads."""
        query_BHTK = _heads(self.query(x_BTD), self.num_heads)
        score_BHTS = (query_BHTK * self.scale) @ source.key.mT
        if source.view.bias_BHTS is not None:
            score_BHTS = score_BHTS + source.view.bias_BHTS
        weight_BTS: Tensor = score_BHTS.softmax(dim=-1).mean(1)
        return weight_BTS

    def project(self, states_BSD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, S, K] of what is read."""
        key, value = self.kv(states_BSD).chunk(2, dim=-1)
        return _heads(key, self.num_heads), _heads(value, self.num_heads)


def take(table: Tensor, asked_Ba: Tensor) -> Tensor:
    """The rows of the asked slots: of [B, T, D] or [B, H, T, .] those along T."""
    index = asked_Ba[..., None] if table.dim() == 3 else asked_Ba[:, None, :, None]
    rows: Tensor = table.gather(-2, index.expand(*table.shape[:-2], -1, table.shape[-1]))
    return rows


def _scale(config: ModelConfig) -> float:
    return config.key_width**-0.5 if config.score_scale else 1.0


def _heads(x_BTD: Tensor, num_heads: int) -> Tensor:
    return x_BTD.view(*x_BTD.shape[:2], num_heads, -1).transpose(1, 2)


@cache
def _say_once(level: int, message: str) -> None:
    log.log(level, message)
