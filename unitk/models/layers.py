"""The parts of a Transformer: embeddings, feed-forward part, layer; the interface of towers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.kernels.lean import Dropout, Table, apply_again, map_normed, norm
from unitk.models.attention import Attention, CrossAttention, Fused, Source, View, take_asked
from unitk.models.config import ModelConfig
from unitk.models.state import Condition, Reading, Store
from unitk.registry import import_object
from unitk.slots import POS, POS2, SEG, TOKEN, Batch

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": torch.relu,
    "relu2": lambda x: torch.relu(x).square(),
    "silu": F.silu,
}


class Embedding(nn.Module):
    """Sum of the tables a slot points into, normalised if asked for, with dropout.

    Virtual tokens (ids from `vocab_size` on) are rows of a table of their own, so that `tokens`
    stays the output matrix.
    """

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.offset = config.position_offset
        self.tokens = Table(vocab_size, config.table_width)
        self.virtual = _table(config.num_virtual, config)
        self.scale = config.table_width**0.5 if config.embedding_scale else 1.0
        rows = rows2 = 0
        if config.positions == "learned":
            rows = config.max_positions and config.max_positions + self.offset
            rows2 = config.max_positions2
        self.positions = _table(rows, config)
        self.positions2 = _table(rows2, config)
        self.segments = _table(config.num_segments, config)
        self.one_segment = config.num_segments == 1  # which all parts of a text are (RoBERTa)
        self.tasks = _table(config.num_tasks, config)
        width = config.table_width
        self.norm = norm(config, width) if config.embedding_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)
        self.map = nn.Linear(width, config.width) if config.embedding_width else nn.Identity()

    def forward(self, slots: Tensor, added: Tensor | None = None) -> Tensor:
        """Slots [9, B, T] -> [B, T, D], with what a condition adds to them."""
        x_BTD = self.look_up(slots[TOKEN])
        if self.positions is not None:
            x_BTD = x_BTD + self.positions(slots[POS] + self.offset)
        if self.positions2 is not None:
            x_BTD = x_BTD + self.positions2(slots[POS2])
        if self.segments is not None:
            seg_BT = torch.zeros_like(slots[SEG]) if self.one_segment else slots[SEG]
            x_BTD = x_BTD + self.segments(seg_BT)
        if added is not None:
            x_BTD = x_BTD + added
        return self.map(self.dropout(self.norm(x_BTD)))

    def of_tasks(self, batch: Batch) -> Tensor | None:
        """The embedding of each doc's task, which is added to all of its slots (ERNIE 2.0), [N, D].

        Examples name the task by the input "task"; without it, it is 0.
        """
        if self.tasks is None:
            return None
        return self.tasks(batch.inputs.get("task", torch.zeros_like(batch.owner)))

    def resize_table(self, name: str, table: Tensor) -> Tensor:
        """A position table of that name, with as many rows as it has here.

        It is cut off, or the rows of positions 0, 1, ... come again (as in s2s-ft and UniLM).
        """
        attribute = name.split(".")[-2]
        # rows before that of position 0 stay
        first = self.offset if attribute == "positions" else 0
        rows = len(getattr(self, attribute).weight)
        body = table[first:]
        repeated = body.repeat(-(-rows // max(len(body), 1)), 1)
        return torch.cat([table[:first], repeated])[:rows]

    def look_up(self, token_BT: Tensor) -> Tensor:
        """The rows of real and virtual tokens [B, T, D]."""
        if self.virtual is None:
            x_BTD = self.tokens(token_BT)
        else:
            # both tables are read at rows that exist, and one is taken: no value is waited for
            beyond_BT = token_BT - self.tokens.num_embeddings
            x_BTD = torch.where(
                (beyond_BT >= 0)[..., None],
                self.virtual(beyond_BT.clamp(min=0)),
                self.tokens(token_BT.clamp(max=self.tokens.num_embeddings - 1)),
            )
        return x_BTD if self.scale == 1 else x_BTD * self.scale


class FeedForward(nn.Module):
    """Two linear maps with the activation between; the first may give a gate beside its values."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.gated = config.ffn_gate
        self.up: nn.Module = Fused(config.width, config.ffn_width, 1 + self.gated, config.bias)
        self.activation: Callable[[Tensor], Tensor] = ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.activation_dropout)
        self.norm = norm(config, config.ffn_width, inside=True)
        self.down = nn.Linear(config.ffn_width, config.width, bias=config.bias)
        self.lean = False
        """In training, keep what enters the activation only and apply it again in backward."""

    def forward(self, x_BTD: Tensor) -> Tensor:
        raw_BTF = self.up(x_BTD)
        active_BTF = self.activate(raw_BTF)
        # with dropout, what `down` keeps is another tensor, which the activation alone cannot give
        again: AbstractContextManager[None] = nullcontext()
        if self.lean and self.training and not self.dropout.p:
            again = apply_again(self.activate, raw_BTF, active_BTF)
        with again:
            return map_normed(self.norm, self.down, self.dropout(active_BTF))

    def activate(self, raw_BTF: Tensor) -> Tensor:
        """The inner values: gated by their first half, where there is a gate."""
        if not self.gated:
            return self.activation(raw_BTF)
        gate, values = raw_BTF.chunk(2, dim=-1)
        return self.activation(gate) * values


