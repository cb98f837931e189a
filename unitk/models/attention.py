"""Attention: the visibility rule, rendered once per forward and shared by the layers."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk import masks
from unitk.errors import require
from unitk.kernels.flash import Flash
from unitk.kernels.flex import Flex, render_flex, render_flex_cross
from unitk.kernels.lean import RMSNorm, map_normed, norm, unit_rms
from unitk.kernels.products import multiply, scores_by_products
from unitk.models.config import ModelConfig
from unitk.models.relative import RelativeBias, rotate
from unitk.models.state import Reading, Store
from unitk.slots import POS, WIDTH

FLEX_WIDTH = 1024
"""From this many slots, FlexAttention is faster on CUDA than SDPA with a dense mask: of published
figures for an H200 at 125 M parameters, 0.72 times at 512, 1.31 at 2,048 and 2.34 at 8,192 slots;
`recipes/benchmarks/attention.py` measures it."""
Rendering = Literal["auto", "dense", "flex"]

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class View:
    """How the queries of a forward pass see its keys; made once and shared by the layers."""

    queries: Tensor
    """Slots [9, B, T] that look."""
    keys: Tensor
    """Slots [9, B, S] that are looked at; keys of a prefix before them have none."""
    bias_BHTS: Tensor | None = None
    """Added to the scores: -inf where a query may not look, else 0 or the bias of the distance, in
    the scores' dtype; H is 1 where all heads share it. SDPA would turn a bool mask into this again
    in every layer."""
    causal: bool = False
    """Slot i sees the slots up to i; without `bias_BHTS`."""
    dropout: float = 0.0
    products: torch.dtype | None = None
    """Compute scores, softmax and sums one by one, in this dtype, instead of by SDPA's kernel."""
    kernel: Flex | Flash | None = None
    """FlexAttention or FlashAttention, which compute all of the above within one kernel."""
    rotation: Tensor | None = None
    """The rotary factors of the queries, and in self-attention of the keys (`rotation`)."""
    remembered: int = 0
    """How many of the keys are of a memory, and come first."""
    window: int = 0
    """Further keys are not seen; a query that sees no other finds zeros. 0: there is no limit."""

    @property
    def num_keys(self) -> int:
        """The number of slots, from the first on, that have keys and values."""
        return self.keys.shape[2] - self.remembered

    def with_earlier_keys(self, sight_BTP: Tensor, slots: Tensor | None = None) -> View:
        """A view with further keys before the others, which queries see where `sight` is True.

        The keys of a memory have `slots` [9, B, P].
        """
        assert self.bias_BHTS is not None
        if slots is not None:
            sight_BTP = masks.limit_window(sight_BTP, self.queries, slots, self.window)
        # in front, where `prepend` and the cache put a prefix' keys and values
        first_B1TP = bias(sight_BTP, self.bias_BHTS.dtype)
        first_BHTP = first_B1TP.expand(-1, self.bias_BHTS.shape[1], -1, -1)
        table = torch.cat([first_BHTP, self.bias_BHTS], 3)
        if slots is None:
            return replace(self, bias_BHTS=table)
        keys = torch.cat([slots, self.keys], 2)
        return replace(self, bias_BHTS=table, keys=keys, remembered=slots.shape[2])

    def of(self, asked_Ba: Tensor) -> View:
        """A view of the asked slots among the queries, without a causal mask or such a kernel."""
        assert not self.causal and self.kernel is None
        queries = self.queries.gather(2, asked_Ba.expand(len(self.queries), -1, -1))
        table = None if self.bias_BHTS is None else take_asked(self.bias_BHTS, asked_Ba)
        return replace(self, queries=queries, bias_BHTS=table)

    def __call__(
        self,
        query_BHTK: Tensor,
        key_BHSK: Tensor,
        value_BHSK: Tensor,
        scale: float,
        more_BHTS: Tensor | None = None,
    ) -> Tensor:
        """Attend from the queries to the keys: [B, H, T, K]; scores are multiplied by `scale`.

        Keys and values may have fewer heads, each for as many consecutive ones of queries.
        `more_BHTS` is added to the scores of the last keys; keys of a prefix are before these.
        """
        if self.kernel is not None:
            assert more_BHTS is None
            return self.kernel(query_BHTK, key_BHSK, value_BHSK, scale)
        bias_BHTS = self.bias_BHTS
        if more_BHTS is not None:
            assert bias_BHTS is not None
            ahead = key_BHSK.shape[2] - more_BHTS.shape[3]  # keys of a prefix, without a place
            bias_BHTS = bias_BHTS + F.pad(more_BHTS.to(bias_BHTS.dtype), (ahead, 0))
        attend = self._attend_by_sdpa if self.products is None else self._attend_by_products
        return attend(query_BHTK, key_BHSK, value_BHSK, scale, bias_BHTS)

    def _attend_by_sdpa(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float, bias_BHTS: Tensor | None
    ) -> Tensor:
        # SDPA wants one dtype: a cache may have fewer bits than queries; and not all of its
        # kernels with a mask know groups of heads
        key, value = key.to(query.dtype), value.to(query.dtype)
        if (group := query.shape[1] // key.shape[1]) > 1:
            key, value = key.repeat_interleave(group, 1), value.repeat_interleave(group, 1)
        return F.scaled_dot_product_attention(
            query, key, value, bias_BHTS, self.dropout, self.causal, scale=scale
        )

    def _attend_by_products(
        self, query: Tensor, key: Tensor, value: Tensor, scale: float, bias_BHTS: Tensor | None
    ) -> Tensor:
        # scaled before the product: there are far fewer queries than scores
        score_BHTS = multiply(query.to(self.products) * scale, key.to(self.products).mT)
        if bias_BHTS is not None:
            # in place, a table that fills the cache takes up to four times as long (Xeon, bf16)
            score_BHTS = score_BHTS + bias_BHTS
        # without a window, every slot sees a key
        softmax = torch._safe_softmax if self.window else torch.softmax
        weight_BHTS = softmax(score_BHTS, -1)
        if self.dropout:
            weight_BHTS = F.dropout(weight_BHTS, self.dropout)
        return multiply(weight_BHTS, value.to(self.products)).to(query.dtype)


@dataclass(frozen=True)
class Source:
    """The inputs of a layer's cross-attention: an encoder's keys and values [B, H, S, K]."""

    view: View
    key: Tensor
    value: Tensor

    def of(self, asked_Ba: Tensor) -> Source:
        """The same source for the asked slots only."""
        # these queries are made of the asked slots; those of self-attention before they are taken
        turns = self.view.rotation
        turns = None if turns is None else take_asked(turns, asked_Ba)
        return replace(self, view=replace(self.view.of(asked_Ba), rotation=turns))


def render_mask(
    reading: Reading,
    dtype: torch.dtype,
    dropout: float,
    relative: RelativeBias | None = None,
    choice: Rendering = "auto",
    *,
    own_bias: bool = False,
    window: int = 0,
) -> View:
    """How the slots of a tower see each other.

    Kernels are chosen here only, unless a `choice` is given. Where the documents of the slots are
    given (`Reading.packed`), FlashAttention must know the dtype. With `own_bias`, the layers add a
    bias of their own to the scores (`Attention.score_bias`). With a `window`, keys further away are
    hidden.
    """
    slots, sight = reading.slots, reading.sight
    # whole multiples of WIDTH, as the kernels like; the few keys more are never born
    keys = slots[:, :, : -(-reading.num_keys // WIDTH) * WIDTH]
    biased = own_bias or relative is not None
    products, how = _kernel(slots, dtype, dropout, biased=biased)
    # plain products need the table even of a causal mask
    exact = not (biased or window) and (sight == "full" or (sight == "causal" and not products))
    if exact and choice == "auto":
        _say_once(logging.INFO, f"{how}, {'no mask' if sight == 'full' else 'causal'}")
        return View(slots, slots, causal=sight == "causal", dropout=dropout, products=products)
    if reading.packed is not None and choice == "auto" and not (biased or window):
        _say_once(logging.INFO, f"attention on {slots.device.type}: FlashAttention, by documents")
        return View(slots, slots, kernel=Flash(reading.packed, dropout))
    if own_bias:
        # FlexAttention would need that bias of every pair in memory too, which it is there to spare
        dense = "excludes layers that bias scores by the query: give --attention dense"
        require(choice != "flex", f"--attention flex {dense}")
        how += ", scores biased by the query: a table for each layer, head and row takes memory"
    elif _flexible(slots, dropout, choice):
        return View(slots, keys, kernel=render_flex(slots, keys, dtype, relative, window))
    score_BHTS = None
    if relative is not None:
        how += ", relative positions: a table of its own for each head and row takes memory"
        score_BHTS = relative(slots[POS], keys[POS], dtype)
    _say_once(logging.INFO, f"{how}, dense mask")
    table_BHTS = bias(masks.dense(slots, keys, window), dtype, score_BHTS)
    return View(slots, keys, table_BHTS, dropout=dropout, products=products, window=window)


def render_cross(
    slots: Tensor, source: Tensor, dtype: torch.dtype, dropout: float, choice: Rendering = "auto"
) -> View:
    """How a decoder's slots [9, B, T] see an encoder's [9, B, S]."""
    if _flexible(source, dropout, choice):
        return View(slots, source, kernel=render_flex_cross(slots, source))
    products, how = _kernel(slots, dtype, dropout, biased=False)
    _say_once(logging.INFO, f"cross-{how}, dense mask")
    table_B1TS = bias(masks.cross(slots, source), dtype)
    return View(slots, source, table_B1TS, dropout=dropout, products=products)


def _flexible(slots: Tensor, dropout: float, choice: Rendering) -> bool:
    """Whether FlexAttention computes the attention of these slots."""
    if choice == "flex":
        require(not dropout, "--attention flex has no dropout: give --arch.attention-dropout 0")
    long = slots.is_cuda and slots.shape[2] >= FLEX_WIDTH and not dropout
    flexible = choice == "flex" or (choice == "auto" and long)
    if flexible:
        _say_once(logging.INFO, f"attention on {slots.device.type}: FlexAttention, block mask")
    return flexible


def _kernel(
    slots: Tensor, dtype: torch.dtype, dropout: float, *, biased: bool
) -> tuple[torch.dtype | None, str]:
    """The dtype if single products compute attention, and a description for the log."""
    device = slots.device.type
    products = scores_by_products(slots, dtype, biased)
    if dropout and device == "cpu" and not products:
        why = f"attention dropout {dropout:g} forces a slow attention kernel on CPU"
        _say_once(logging.WARNING, f"{why}; --arch.attention-dropout 0 avoids it")
    how = f"attention on {device}: {'matrix products' if products else 'SDPA'}"
    return dtype if products else None, how


def bias(sight_BTS: Tensor, dtype: torch.dtype, score_BHTS: Tensor | None = None) -> Tensor:
    """The mask (True: may look) as a bias on the scores, [B, 1 or H, T, S].

    Where a query may look, it is 0 or the given `score_BHTS`; elsewhere it is minus infinity.
    """
    blind = torch.full((), float("-inf"), dtype=dtype, device=sight_BTS.device)
    visible = torch.zeros_like(blind) if score_BHTS is None else score_BHTS
    return torch.where(sight_BTS[:, None], visible, blind)


def compute_dtype(parameter: Tensor) -> torch.dtype:
    """The dtype of linear maps: that of autocast if it is on, else that of the parameters."""
    device = parameter.device.type
    if torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return parameter.dtype


class Fused(nn.Linear):
    """Several linear maps of the same inputs as one, with their matrices stacked vertically."""

    def __init__(self, inputs: int, outputs: int, count: int, bias: bool):
        super().__init__(inputs, count * outputs, bias)
        self.count = count


def fused_parameters(model: nn.Module) -> dict[str, int]:
    """The parameters that stack several matrices, and how many."""
    counts = {part.weight: part.count for part in model.modules() if isinstance(part, Fused)}
    return {name: counts[p] for name, p in model.named_parameters() if p in counts}


class HeadParts(nn.Module):
    """The maps of attention, and its parts within each head: norms and positions before, gates
    after.

    Queries, keys and values are `fused` in one map, or queries have one of their own.
    """

    def __init__(self, config: ModelConfig, fused: bool = False):
        super().__init__()
        self.num_heads = config.num_heads
        self.key_width = config.key_width
        self.eps = config.norm_eps
        self.scale = config.key_width**-0.5 if config.score_scale else 1.0
        self.joint = config.qk_norm_joint
        self.query_norm: RMSNorm | None = None
        self.key_norm: RMSNorm | None = None
        self.query_scale: nn.Parameter | None = None
        if config.qk_norm_weights:
            widths = config.heads_width, config.kv_width
            query, key = widths if self.joint else (self.key_width, self.key_width)
            self.query_norm = RMSNorm(query, self.eps)
            self.key_norm = RMSNorm(key, self.eps)
        elif config.qk_norm:
            # without it, no score of normed vectors would be above the root of a head's width
            self.query_scale = nn.Parameter(torch.ones(self.num_heads))
        self.gate = nn.Linear(config.width, self.num_heads) if config.head_gate else None
        self.norm = norm(config, config.heads_width, inside=True)
        self.head_factors: Tensor | None = None
        """Factors of what each head finds, [H] or [B, H] (Michel et al. 2019, arXiv 1905.10650,
        section 2.3); while `unitk analyse heads` measures."""
        if fused:
            self.qkv = Fused(config.width, config.heads_width, 3, config.biased_heads)
        else:
            self.query = nn.Linear(config.width, config.heads_width, config.biased_heads)
            self.kv = Fused(config.width, config.kv_width, 2, config.biased_heads)
        self.out = nn.Linear(config.heads_width, config.width, config.biased_out)

    def queries(self, x_BTM: Tensor, rotation_B1TP: Tensor | None) -> Tensor:
        """Queries [B, H, T, K] of [B, T, H * K]."""
        query_BHTK = self._turn(x_BTM, rotation_B1TP, self.query_norm)
        if self.query_scale is None:
            return query_BHTK
        return query_BHTK * self.query_scale[:, None, None].type_as(x_BTM)

    def keys(self, x_BSM: Tensor, rotation_B1SP: Tensor | None) -> Tensor:
        """Keys [B, G, S, K] of [B, S, G * K], rotated and normalised if so configured."""
        return self._turn(x_BSM, rotation_B1SP, self.key_norm)

    def _turn(self, x_BSM: Tensor, rotation_B1SP: Tensor | None, weighed: RMSNorm | None) -> Tensor:
        """Heads [B, H, S, K] of [B, S, H * K], normed and rotated."""
        # weighed before the rotation, which mixes the channels of a pair
        head_BHSK = self.split(weighed(x_BSM) if weighed is not None and self.joint else x_BSM)
        if weighed is not None and not self.joint:
            head_BHSK = weighed(head_BHSK)
        if rotation_B1SP is not None:
            head_BHSK = rotate(head_BHSK, rotation_B1SP)
        if self.query_scale is not None:
            head_BHSK = unit_rms(head_BHSK, self.eps)
        return head_BHSK.type_as(x_BSM)

    def split(self, x_BTM: Tensor) -> Tensor:
        """The heads [B, H, T, K] of [B, T, H * K]."""
        return x_BTM.view(*x_BTM.shape[:2], -1, self.key_width).transpose(1, 2)

    def join(self, mixed_BHTK: Tensor, x_BTD: Tensor) -> Tensor:
        """The output for slots with the states [B, T, D], from the outputs of their heads."""
        mixed_BTHK = mixed_BHTK.transpose(1, 2)
        if self.gate is not None:
            mixed_BTHK = mixed_BTHK * (2 * self.gate(x_BTD).sigmoid())[..., None]
        if self.head_factors is not None:
            mixed_BTHK = mixed_BTHK * self.head_factors[..., None, :, None]
        return map_normed(self.norm, self.out, mixed_BTHK.flatten(2))


class Attention(HeadParts):
    """Multi-head self-attention with one projection for queries, keys and values, in thirds.

    Queries whose heads share keys and values have a projection of their own.
    """

    def __init__(self, config: ModelConfig):
        super().__init__(config, fused=not config.grouped)
        self.grouped = config.grouped

    def forward(
        self, x_BTD: Tensor, view: View, store: Store | None = None, asked: Tensor | None = None
    ) -> Tensor:
        query, key, value = self.project(x_BTD, view.num_keys, view.rotation)
        if asked is not None:
            query, x_BTD = take_asked(query, asked), take_asked(x_BTD, asked)
        if store is not None:
            key, value = store(key, value)
        more = None
        if self.biased:  # a cache may have fewer bits
            more = self.score_bias(query, key[:, :, -view.keys.shape[2] :].type_as(query), view)
        return self.join(view(query, key, value, self.scale, more), x_BTD)

    def score_bias(self, query_BHTK: Tensor, key_BHSK: Tensor, view: View) -> Tensor:
        """A term that is added to the scaled scores, [B, H, T, S]; a plain layer has none.

        A subclass overrides it if its scores combine the content of a query (or key) with the
        positions of both (XLNet's (q + v) r_{i-j}, DeBERTa). `view.queries` [9, B, T] and
        `view.keys` [9, B, S] are their slots; a step of decoding has those of the step and of all
        columns of the cache. Keys of a prefix have no slots, and scores without this term.
        """
        raise NotImplementedError

    @property
    def biased(self) -> bool:
        """Whether this layer adds a `score_bias`."""
        return type(self).score_bias is not Attention.score_bias

    def project(
        self, x_BTD: Tensor, num_keys: int, rotation_B1TP: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries of all slots, keys and values of the first `num_keys`, each [B, H, ., K]."""
        # slots that only ask (XLNet's queries, pads) are no keys: their share of the product is
        # left out, where the matrix is not packed or in 8 bits
        if self.grouped:
            query = self.query(x_BTD)
            key, value = self.kv(x_BTD[:, :num_keys]).chunk(2, dim=-1)
        elif num_keys >= x_BTD.shape[1] or not isinstance(self.qkv, nn.Linear):
            query, key, value = self.qkv(x_BTD).chunk(3, dim=-1)
            key, value = key[:, :num_keys], value[:, :num_keys]
        else:
            weight, bias = self.qkv.weight, self.qkv.bias
            width = len(weight) // 3
            first, rest = (None, None) if bias is None else (bias[:width], bias[width:])
            query = F.linear(x_BTD, weight[:width], first)
            key, value = F.linear(x_BTD[:, :num_keys], weight[width:], rest).chunk(2, dim=-1)
        turns = None if rotation_B1TP is None else rotation_B1TP[:, :, :num_keys]
        return self.queries(query, rotation_B1TP), self.keys(key, turns), self.split(value)


class CrossAttention(HeadParts):
    """Multi-head attention of a decoder's slots to an encoder's states."""

    def forward(self, x_BTD: Tensor, source: Source) -> Tensor:
        query_BHTK = self.queries(self.query(x_BTD), source.view.rotation)
        return self.join(source.view(query_BHTK, source.key, source.value, self.scale), x_BTD)

    def weights(self, x_BTD: Tensor, source: Source) -> Tensor:
        """How much each slot attends to each encoder state, [B, T, S]: the mean over heads."""
        query_BHTK = self.queries(self.query(x_BTD), source.view.rotation)
        score_BHTS = multiply(query_BHTK * self.scale, source.key.mT)
        if source.view.bias_BHTS is not None:
            score_BHTS = score_BHTS + source.view.bias_BHTS
        return score_BHTS.softmax(dim=-1).mean(1)

    def project(
        self, states_BSD: Tensor, rotation_B1SP: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The keys and values [B, H, S, K] of the encoder's states."""
        key, value = self.kv(states_BSD).chunk(2, dim=-1)
        return self.keys(key, rotation_B1SP), self.split(value)


def take_asked(table: Tensor, asked_Ba: Tensor) -> Tensor:
    """The rows of the asked slots, along T of [B, T, D] or [B, H, T, .]."""
    # gather wants an index for every value; expand makes one without a copy
    index = asked_Ba[..., None] if table.dim() == 3 else asked_Ba[:, None, :, None]
    return table.gather(-2, index.expand(*table.shape[:-2], -1, table.shape[-1]))


@cache
def _say_once(level: int, message: str) -> None:
    log.log(level, message)
