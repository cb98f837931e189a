"""The one Transformer: embeddings, layers, final norm; and the models made of such towers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor, nn

from unitk.errors import UsageError
from unitk.masks import cross
from unitk.models.attention import (
    CrossAttention,
    Rendering,
    Source,
    Store,
    View,
    bias,
    compute_dtype,
    render,
    render_cross,
)
from unitk.models.base import ArchConfig, families
from unitk.models.cache import Cache, put
from unitk.models.condition import Carry, Condition
from unitk.models.config import EncoderDecoderConfig, ModelConfig
from unitk.models.heads.base import LM, Answers, Asked, Heads, asked_slots, layered
from unitk.models.heads.words import Words
from unitk.models.layers import Embedding, Layer, Tower, init_weights
from unitk.models.lean import RMSNorm, norm
from unitk.models.products import few, recomputed, scores_by_products
from unitk.models.relative import RelativeBias, rotation
from unitk.slots import FIELDS, POS, Batch

STORED = {"enc": "encoder"}
"""Under which name a tower that is not decoded is stored, where that is not its own."""


class Stack(Tower):
    """One Transformer tower. Everything it knows about an input is in the slots [9, B, T].

    With `cross` it is a decoder, which reads a condition's states.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, cross: bool = False):
        super().__init__()
        self.config = config
        self.embed = Embedding(config, vocab_size)
        self.relative = RelativeBias(config, one_sided=cross) if config.relative_buckets else None
        groups, whole = config.layer_groups or config.num_layers, config.layer_share == "layer"
        count = groups if whole else config.num_layers
        own = [Layer(config.of_layer(number), cross) for number in range(count)]
        for layer, left in zip(own, config.layer_heads, strict=False):
            if isinstance(inside := layer.attention.norm, RMSNorm):
                inside.eps *= config.num_heads / left  # of a mean over all, pruned ones being 0
        self.own_bias = any(layer.attention.biased for layer in own)
        # layers of a group are one module, several times over, or have some modules in common
        times = config.num_layers // groups
        self.layers = nn.ModuleList(layer for layer in own for _ in range(times if whole else 1))
        for number, layer in enumerate(() if whole else own):
            layer.alone = times == 1
            for part in (config.layer_share, f"{config.layer_share}_norm"):
                setattr(layer, part, getattr(own[number - number % times], part))
        self.norm = norm(config) if config.final_norm else nn.Identity()
        self.cache_dtype: torch.dtype | None = None  # of a cache, if not that of the weights
        self.recompute = False
        """In training, keep a layer's input only and run it again in backward: less memory."""
        self.attention: Rendering = "auto"
        """How the visibility rule is rendered; slots that see a prefix have the dense mask."""

    def encode(
        self,
        slots: Tensor,
        sight: str,
        num_keys: int,
        condition: Condition | None = None,
        layers: list[Tensor] | None = None,
        asked: Tensor | None = None,
    ) -> Tensor:
        """The states [B, T, D] of slots that see each other by the rule.

        Those that are not `asked` [B, a] may be 0, where it is given.
        To `layers`, if given, are added the states of all depths: those that enter the first layer,
        and what each layer makes of them; the last ones are normed as those that are returned.
        """
        condition = Condition() if condition is None else condition
        dropout = self.config.attention_dropout if self.training else 0.0
        dtype = compute_dtype(self.embed.tokens.weight)
        if self.cache_dtype and scores_by_products(slots, self.cache_dtype, biased=False):
            dtype = self.cache_dtype  # as in the steps that follow
        # keys of a prefix have neither clock nor doc: a table alone can say who sees them
        choice: Rendering = "dense" if condition.prefix else self.attention
        given = slots, sight, num_keys, dtype, dropout, self.relative, choice
        turns = rotation(self.config, slots)
        view = replace(render(*given, own_bias=self.own_bias), rotation=turns)
        sources: Sequence[Source | None] = [None] * len(self.layers)
        stores: Sequence[Store | None] = [None] * len(self.layers)
        if condition.slots is not None:
            across = render_cross(slots, condition.slots, dtype, dropout, self.attention)
            across = replace(across, rotation=turns)
            sources = [Source(across, *pair) for pair in self.project(condition)]
        if condition.prefix or condition.memory:
            view, stores = condition.in_front(view, slots, self.layers)
        embedded_BTD = self.embed(slots, condition.added(slots))
        if view.causal or view.flex is not None or condition.slots is not None:
            asked = None  # these have no rows to take
        states_BTD = self.pass_through(embedded_BTD, view, stores, sources, asked, layers)
        if layers is not None:
            layers.append(states_BTD)
        if asked is not None:
            index_BaD = asked[..., None].expand_as(states_BTD)
            states_BTD = torch.zeros_like(embedded_BTD).scatter(1, index_BaD, states_BTD)
        return states_BTD

    def pass_through(
        self,
        embedded_BTD: Tensor,
        view: View,
        stores: Sequence[Store | None],
        sources: Sequence[Source | None],
        asked: Tensor | None = None,
        layers: list[Tensor] | None = None,
    ) -> Tensor:
        """Apply the layers and the final norm; `asked` [B, a] limits the output to these slots."""
        x_BTD = embedded_BTD
        each = zip(self.layers, stores, sources, strict=True)
        for number, (layer, store, source) in enumerate(each):
            if layers is not None:
                layers.append(x_BTD)
            last = asked if number == len(self.layers) - 1 else None
            if last is not None:
                # the last layer: slots that nobody asks are keys and values only
                view, source = view.of(last), source and source.of(last)
            entering = x_BTD, view, store, source, last, embedded_BTD
            if self.recompute and self.training:
                x_BTD = recomputed(layer, *entering)
            else:
                x_BTD = layer(*entering)
        return self.norm(x_BTD)

    def project(self, condition: Condition) -> list[tuple[Tensor, Tensor]]:
        """Per layer the keys and values [B, H, S, K] of an encoder's states."""
        assert condition.cross is not None and condition.slots is not None
        # turned by the encoder's positions: a decoder that copies or reorders learns it sooner
        given = condition.cross, rotation(self.config, condition.slots)
        parts = [layer.cross_attention for layer in self.layers]
        return [p.project(*given) for p in parts if isinstance(p, CrossAttention)]

    def extend(
        self,
        columns: Tensor,
        sight_BqS: Tensor,
        cache: Cache,
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
        own = cache.key[0].dtype
        products = own if few(columns) or scores_by_products(columns, own, biased=False) else None
        dtype = products or compute_dtype(self.embed.tokens.weight)
        distance = self.relative
        score = None if distance is None else distance(columns[POS], keys[POS], dtype)
        turns, table = rotation(self.config, columns), bias(sight_BqS, dtype, score)
        view = View(columns, keys, table, products=products, rotation=turns)
        if cache.prefix:  # the latent's keys stand before the columns; everybody sees them
            view = view.behind(sight_BqS.new_ones(*sight_BqS.shape[:2], cache.prefix))
        condition = Condition() if condition is None else condition
        sources: Sequence[Source | None] = [None] * len(self.layers)
        if condition.slots is not None:
            # keys and values of the encoder were made once, when the cache was
            seen = bias(cross(columns, condition.slots), dtype)
            across = View(columns, condition.slots, seen, products=products, rotation=turns)
            sources = [Source(across, *pair) for pair in cache.cross]
        # each layer's new keys and values go to its table, which is what it then looks at
        stores = [partial(cache.write, number, at, until) for number in range(len(self.layers))]
        embedded_BqD = self.embed(columns, condition.added(columns))
        return self.pass_through(embedded_BqD, view, stores, sources, asked)

    def new_cache(self, batch_size: int, columns: int, condition: Condition | None = None) -> Cache:
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
        heads = self.config.layer_heads or [self.config.num_heads] * len(self.layers)
        # zeros: a column that nobody looks at still meets a weight of 0, and 0 * nan is nan
        value = [torch.zeros(batch_size, n, *size, dtype=dtype, device=device) for n in heads]
        key = [torch.zeros_like(table) for table in value]
        slots = torch.zeros(len(FIELDS), batch_size, columns, dtype=torch.int64, device=device)
        cache = Cache(key, value, slots, prefix=length)
        # the same for all steps: it has no column that could be overwritten
        for layer, pair in enumerate(prefix):
            cache.key[layer][:, :, :length], cache.value[layer][:, :, :length] = pair
        if condition.slots is not None:
            for first, second in self.project(condition):
                cache.cross.append((first.to(dtype).contiguous(), second.to(dtype).contiguous()))
        return cache


class Model(Answers):
    """Named towers, the last of which is decoded, and output layers.

    Tensors are stored, and named by `named_parameters`, without the name of the decoded tower and
    with "encoder" for that of the encoder (`stored`).
    """

    additions: tuple[str, ...] = ()
    between: Mapping[str, str] = {}
    beside_forward: Sequence[str] = ("condition",)

    def __init__(self, config: ArchConfig, vocab_size: int, decoder: Tower | None = None):
        super().__init__()
        if decoder is None:
            assert isinstance(config, ModelConfig)
            decoder = Stack(config, vocab_size)
        # other families have their own settings, and `unitk convert` has no format for them
        self.config = cast(ModelConfig, config)
        self.towers = nn.ModuleDict({config.towers[-1]: decoder})
        self.heads = Heads(decoder.config, vocab_size, config.head_config)
        init_weights(decoder, decoder.config)
        init_weights(self.heads, decoder.config)

    @property
    def decoder(self) -> Tower:
        """The tower that is decoded."""
        return self.tower(self.config.towers[-1])

    @property
    def reader(self) -> Tower:
        """The tower that reads a text: the encoder, if there is one."""
        return self.tower(self.config.towers[0])

    def tower(self, name: str) -> Tower:
        """A tower by its name."""
        found = self.towers[name]
        assert isinstance(found, Tower)
        return found

    def stored(self, name: str) -> str:
        """The stored name of a tensor or part of this model."""
        name = name.removeprefix(f"towers.{self.config.towers[-1]}.")
        return re.sub(r"^towers\.(\w+)", lambda tower: STORED.get(tower[1], tower[1]), name)

    def inner(self, name: str) -> str:
        """The name in this model of a stored name."""
        root, _, rest = name.partition(".")
        for tower in self.config.towers[:-1]:
            if root == STORED.get(tower, tower):
                return f"towers.{tower}.{rest}".rstrip(".")
        # a part beside the towers (heads, a latent's bridge), else one of the decoded tower
        own = root in self._modules or root in self._parameters
        return name if own else f"towers.{self.config.towers[-1]}.{name}".rstrip(".")

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters by their stored names; a shared one has that of the decoded tower."""
        found = list(super().named_parameters(prefix, recurse, remove_duplicate=False))
        # the decoded tower and the heads come first
        kinds = (f"towers.{self.config.towers[-1]}.", "heads.", "towers.", "")
        found.sort(key=lambda one: [one[0].startswith(kind) for kind in kinds].index(True))
        seen = set[nn.Parameter]()
        for name, parameter in found:
            if not (remove_duplicate and parameter in seen):
                seen.add(parameter)
                yield self.stored(name), parameter

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, Tensor]]:
        """Buffers by their stored names."""
        for name, buffer in super().named_buffers(prefix, recurse, remove_duplicate):
            yield self.stored(name), buffer

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Tensors by their stored names."""
        found: dict[str, Any] = super().state_dict(*args, **kwargs)
        return {self.stored(name): tensor for name, tensor in found.items()}

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Take tensors by their stored names."""
        inner = {self.inner(name): tensor for name, tensor in state_dict.items()}
        found = super().load_state_dict(inner, strict, assign)
        return type(found)(*([self.stored(name) for name in names] for names in found))

    def get_submodule(self, target: str) -> nn.Module:
        """A part by its stored name."""
        return super().get_submodule(self.inner(target))

    def resized(self, name: str, table: Tensor) -> Tensor:
        """A position table of a checkpoint, resized to the rows of this model."""
        embed = self.get_submodule(name.rsplit(".", 2)[0])
        assert isinstance(embed, Embedding)
        return embed.resized(name, table)

    @property
    def words(self) -> Words:
        """The output layer over the vocabulary."""
        head = self.heads[LM]
        assert isinstance(head, Words)
        return head

    @property
    def trained(self) -> int:
        """Trained rows of the output layer over the vocabulary; the others have no probability."""
        return self.words.trained

    def leave_out(self, rows: Mapping[str, int]) -> None:
        """Give no probability to rows that an import added to tables of this many rows."""
        own = [count for name, count in rows.items() if not name.startswith("encoder.")]
        self.words.trained = min([self.words.trained, *own])

    def condition(self, batch: Batch) -> Condition:
        """The inputs beside the slots; for a single tower, the embeddings of the docs' tasks."""
        return Condition(bias=self.decoder.embed.of_tasks(batch))

    def latents(self, batch: Batch) -> Tensor:
        """The most likely latents [N, Z] of the docs."""
        able = families(lambda arch: arch.latent > 0)
        raise UsageError(f"this architecture has no latent of a text; {able} have")

    def forward(
        self, batch: Batch, condition: Condition | None = None
    ) -> tuple[dict[str, Tensor], Carry]:
        """The decoded tower's states [B, T, D], by its name; without `condition` one is made."""
        name = self.config.towers[-1]
        self.check_tower(name, batch)
        condition = self.condition(batch) if condition is None else condition
        return self.read(name, batch, condition), {}

    def read(
        self, name: str, batch: Batch, condition: Condition | None = None
    ) -> dict[str, Tensor]:
        """The states of a tower, and those of several layers where a head reads them."""
        numbers = self.config.head_layers
        read = any(ask.tower == name and ask.head != LM for ask in batch.asks.values())
        every: list[Tensor] | None = [] if numbers and read else None
        given = batch.towers[name], batch.sight[name], batch.num_keys[name], condition
        asked = asked_slots(batch, name) if batch.only_asked and every is None else None
        states = {name: self.tower(name).encode(*given, layers=every, asked=asked)}
        if every is not None:
            states[layered(name)] = torch.stack([every[number] for number in numbers], dim=2)
        return states

    def embed(self, batch: Batch, depth: int) -> Tensor:
        """The states [B, T, D] of texts (`Task.to_embed`) behind as many layers."""
        layers: list[Tensor] | None = None if depth == len(self.reader.layers) else []
        given = batch.towers["enc"], batch.sight["enc"], batch.num_keys["enc"]
        last = self.reader.encode(*given, layers=layers)
        return last if layers is None else layers[depth]

    def check_tower(self, name: str, batch: Batch) -> None:
        """Raise `UsageError` unless the batch has this tower of the model."""
        if name not in batch.towers:
            there, laid = (" and ".join(one) for one in (self.config.towers, batch.towers))
            raise UsageError(f"--arch has the towers {there}, but the task lays out {laid}")

    def head(self, asked: Tensor | Asked, name: str = LM) -> Tensor:
        """The output of a head at asked rows; states [K, D] are of rows that read one slot."""
        if isinstance(asked, Tensor):
            asked = Asked(asked[:, None])
        head = self.heads.named(name)
        if head.mix is not None:
            asked = replace(asked, states=head.mix(asked.states))
        return head(asked, self.decoder.embed.tokens.weight)

    @torch.no_grad()
    def step(
        self,
        columns: Tensor,
        sight: Tensor,
        condition: Condition | None,
        cache: Any,
        at: int | Tensor,
        asked: Tensor | None = None,
    ) -> Tensor:
        """Read the slots `columns` [9, B, q] after what the cache holds: their states [B, q, D].

        Their keys and values become the cache's columns [at, at + q); query i of row b looks at
        the columns where `sight` [B, q, S] is true. The prompt is a step with at = 0. A condition
        is the one that the cache was made with. `asked` [B, a] limits the states to these slots.
        """
        return self.decoder.extend(columns, sight, cache, at, condition, asked)

    def new_cache(self, *args: Any, **kwargs: Any) -> Any:
        """An empty cache of the decoded tower (`Stack.new_cache`)."""
        return self.decoder.new_cache(*args, **kwargs)


class EncoderDecoder(Model):
    """The decoder "dec" reads the states of the encoder "enc"."""

    def __init__(self, config: EncoderDecoderConfig, vocab_size: int):
        own = replace(config, num_layers=config.decoder_layers or config.num_layers)
        super().__init__(config, vocab_size, Stack(own, vocab_size, cross=True))
        encoder = self.towers["enc"] = Stack(config, vocab_size)
        init_weights(encoder, config)
        if config.shared_embeddings:
            encoder.embed.tokens = self.decoder.embed.tokens
            encoder.embed.virtual = self.decoder.embed.virtual

    def condition(self, batch: Batch) -> Condition:
        """The encoder's states."""
        self.check_tower("enc", batch)
        slots = batch.towers["enc"]
        own = Condition(bias=self.reader.embed.of_tasks(batch))
        states_BSD = self.reader.encode(slots, batch.sight["enc"], batch.num_keys["enc"], own)
        return Condition(states_BSD, slots, bias=self.decoder.embed.of_tasks(batch))

    def forward(
        self, batch: Batch, condition: Condition | None = None
    ) -> tuple[dict[str, Tensor], Carry]:
        """The states of both towers; without `condition`, it is computed from the batch."""
        condition = self.condition(batch) if condition is None else condition
        states, carry = super().forward(batch, condition)
        assert condition.cross is not None
        return {"enc": condition.cross, **states}, carry


def build(arch: ArchConfig, vocab_size: int, source_vocab_size: int | None = None) -> Model:
    """The network of an architecture (`ArchConfig.build`), which is a module of torch."""
    network = arch.build(vocab_size, source_vocab_size)
    assert isinstance(network, Model), f"{type(arch).__name__} builds no Model"
    return network
