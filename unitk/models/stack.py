"""The one Transformer: embeddings, layers, final norm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

import torch
from torch import Tensor, nn

from unitk.kernels import flash
from unitk.kernels.lean import RMSNorm, norm
from unitk.kernels.products import is_decoding_step, recompute, scores_by_products
from unitk.masks import cross, limit_window
from unitk.models.attention import (
    CrossAttention,
    Rendering,
    Source,
    View,
    bias,
    compute_dtype,
    render_cross,
    render_mask,
)
from unitk.models.config import ModelConfig
from unitk.models.layers import Context, Embedding, Layer, Tower
from unitk.models.relative import RelativeBias, rotation
from unitk.models.state import Condition, KeyValues, Reading, put
from unitk.slots import FIELDS, POS

T = TypeVar("T")


class Stack(Tower):
    """One Transformer tower. Everything it knows about an input is in the slots [9, B, T].

    With `cross` it is a decoder, which reads a condition's states.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, cross: bool = False):
        super().__init__()
        self.config = config
        self.embed = Embedding(config, vocab_size)
        self.relative = RelativeBias(config, one_sided=cross) if config.relative_buckets else None
        layers = self.make_layers(cross)
        self.layers = nn.ModuleList(layers)
        self.own_bias = any(layer.attention.biased for layer in layers)
        self.norm = norm(config) if config.final_norm else nn.Identity()
        self.cache_dtype: torch.dtype | None = None  # of a cache, if not that of the weights
        self.recompute = False
        """In training, keep a layer's input only and run it again in backward: less memory."""
        self.compiled: Callable[..., Tensor] | None = None
        """`pass_through` as one graph, which takes its place in training."""
        self.half_states = False
        """Pass states from layer to layer in the dtype of linear maps, which autocast chooses."""
        self.attention: Rendering = "auto"
        """How the visibility rule is rendered; slots that see a prefix have the dense mask."""

    def make_layers(self, cross: bool) -> list[Layer]:
        """The layers; those of a group are one module, or have some modules in common."""
        config = self.config
        groups = config.layer_groups or config.num_layers
        size = config.num_layers // groups
        one_module = config.layer_share == "layer"
        count = groups if one_module else config.num_layers
        layers = [Layer(config.of_layer(number), cross) for number in range(count)]
        for layer, num_heads in zip(layers, config.layer_heads, strict=False):
            if isinstance(inside := layer.attention.norm, RMSNorm):
                inside.eps *= config.num_heads / num_heads  # of a mean over all, pruned ones 0
        if not config.first_norm:
            layers[0].attention_norm = nn.Identity()
        if one_module:
            return [layer for layer in layers for _ in range(size)]
        # the other layers of a group take some modules of its first one
        for number, layer in enumerate(layers):
            layer.alone = size == 1
            for suffix in ("", "_norm", "_after"):
                name = config.layer_share + suffix
                setattr(layer, name, getattr(layers[number - number % size], name))
        return layers

    def scale_logits(self) -> None:
        """Begin with smaller outputs in wider models (`base_width`): logits sum over the width."""
        if self.config.base_width and self.config.final_norm:
            scale = self.config.base_width / self.config.width
            nn.init.constant_(cast(Tensor, self.norm.weight), scale)

    def encode(self, reading: Reading) -> Tensor:
        """The states [B, T, D] of slots that see each other by the rule."""
        slots, condition, asked = reading.slots, reading.condition, reading.asked
        dropout = self.config.attention_dropout if self.training else 0.0
        dtype = compute_dtype(self.embed.tokens.weight)
        if self.cache_dtype and scores_by_products(slots, self.cache_dtype, biased=False):
            dtype = self.cache_dtype  # as in the steps that follow
        # keys of a prefix have neither clock nor doc: a table alone can say who sees them
        choice: Rendering = "dense" if condition.prefix else self.attention
        if not flash.fits(slots, dtype, self.config.key_width):
            reading = replace(reading, packed=None)
        render = partial(
            render_mask,
            reading,
            dtype,
            dropout,
            self.relative,
            choice,
            own_bias=self.own_bias,
        )
        earlier = condition.earlier_keys(slots, self.layers)

        def view_of(window: int, base: float) -> View:
            view = replace(render(window=window), rotation=rotation(self.config, slots, base))
            if earlier is None:
                return view
            return view.with_earlier_keys(earlier.sight, earlier.slots)

        views = self.make_each(view_of)
        stores = [None] * len(self.layers) if earlier is None else earlier.stores
        contexts = list(map(Context, views, stores))
        if condition.slots is not None:
            across = render_cross(slots, condition.slots, dtype, dropout, self.attention)
            contexts = self.look_across(contexts, across, self.project(condition))
        embedded_BTD = self.embed(slots, condition.sum_biases(slots))
        if self.half_states:
            embedded_BTD = embedded_BTD.to(compute_dtype(self.embed.tokens.weight))
        if views[-1].causal or views[-1].kernel is not None or condition.slots is not None:
            asked = None  # these have no rows to take
        through = self.compiled if self.training and self.compiled else self.pass_through
        states_BTD = through(embedded_BTD, contexts, condition, asked, reading.depths)
        if reading.depths is not None:
            reading.depths.append(states_BTD)
        if asked is not None:
            index_BaD = asked[..., None].expand_as(states_BTD)
            states_BTD = states_BTD.new_zeros(embedded_BTD.shape).scatter(1, index_BaD, states_BTD)
        return states_BTD

    def pass_through(
        self,
        embedded_BTD: Tensor,
        contexts: Sequence[Context],
        condition: Condition,
        asked: Tensor | None = None,
        depths: list[Tensor] | None = None,
    ) -> Tensor:
        """Apply the layers and the final norm; `asked` [B, a] limits the output to these slots.

        The states that enter each layer are added to `depths`. A family that lets more than the
        states pass finds it in its condition.
        """
        x_BTD = embedded_BTD
        for number, (layer, context) in enumerate(zip(self.layers, contexts, strict=True)):
            if depths is not None:
                depths.append(x_BTD)
            last = asked if number == len(self.layers) - 1 else None
            if last is not None:
                # the last layer: slots that nobody asks are keys and values only
                context = context.of(last)
            entering = x_BTD, context, last, embedded_BTD
            if self.recompute and self.training:
                x_BTD = recompute(layer, *entering)
            else:
                x_BTD = layer(*entering)
        return self.norm(x_BTD)

    def make_each(self, make: Callable[[int, float], T]) -> list[T]:
        """For each layer `make(window, rotary base)`, called once for those that have the same."""
        kinds = self.config.layer_kinds
        by_kind = {kind: make(*kind) for kind in dict.fromkeys(kinds)}
        return [by_kind[kind] for kind in kinds]

    def project(self, condition: Condition) -> list[tuple[Tensor, Tensor]]:
        """Per layer the keys and values [B, H, S, K] of an encoder's states."""
        states, slots = condition.cross, condition.slots
        assert states is not None and slots is not None
        # turned by the encoder's positions: a decoder that copies or reorders learns it sooner
        turned = self.config.cross_rotary
        turns = self.make_each(
            lambda _, base: rotation(self.config, slots, base) if turned else None
        )
        pairs = []
        for layer, turn in zip(self.layers, turns, strict=True):
            assert isinstance(layer.cross_attention, CrossAttention)
            pairs.append(layer.cross_attention.project(states, turn))
        return pairs

    def look_across(
        self, contexts: list[Context], across: View, pairs: list[tuple[Tensor, Tensor]]
    ) -> list[Context]:
        """The contexts with an encoder's keys and values, whose queries turn as the layer's own."""
        joined = []
        for context, pair in zip(contexts, pairs, strict=True):
            turns = context.view.rotation if self.config.cross_rotary else None
            source = Source(replace(across, rotation=turns), *pair)
            joined.append(replace(context, source=source))
        return joined

    def extend(
        self,
        columns: Tensor,
        sight_BqS: Tensor,
        cache: KeyValues,
        at: int | Tensor,
        condition: Condition | None = None,
        asked: Tensor | None = None,
    ) -> Tensor:
        """The states [B, q, D] of further slots, written to the cache from column `at` on.

        Of the `asked` [B, a] slots alone if they are given; of the others the last layer makes no
        more than keys and values.
        """
        until = sight_BqS.shape[2]
        stop = columns.shape[2] + (at if isinstance(at, int) else 0)
        assert stop <= until <= cache.columns, f"slots {at}:{stop} of {until} in {cache.columns}"
        # slots of all columns, whose places a bias on the scores of later slots reads; which ones
        # are a hypothesis' own is in `sight_BqS` alone
        put(cache.slots, 2, at, columns)
        keys = cache.slots[:, :, :until]
        stored = cache.key[0].dtype
        single = is_decoding_step(columns) or scores_by_products(columns, stored, biased=False)
        products = stored if single else None
        dtype = products or compute_dtype(self.embed.tokens.weight)
        score = None
        if self.relative is not None:
            score = self.relative(columns[POS], keys[POS], dtype)

        def view_of(window: int, base: float) -> View:
            table = bias(limit_window(sight_BqS, columns, keys, window), dtype, score)
            turns = rotation(self.config, columns, base)
            view = View(columns, keys, table, products=products, rotation=turns, window=window)
            if cache.prefix:  # the latent's keys are before the columns; everybody sees them
                seen_BqP = sight_BqS.new_ones(*sight_BqS.shape[:2], cache.prefix)
                view = view.with_earlier_keys(seen_BqP)
            return view

        views = self.make_each(view_of)
        condition = Condition() if condition is None else condition
        # each layer's new keys and values go to its table, which is what it then looks at
        stores = [partial(cache.write, number, at, until) for number in range(len(self.layers))]
        contexts = list(map(Context, views, stores))
        if condition.slots is not None:
            # keys and values of the encoder were made once, when the cache was
            table = bias(cross(columns, condition.slots), dtype)
            across = View(columns, condition.slots, table, products=products)
            contexts = self.look_across(contexts, across, cache.cross)
        embedded_BqD = self.embed(columns, condition.sum_biases(columns))
        return self.pass_through(embedded_BqD, contexts, condition, asked)

    def new_cache(
        self, batch_size: int, columns: int, condition: Condition | None = None
    ) -> KeyValues:
        """An empty cache for `batch_size` rows of `columns` slots.

        The keys and values of a condition's states are computed here, once for all steps. So are
        those of its prefix, which precede the columns. A row has one doc then.
        """
        condition = Condition() if condition is None else condition
        prefix = condition.row_prefix() if condition.prefix else []
        length = prefix[0][0].shape[2] if prefix else 0
        device = self.embed.tokens.weight.device
        dtype = self.cache_dtype or compute_dtype(self.embed.tokens.weight)
        size = length + columns, self.config.key_width
        heads = self.config.layer_heads or [self.config.kv_heads] * len(self.layers)
        # zeros: a column that nobody looks at still meets a weight of 0, and 0 * nan is nan
        value = [torch.zeros(batch_size, n, *size, dtype=dtype, device=device) for n in heads]
        key = [torch.zeros_like(table) for table in value]
        slots = torch.zeros(len(FIELDS), batch_size, columns, dtype=torch.int64, device=device)
        cache = KeyValues(key, value, slots, prefix=length)
        # the same for all steps: it has no column that could be overwritten
        for layer, pair in enumerate(prefix):
            cache.key[layer][:, :, :length], cache.value[layer][:, :, :length] = pair
        if condition.slots is not None:
            for pair in self.project(condition):
                keys, values = (table.to(dtype).contiguous() for table in pair)
                cache.cross.append((keys, values))
        return cache
