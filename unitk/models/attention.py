"""Attention: the visibility rule, rendered once per forward and shared by the layers."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk import masks
from unitk.models.config import ModelConfig
from unitk.slots import WIDTH

Store = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
"""Puts new keys and values [B, H, q, K] of a layer aside and returns all that can be seen."""

PRODUCTS_WIDTH = 1024
"""Longer inputs leave the table of scores, [B, H, T, S], to a kernel that never holds it whole."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class View:
    """How the queries of one forward see its keys; made once and shared by the layers."""

    num_keys: int
    """Keys and values are made for the first so many slots."""
    bias_B1TS: Tensor | None = None
    """Added to the scores: 0 where a query may look, -inf elsewhere, in the scores' dtype. SDPA
    would turn a bool mask into this again in every layer."""
    causal: bool = False
    """Slot i sees the slots up to i; without `bias_B1TS`."""
    dropout: float = 0.0
    products: bool = False
    """Compute scores, softmax and sums one by one instead of calling SDPA's kernel."""

    def __call__(self, query_BHTK: Tensor, key_BHSK: Tensor, value_BHSK: Tensor) -> Tensor:
        if not self.products:
            return F.scaled_dot_product_attention(
                query_BHTK,
                key_BHSK,
                value_BHSK,
                attn_mask=self.bias_B1TS,
                is_causal=self.causal,
                dropout_p=self.dropout,
            )
        score_BHTS = (query_BHTK * query_BHTK.shape[-1] ** -0.5) @ key_BHSK.mT
        if self.bias_B1TS is not None:
            score_BHTS += self.bias_B1TS
        return F.dropout(score_BHTS.softmax(dim=-1), self.dropout) @ value_BHSK


def render(slots: Tensor, sight: str, num_keys: int, dtype: torch.dtype, dropout: float) -> View:
    """How slots [9, B, T] see each other; `sight` is what collate found: full, causal or rule.

    This is the one place that chooses a kernel; FlexAttention for long inputs on CUDA belongs here.
    """
    width, device = slots.shape[2], slots.device.type
    # on CPU in 16 bits, forward and backward take half the time of SDPA's kernel (torch 2.13)
    products = device == "cpu" and dtype == torch.bfloat16 and width <= PRODUCTS_WIDTH
    how = f"attention on {device}: {'matrix products' if products else 'SDPA'}"
    if dropout and device == "cpu" and not products:
        why = f"attention dropout {dropout:g} forces a slow attention kernel on CPU"
        _say_once(logging.WARNING, f"{why}; --arch.attention-dropout 0 avoids it")
    if sight == "full" or (sight == "causal" and not products):
        _say_once(logging.INFO, f"{how}, {'no mask' if sight == 'full' else 'causal'}")
        return View(width, causal=sight == "causal", dropout=dropout, products=products)
    _say_once(logging.INFO, f"{how}, dense mask")
    # whole multiples of WIDTH, as the kernels like; the few keys more are never born
    num_keys = min(width, -(-num_keys // WIDTH) * WIDTH)
    table_B1TS = bias(masks.dense(slots, slots[:, :, :num_keys]), dtype)
    return View(num_keys, table_B1TS, dropout=dropout, products=products)


def bias(sight_BTS: Tensor, dtype: torch.dtype) -> Tensor:
    """A bool table (True: may look) as what is added to the scores, [B, 1, T, S]."""
    blind = torch.full((), float("-inf"), dtype=dtype, device=sight_BTS.device)
    return torch.where(sight_BTS, torch.zeros_like(blind), blind)[:, None]


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
        self.num_heads = config.num_heads
        self.qkv = nn.Linear(config.width, 3 * config.width, bias=config.bias)
        self.out = nn.Linear(config.width, config.width, bias=config.bias)

    def forward(self, x_BTD: Tensor, view: View, store: Store | None = None) -> Tensor:
        query, key, value = self.project(x_BTD, view.num_keys)
        if store is not None:
            key, value = store(key, value)
        mixed_BHTK = view(query, key, value)
        added_BTD: Tensor = self.out(mixed_BHTK.transpose(1, 2).flatten(2))
        return added_BTD

    def project(self, x_BTD: Tensor, num_keys: int) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of all slots, keys and values of the first `num_keys`, each [B, H, ., K]."""
        if num_keys >= x_BTD.shape[1]:
            query, key, value = self.qkv(x_BTD).chunk(3, dim=-1)
        else:
            width, weight, bias = x_BTD.shape[2], self.qkv.weight, self.qkv.bias
            first, rest = (None, None) if bias is None else (bias[:width], bias[width:])
            query = F.linear(x_BTD, weight[:width], first)
            key, value = F.linear(x_BTD[:, :num_keys], weight[width:], rest).chunk(2, dim=-1)
        return self._heads(query), self._heads(key), self._heads(value)

    def _heads(self, x_BTD: Tensor) -> Tensor:
        return x_BTD.view(*x_BTD.shape[:2], self.num_heads, -1).transpose(1, 2)


@cache
def _say_once(level: int, message: str) -> None:
    log.log(level, message)
