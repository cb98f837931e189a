"""Variational autoencoders: an encoder maps a text to a latent, and a decoder writes it again.

Optimus: Li et al. 2020, arXiv 2004.04092, sections 3 and 4.2. N docs, Z dimensions of the latent.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unitk.families.latent.components import LatentConfig
from unitk.models.layers import init_weights
from unitk.models.model import Model
from unitk.models.stack import Stack
from unitk.models.state import Carry, Condition, Reading
from unitk.slots import BORN, DOC, NEVER, POS, Batch


@dataclass(frozen=True)
class Posterior:
    """Diagonal normal distributions of the docs' latents, each [N, Z]."""

    mean: Tensor
    logvar: Tensor

    def sample(self, noise_NZ: Tensor | None = None) -> Tensor:
        """Draw every latent with the given normal noise; differentiable in mean and variance."""
        noise_NZ = torch.randn_like(self.mean) if noise_NZ is None else noise_NZ
        return self.mean + (self.logvar / 2).exp() * noise_NZ

    def kl(self) -> Tensor:
        """Divergence from N(0, 1) of each dimension, in nats."""
        return (self.mean**2 + self.logvar.exp() - self.logvar - 1) / 2


class LatentModel(Model):
    """An encoder and a decoder "dec", which reads nothing of the text but its latent."""

    between = {"pool": "encoder", "bridge": "", "memory": "decoder", "embedding": "decoder"}
    beside_forward = ("condition", "posterior", "latent")

    def __init__(self, config: LatentConfig, vocab_size: int, source_vocab_size: int):
        super().__init__(config, vocab_size, Stack(config.decoder, vocab_size))
        self.config: LatentConfig = config
        settings = config.tower("enc")
        self.towers["enc"] = encoder = Stack(settings, source_vocab_size)
        # `Model` has drawn the decoder's weights only
        init_weights(encoder, settings)
        self.pool = nn.Linear(settings.width, settings.width)
        # mean above log variance, in one map as in Optimus; no bias there either
        self.bridge = nn.Linear(settings.width, 2 * config.latent, bias=False)
        keys = config.num_layers * config.kv_width
        self.memory = _linear(config.memory, config.latent, keys)
        self.embedding = _linear(config.inject != "memory", config.latent, config.width)
        for part in (self.pool, self.bridge, self.memory, self.embedding):
            if part is not None:
                nn.init.normal_(part.weight, std=config.init_std)
        nn.init.zeros_(self.pool.bias)

    def forward(
        self, batch: Batch, condition: Condition | None = None
    ) -> tuple[dict[str, Tensor], Carry]:
        """The states of the decoder, and those of the encoder where they are asked for."""
        states, carry = super().forward(batch, condition)
        if any(ask.tower == "enc" for ask in batch.asks.values()):
            states |= self.read("enc", batch)
            if self.config.head_latent:
                states["enc"] = self.posterior_of(self.pool_states(states["enc"])).mean
        return states, carry

    def posterior(self, batch: Batch) -> Posterior:
        """The latents' distributions."""
        return self.posterior_of(self.feature(batch))

    def feature(self, batch: Batch) -> Tensor:
        """A vector [N, D] of each doc: the pooled state of its first encoder slot."""
        self.check_tower("enc", batch)
        states_BTD = self.reader.encode(reading := Reading.of(batch, "enc"))
        first_ND = states_BTD.flatten(0, 1)[_first(reading.slots, len(batch.owner))]
        return self.pool_states(first_ND)

    def pool_states(self, states: Tensor) -> Tensor:
        """Pool states [..., D] of the encoder."""
        # the latent is small: full precision costs nothing, and rounding it would be noise
        with torch.autocast(states.device.type, enabled=False):
            return torch.tanh(self.pool(states.to(self.decoder.embed.tokens.weight.dtype)))

    def posterior_of(self, feature_ND: Tensor) -> Posterior:
        """The posteriors that the features determine."""
        with torch.autocast(feature_ND.device.type, enabled=False):
            mean, logvar = self.bridge(feature_ND).chunk(2, dim=-1)
        return Posterior(mean, torch.zeros_like(logvar) if self.config.unit_variance else logvar)

    def latent(self, z_NZ: Tensor, batch: Batch) -> Condition:
        """The decoder's condition for the docs' latents."""
        prefix: tuple[tuple[Tensor, Tensor], ...] = ()
        if self.memory is not None:
            # one vector a layer is its key and its value, in heads like any other
            per_layer = self.memory(z_NZ).chunk(self.config.num_layers, dim=-1)
            heads = (x.view(len(z_NZ), self.config.kv_heads, 1, -1) for x in per_layer)
            prefix = tuple((x_NH1K, x_NH1K) for x_NH1K in heads)
        bias = None if self.embedding is None else self.embedding(z_NZ)
        return Condition(prefix=prefix, bias=bias, docs=batch.docs)

    def condition(self, batch: Batch) -> Condition:
        """The decoder's condition for the means of the posteriors."""
        return self.latent(self.posterior(batch).mean, batch)

    def latents(self, batch: Batch) -> Tensor:
        return self.posterior(batch).mean

    def generator_parameters(self) -> Iterator[nn.Parameter]:
        """The parameters of the decoder and of what feeds it the latent."""
        for name, parameter in self.named_parameters():
            if not name.startswith(("encoder.", "pool.", "bridge.")):
                yield parameter


def _linear(exists: bool, inputs: int, outputs: int) -> nn.Linear | None:
    return nn.Linear(inputs, outputs, bias=False) if exists else None


def _first(slots: Tensor, num_docs: int) -> Tensor:
    """[N] flat index of the slot at position 0 of each doc."""
    starts = (slots[POS] == 0) & (slots[BORN] < NEVER)
    doc = torch.where(starts, slots[DOC], num_docs).flatten()  # all others fall into a spare row
    places = torch.arange(doc.numel(), device=doc.device)
    return doc.new_zeros(num_docs + 1).scatter_(0, doc, places)[:num_docs]