@dataclass(frozen=True)
class Context:
    """What the slots of a layer look at: each other, and in a decoder an encoder's states."""

    view: View
    store: Store | None = None
    source: Source | None = None

    def of(self, asked_Ba: Tensor) -> Context:
        """The context of the asked slots only."""
        return Context(self.view.of(asked_Ba), self.store, self.source and self.source.of(asked_Ba))


class Layer(nn.Module):
    """Attention and feed-forward part, each added to what came in, normalised before or after.

    A decoder's layer has cross-attention between the two. What comes in may be mixed with the
    embedding.
    """

    alone = True
    """Whether a layer shares no weights with others, and its weights are used by calls only."""
    half_states = False
    """Whether states leave in the dtype in which they entered (`Stack.half_states`)."""

    def __init__(self, config: ModelConfig, cross: bool = False):
        super().__init__()
        self.norm_first = config.norm_first
        self.parallel = config.parallel_residual
        normed = config.norm_first or not config.norm_after
        after = config.norm_after
        self.attention_norm = _norm(config, normed)
        self.attention_after = _norm(config, after)
        self.attention: Attention = import_object(config.attention_type)(config)
        self.cross_norm = _norm(config, cross and normed)
        self.cross_after = _norm(config, cross and after)
        self.cross_attention: CrossAttention | None = None
        if cross:
            self.cross_attention = import_object(config.cross_attention_type)(config)
        self.ffn_norm = _norm(config, normed)
        self.ffn_after = _norm(config, after)
        self.ffn = FeedForward(config)
        self.dropout = Dropout(config.dropout)
        self.mix = nn.Parameter(torch.tensor([1.0, 0.0])) if config.embedding_skip else None

    def forward(
        self,
        x_BTD: Tensor,
        context: Context,
        asked: Tensor | None = None,
        embedded_BTD: Tensor | None = None,
    ) -> Tensor:
        """The states [B, T, D] that follow; of the `asked` [B, a] slots alone if there are any."""
        if self.mix is not None:
            assert embedded_BTD is not None
            x_BTD = self.mix[0] * x_BTD + self.mix[1] * embedded_BTD

        def attend(read_BTD: Tensor) -> Tensor:
            return self.attention_after(
                self.attention(read_BTD, context.view, context.store, asked)
            )

        def look_across(read_BTD: Tensor) -> Tensor:
            assert self.cross_attention is not None
            assert context.source is not None, "a decoder's layer reads an encoder"
            return self.cross_after(self.cross_attention(read_BTD, context.source))

        def feed(read_BTD: Tensor) -> Tensor:
            return self.ffn_after(self.ffn(read_BTD))

        entering_BTD = x_BTD
        x_BTD = self.add(x_BTD, self.attention_norm, attend, asked)
        if self.cross_attention is not None:
            x_BTD = self.add(x_BTD, self.cross_norm, look_across)
        if self.parallel:  # GPT-J: x + attention(norm(x)) + ffn(norm'(x))
            read_BTD = entering_BTD if asked is None else take_asked(entering_BTD, asked)
            return self.keep_dtype(
                x_BTD + self.dropout(feed(self.ffn_norm(read_BTD))), entering_BTD
            )
        return self.add(x_BTD, self.ffn_norm, feed)

    def remember(self, states_BMD: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [B, H, M, K] of states that entered this layer in the text before."""
        x_BMD = self.attention_norm(states_BMD) if self.norm_first else states_BMD
        return self.attention.project(x_BMD, x_BMD.shape[1])[1:]

    def add(
        self,
        x_BTD: Tensor,
        norm: nn.Module,
        part: Callable[[Tensor], Tensor],
        asked: Tensor | None = None,
    ) -> Tensor:
        """The residual sum of a state and the output of a part, with the norm in its place."""
        # GPT: x + part(norm(x)); BERT: norm(x + part(x)); OLMo 2 has its norm in the part
        output_BTD = part(norm(x_BTD) if self.norm_first else x_BTD)
        sum_BTD = (x_BTD if asked is None else take_asked(x_BTD, asked)) + self.dropout(output_BTD)
        return self.keep_dtype(sum_BTD if self.norm_first else norm(sum_BTD), x_BTD)

    def keep_dtype(self, x_BTD: Tensor, entered_BTD: Tensor) -> Tensor:
        """A state in the dtype of those that entered; autocast has norms give 32 bits."""
        return x_BTD.type_as(entered_BTD) if self.half_states else x_BTD


class Tower(nn.Module):
    """The interface of the towers of a model."""

    config: ModelConfig
    """The settings; of other families those that embeddings and output layers are made from."""
    embed: Embedding
    layers: nn.ModuleList

    def encode(self, reading: Reading) -> Tensor:
        """The states [B, T, D] of slots [9, B, T]."""
        raise NotImplementedError

    def extend(
        self,
        columns: Tensor,
        sight_BqS: Tensor,
        cache: Any,
        at: int | Tensor,
        condition: Condition | None = None,
        asked: Tensor | None = None,
    ) -> Tensor:
        """The states [B, q, D] of further slots (`Stack.extend`)."""
        raise NotImplementedError

    def new_cache(self, batch_size: int, columns: int, condition: Condition | None = None) -> Any:
        """An empty cache (`Stack.new_cache`)."""
        raise NotImplementedError


def _norm(config: ModelConfig, holds: bool) -> nn.Module:
    return norm(config) if holds else nn.Identity()


def _table(rows: int, config: ModelConfig) -> nn.Embedding | None:
    return nn.Embedding(rows, config.table_width) if rows else None


@torch.no_grad()
def init_weights(model: nn.Module, config: ModelConfig) -> None:
    """Draw matrices from N(0, init_std), set biases to 0; optionally less where layers add up, or
    with more inputs."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear | nn.Embedding):
            adds = name.endswith(("attention.out", ".ffn.down"))
            scale = (2 * config.num_layers) ** -0.5 if config.scaled_init and adds else 1.0
            if name.endswith(".gate") or (config.zero_init and adds):
                scale = 0.0
            if config.fan_in_init and isinstance(module, nn.Linear):
                scale *= module.in_features**-0.5
            if config.fan_in_init and name == "relative.table":
                scale *= config.width**-0.5
            if config.base_width and name.startswith("layers."):
                scale *= (config.base_width / config.width) ** 0.5
            nn.init.normal_(module.weight, std=config.init_std * scale)
            if config.fan_in_init and name.endswith(("attention.qkv", "attention.query")):
                if not config.score_scale:
                    module.weight[: config.heads_width] *= config.key_width**-0.5
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
