"""Output layers: from the states at asked rows to what the criterion compares."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.models.config import ModelConfig
from unitk.models.layers import ACTIVATIONS, norm


class Transform(nn.Module):
    """Dense, activation, layer norm (BERT's before its output matrix)."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.dense = nn.Linear(config.width, config.table_width, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = norm(config, config.table_width)

    def forward(self, states_KD: Tensor) -> Tensor:
        states_KD = self.norm(self.activation(self.dense(states_KD)))
        return states_KD


class ClassHead(nn.Module):
    """Logits over classes from one slot's state: dense, tanh (BERT's pooler), linear."""

    def __init__(self, config: ModelConfig, classes: int):
        super().__init__()
        self.dense = nn.Linear(config.width, config.width)
        self.out = nn.Linear(config.width, classes)

    def forward(self, states_KD: Tensor) -> Tensor:
        logits_KC: Tensor = self.out(torch.tanh(self.dense(states_KD)))
        return logits_KC


class VocabHead(nn.Module):
    """Logits over the vocabulary; a tied head is given the token embedding and holds no matrix."""

    def __init__(self, config: ModelConfig, vocab_size: int):
        super().__init__()
        self.transform = Transform(config) if config.head_transform else nn.Identity()
        shape = (vocab_size, config.table_width)
        self.weight = None if config.tied else nn.Parameter(torch.empty(shape))
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if config.output_bias else None
        self.scale = config.width**-0.5 if config.output_scale else 1.0
        self.product: nn.Module | None = None  # matrix and bias made ready for decoding
        self.trained = vocab_size  # ids from here on were added by an import: no output is one
        if self.weight is not None:
            scale = config.width**-0.5 if config.fan_in_init else 1.0
            nn.init.normal_(self.weight, std=config.init_std * scale)

    def forward(self, states_KD: Tensor, tokens_VD: Tensor) -> Tensor:
        states_KD = self.transform(states_KD)
        states_KD = states_KD if self.scale == 1 else states_KD * self.scale
        weight = tokens_VD if self.weight is None else self.weight
        logits_KV: Tensor
        if self.product is not None:
            logits_KV = self.product(states_KD)
        else:
            logits_KV = F.linear(states_KD, weight, self.bias)
        if self.trained < logits_KV.shape[1]:
            logits_KV[:, self.trained :] = -torch.inf
        return logits_KV
