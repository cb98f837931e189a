"""The one Transformer: embeddings, layers, final norm; and the model that is one such tower."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor, nn

from unitk.errors import UsageError
from unitk.models.attention import View, bias, compute_dtype, render
from unitk.models.cache import Cache
from unitk.models.config import ModelConfig
from unitk.models.heads import VocabHead
from unitk.models.layers import Embedding, Layer, norm
from unitk.registry import nearest
from unitk.slots import POS, Batch


@dataclass(frozen=True)
class Condition:
    """What enters a stack beside its slots, as tables per doc; a single tower takes none."""


@dataclass(frozen=True)
class Carry:
    """What leaves a model beside its states."""

    terms: dict[str, Tensor] = field(default_factory=dict)
    """Loss terms per doc [N]."""


class Stack(nn.Module):
    """One tower. Everything it knows about an input is in the slots [9, B, T]."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.config = config
        self.embed = Embedding(config, vocab_size)
        self.layers = nn.ModuleList(Layer(config) for _ in range(config.num_layers))
        self.norm = norm(config) if config.final_norm else nn.Identity()

    def encode(self, slots: Tensor, sight: str, num_keys: int) -> Tensor:
        """The states [B, T, D] of slots that see each other by the rule."""
        dropout = self.config.attention_dropout if self.training else 0.0
        dtype = compute_dtype(self.embed.tokens.weight)
        view = render(slots, sight, num_keys, dtype, dropout)
        x_BTD = self.embed(slots)
        for layer in self.layers:
            x_BTD = layer(x_BTD, view)
        states_BTD: Tensor = self.norm(x_BTD)
        return states_BTD

    def extend(self, columns: Tensor, sight_BqS: Tensor, cache: Cache, at: int) -> Tensor:
        """The states [B, q, D] of further slots, written to the cache from column `at` on."""
        until = sight_BqS.shape[2]
        stop = at + columns.shape[2]
        assert stop <= until <= cache.columns, f"slots {at}:{stop} of {until} in {cache.columns}"
        cache.pos[:, at:stop] = columns[POS]
        view = View(until, bias(sight_BqS, cache.key[0].dtype))
        x_BqD = self.embed(columns)
        for number, layer in enumerate(self.layers):
            x_BqD = layer(x_BqD, view, partial(cache.write, number, at, until))
        states_BqD: Tensor = self.norm(x_BqD)
        return states_BqD

    def new_cache(
        self,
        batch_size: int,
        columns: int,
        dtype: torch.dtype | None = None,
        device: torch.device | str | None = None,
    ) -> Cache:
        """An empty cache for `batch_size` rows of `columns` slots."""
        weight = self.embed.tokens.weight
        device = weight.device if device is None else device
        dtype = compute_dtype(weight) if dtype is None else dtype
        shape = (batch_size, self.config.num_heads, columns, self.config.head_width)

        def empty() -> list[Tensor]:
            # zeros: a column that nobody looks at still meets a weight of 0, and 0 * nan is nan
            return [torch.zeros(shape, dtype=dtype, device=device) for _ in self.layers]

        pos = torch.zeros(batch_size, columns, dtype=torch.int64, device=device)
        return Cache(empty(), empty(), pos)


class Model(Stack):
    """A single tower "x" with its output layers."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__(config, vocab_size)
        self.heads = nn.ModuleDict({"lm": VocabHead(config, vocab_size)})
        init_weights(self)

    def condition(self, batch: Batch) -> Condition | None:
        """Nothing enters a single tower beside its slots."""
        return None

    def forward(
        self, batch: Batch, condition: Condition | None = None
    ) -> tuple[dict[str, Tensor], Carry]:
        """The states [B, T, D] of each tower of the batch."""
        if batch.towers.keys() != {"x"}:
            found = ", ".join(batch.towers)
            raise UsageError(f"--arch has one tower, x, but the task lays out {found}")
        assert condition is None
        states_BTD = self.encode(batch.towers["x"], batch.sight["x"], batch.num_keys["x"])
        return {"x": states_BTD}, Carry()

    def head(self, states_KD: Tensor, name: str = "lm") -> Tensor:
        """The output layer of that name at K asked rows: logits [K, V]."""
        if name not in self.heads:
            known = ", ".join(self.heads)
            hint = nearest(name, self.heads) or f" (it has: {known})"
            raise UsageError(f"--arch has no output layer {name!r}{hint}")
        logits_KV: Tensor = self.heads[name](states_KD, self.embed.tokens.weight)
        return logits_KV

    @torch.no_grad()
    def step(
        self,
        columns: Tensor,
        sight: Tensor,
        condition: Condition | None,
        cache: Cache,
        at: int,
    ) -> Tensor:
        """Read the slots `columns` [9, B, q] after what the cache holds: their states [B, q, D].

        Their keys and values become the cache's columns [at, at + q); query i of row b looks at
        the columns where `sight` [B, q, S] is true. The prompt is a step with at = 0.
        """
        assert condition is None
        return self.extend(columns, sight, cache, at)


@torch.no_grad()
def init_weights(model: Stack) -> None:
    """Draw matrices from N(0, init_std), set biases to 0; optionally less where layers add up."""
    config = model.config
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            scaled = config.scaled_init and name.endswith((".attention.out", ".ffn.down"))
            scale = (2 * config.num_layers) ** -0.5 if scaled else 1.0
            nn.init.normal_(module.weight, std=config.init_std * scale)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
