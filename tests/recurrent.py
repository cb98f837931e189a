"""A recurrent network (Elman 1990) as a plug-in architecture: its state is what it carries."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from unitk.models.condition import Condition
from unitk.models.config import ModelConfig
from unitk.models.stack import Model
from unitk.slots import BORN, NEVER


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(ModelConfig):
    """One layer, without positions."""

    num_layers: int = 1
    width: int = 16
    num_heads: int = 1
    ffn_width: int = 16
    max_positions: int = 0

    @property
    def carries(self) -> bool:
        return True

    def build(self, vocab_size, source_vocab_size=None):
        return Recurrent(self, vocab_size)


class Recurrent(Model):
    """state' = tanh(inward(x) + around(state)); a pad leaves the state as it is."""

    def __init__(self, config: RecurrentConfig, vocab_size: int):
        super().__init__(config, vocab_size)
        self.decoder.layers = nn.ModuleList()
        self.inward = nn.Linear(config.width, config.width)
        self.around = nn.Linear(config.width, config.width, bias=False)
        nn.init.orthogonal_(self.around.weight)

    def condition(self, batch):
        return Condition(memory=batch.carry)

    def forward(self, batch, condition=None):
        slots = batch.towers["x"]
        x_BTD = self.decoder.embed(slots)
        memory = condition.memory if condition is not None else {}
        state = memory["state"] if memory else x_BTD.new_zeros(x_BTD.shape[::2])
        states = []
        for x_BD, real_B in zip(x_BTD.unbind(1), (slots[BORN] < NEVER).unbind(1), strict=True):
            state = torch.where(real_B[:, None], self.next(state, x_BD), state)
            states.append(state)
        return {"x": torch.stack(states, 1)}, {"state": state.detach()}

    def next(self, state: Tensor, x: Tensor) -> Tensor:
        return torch.tanh(self.inward(x) + self.around(state))

    def new_cache(self, batch_size, columns, *, condition=None):
        weight = self.decoder.embed.tokens.weight
        return State(weight.new_zeros(batch_size, 1, self.config.width))

    @torch.no_grad()
    def step(self, columns, sight, condition, cache, at, asked=None):
        x_BqD = self.decoder.embed(columns)
        if at:  # a word of every hypothesis
            cache.state = self.next(cache.state, x_BqD)
            return cache.state
        states = []
        for x_BD, real_B in zip(x_BqD.unbind(1), (columns[BORN] < NEVER).unbind(1), strict=True):
            after = self.next(cache.state, x_BD[:, None])
            cache.state = torch.where(real_B[:, None, None], after, cache.state)
            states.append(cache.state)
        states_BqD = torch.cat(states, 1)
        return states_BqD.take_along_dim(asked[..., None], 1)


@dataclass
class State:
    """What decoding keeps of a recurrent network: the state [B, K, D] of each hypothesis."""

    state: Tensor

    def follow(self, back):
        self.state = self.state.take_along_dim(back[..., None], 1)

    def select(self, rows):
        return State(self.state[rows])
