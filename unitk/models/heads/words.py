"""The head over the vocabulary, and SpanBERT's of a span's borders over the same."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.kernels.lean import norm
from unitk.models.config import ModelConfig
from unitk.models.heads.base import Asked, Categorical
from unitk.models.layers import ACTIVATIONS
from unitk.registry import register
from unitk.slots import POS


class Transform(nn.Module):
    """Dense, activation, layer norm (BERT's before its output matrix)."""

    def __init__(self, config: ModelConfig, outputs: int):
        super().__init__()
        self.dense = nn.Linear(config.width, outputs, bias=config.bias)
        self.activation = ACTIVATIONS[config.activation]
        self.norm = norm(config, outputs)

    def forward(self, states_KD: Tensor) -> Tensor:
        return self.norm(self.activation(self.dense(states_KD)))


@register("head", "lm")
class WordHead(Categorical):
    """Words at one slot; a tied head is given the token embedding and holds no matrix."""

    words = True

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None = None):
        super().__init__(config, vocab_size, size)
        width = config.table_width
        self.transform: nn.Module = nn.Identity()
        if config.head_transform:
            self.transform = Transform(config, width)
        self.weight = None if config.tied else nn.Parameter(torch.empty(vocab_size, width))
        self.bias = nn.Parameter(torch.zeros(vocab_size)) if config.output_bias else None
        self.scale = config.width**-0.5 if config.output_scale else 1.0
        self.cap = config.logit_cap
        self.product: nn.Module | None = None  # matrix and bias made ready for decoding
        self.trained = vocab_size  # ids from here on were added by an import: no output is one
        if self.weight is not None:
            scale = config.width**-0.5 if config.fan_in_init else 1.0
            nn.init.normal_(self.weight, std=config.init_std * scale)

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        return self.logits(self.transform(asked.states[:, 0]), tokens_VD, asked.among)

    def logits(self, states_KD: Tensor, tokens_VD: Tensor, among_C: Tensor | None) -> Tensor:
        """Logits over the vocabulary, or over some ids of it."""
        states_KD = states_KD if self.scale == 1 else states_KD * self.scale
        weight: Tensor = tokens_VD if self.weight is None else self.weight
        bias: Tensor | None = self.bias
        if among_C is not None:
            weight = weight[among_C]
            bias = None if bias is None else bias[among_C]
        if self.product is not None and among_C is None:
            logits_KV = self.product(states_KD)
        else:
            logits_KV = F.linear(states_KD, weight, bias)
        if self.cap:  # what comes last may be overwritten (`Compare`): no gradient needs it
            logits_KV = self.cap * torch.tanh(logits_KV / self.cap)
        if among_C is not None:
            logits_KV.masked_fill_(among_C >= self.trained, -torch.inf)
        elif self.trained < logits_KV.shape[1]:
            logits_KV[:, self.trained :] = -torch.inf
        return logits_KV


@register("head", "sbo")
class BorderHead(WordHead):
    """Words of a hidden span from the slots at its borders and the place in it (SpanBERT).

    Joshi et al. 2020, arXiv 1907.10529, section 3.2: two dense maps, each with GeLU and layer norm,
    of the two states and an embedding of the distance to the left border; from SIZE (20) on, they
    share one (the official code leaves the words there out). A row reads the left border, the right
    one and the word's own slot, of which the position alone is used.
    """

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None = None):
        super().__init__(config, vocab_size)
        self.places = nn.Embedding(size or 20, 200)
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        inner, outer = config.width, config.table_width
        self.transform = nn.Sequential(
            nn.Linear(2 * inner + 200, inner),
            nn.GELU(),
            nn.LayerNorm(inner, eps=config.norm_eps),
            nn.Linear(inner, outer),
            nn.GELU(),
            nn.LayerNorm(outer, eps=config.norm_eps),
        )

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        left_K, _, own_K = asked.slots[POS].unbind(1)
        distance = self.places((own_K - left_K - 1).clamp(max=self.places.num_embeddings - 1))
        inputs = torch.cat([asked.states[:, 0], asked.states[:, 1], distance], -1)
        return self.logits(self.transform(inputs), tokens_VD, asked.among)
