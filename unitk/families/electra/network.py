"""The generator beside the discriminator, and the head that tells replaced tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.errors import UsageError, require
from unitk.families.electra.config import ElectraConfig
from unitk.models.config import ModelConfig
from unitk.models.heads.base import LM, Asked, Head, Heads, Terms
from unitk.models.layers import ACTIVATIONS, init_weights
from unitk.models.model import Model
from unitk.models.stack import Stack
from unitk.models.state import Carry, Condition, Reading
from unitk.registry import register
from unitk.slots import Batch

SHARED = ("tokens", "virtual", "positions", "positions2", "segments", "tasks", "norm")
"""Parts of the embeddings that both networks have in common (section 3.2 and the code)."""


class Generating(Model):
    """The tower is the discriminator; words are predicted by the generator."""

    additions = ("generator",)
    beside_forward = ("condition", "generator_states")

    def __init__(self, config: ElectraConfig, vocab_size: int):
        super().__init__(config, vocab_size, Stack(config, vocab_size))
        self.generator: Stack | None = None
        if (generator := config.generator) is None:
            return
        self.generator = Stack(generator, vocab_size)
        self.heads = Heads(generator, vocab_size, config.head_config)
        init_weights(self.generator, generator)
        init_weights(self.heads, generator)
        # after the weights' draws, which are those of tables of its own otherwise
        for part in SHARED:
            setattr(self.generator.embed, part, getattr(self.decoder.embed, part))

    def forward(
        self, batch: Batch, condition: Condition | None = None
    ) -> tuple[dict[str, Tensor], Carry]:
        """The generator's states where words alone are asked, else the discriminator's."""
        asked = {ask.head for ask in batch.asks.values()}
        if asked == {LM}:
            return self.generator_states(batch), {}
        if LM in asked:
            raise UsageError("--arch electra_*: a task asks for words or for labels, not for both")
        return super().forward(batch, condition)

    def generator_states(self, batch: Batch) -> dict[str, Tensor]:
        """The generator's states, from which the output layer over the vocabulary fills masks."""
        tower = self.decoder if self.generator is None else self.generator
        # a released generator is a tower of its own, a discriminator has no output over words
        fills = tower is not self.decoder or self.config.head_transform
        require(
            fills, "this model has no generator (--arch.generator-divisor 0), so it fills no masks"
        )
        self.check_tower("x", batch)
        condition = Condition(bias=tower.embed.of_tasks(batch))
        return {"x": tower.encode(Reading.of(batch, "x", condition))}


@register("head", "detect")
class DetectHead(Head):
    """Whether a slot's token was replaced: dense, activation, and one logit."""

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None) -> None:
        super().__init__(config, vocab_size, size)
        self.dense = nn.Linear(config.width, config.width)
        self.activation = ACTIVATIONS[config.activation]
        self.out = nn.Linear(config.width, 1)

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        """Logits [K]."""
        logits_K1: Tensor = self.out(self.activation(self.dense(asked.states[:, 0])))
        return logits_K1[:, 0]

    def terms(self, output: Tensor, label: Tensor, price_K: Tensor, *smoothed: Any) -> Terms:
        output = output.float()
        nll_K = F.binary_cross_entropy_with_logits(output, label.float(), reduction="none")
        correct_K = (output.detach() > 0) == (label > 0)
        return Terms(price_K * nll_K, nll_K.detach(), correct_K.float())

    def mean(self, outputs: Sequence[Tensor]) -> Tensor:
        return torch.stack(list(outputs)).sigmoid().mean(0).logit()
