"""What a Transformer is made of: embeddings, feed-forward part, layer."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.models.attention import Attention, Store, View
from unitk.models.config import ModelConfig
from unitk.slots import POS, POS2, SEG, TOKEN

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "relu": torch.relu,
}


class Embedding(nn.Module):
    """Sum of the tables a slot points into, normalised if asked for, with dropout.

    Virtual tokens (ids from `vocab_size` on) will be rows of a table of their own, so that `tokens`
    stays the output matrix.
    """

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.offset = config.position_offset
        self.tokens = nn.Embedding(vocab_size, config.width)
        self.positions = _table(config.max_positions and config.max_positions + self.offset, config)
        self.positions2 = _table(config.max_positions2, config)
        self.segments = _table(config.num_segments, config)
        self.norm = norm(config) if config.embedding_norm else nn.Identity()
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, slots: Tensor) -> Tensor:
        """Slots [9, B, T] -> [B, T, D]."""
        x_BTD: Tensor = self.tokens(slots[TOKEN])
        if self.positions is not None:
            x_BTD = x_BTD + self.positions(slots[POS] + self.offset)
        if self.positions2 is not None:
            x_BTD = x_BTD + self.positions2(slots[POS2])
        if self.segments is not None:
            x_BTD = x_BTD + self.segments(slots[SEG])
        x_BTD = self.dropout(self.norm(x_BTD))
        return x_BTD


class FeedForward(nn.Module):
    """Two linear maps with the activation between."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.up = nn.Linear(config.width, config.ffn_width, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.down = nn.Linear(config.ffn_width, config.width, bias=config.bias)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = self.down(self.activation(self.up(x_BTD)))
        return x_BTD


class Layer(nn.Module):
    """Attention and feed-forward part, each added to what came in, normalised before or after."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.norm_first = config.norm_first
        self.attention_norm = norm(config)
        self.attention = Attention(config)
        self.ffn_norm = norm(config)
        self.ffn = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x_BTD: Tensor, view: View, store: Store | None = None) -> Tensor:
        if self.norm_first:
            x_BTD = x_BTD + self.dropout(self.attention(self.attention_norm(x_BTD), view, store))
            x_BTD = x_BTD + self.dropout(self.ffn(self.ffn_norm(x_BTD)))
        else:
            x_BTD = self.attention_norm(x_BTD + self.dropout(self.attention(x_BTD, view, store)))
            x_BTD = self.ffn_norm(x_BTD + self.dropout(self.ffn(x_BTD)))
        return x_BTD


def norm(config: ModelConfig) -> nn.Module:
    """A layer norm of the model's width."""
    return nn.LayerNorm(config.width, eps=config.norm_eps)


def _table(rows: int, config: ModelConfig) -> nn.Embedding | None:
    return nn.Embedding(rows, config.width) if rows else None
