"""Heads that make one vector of all states of a text, and name its class.

A row reads all slots of the text, the last one of which has read all others.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.families.recurrent.lstm import LSTM
from unitk.models.config import ModelConfig
from unitk.models.heads.base import Asked, Categorical
from unitk.registry import register
from unitk.slots import NOW


class Norm(nn.BatchNorm1d):
    """Batch normalization; in training a single text is normalized as in evaluation."""

    def forward(self, x_KD: Tensor) -> Tensor:
        if len(x_KD) > 1 or not self.training:
            return super().forward(x_KD)
        return F.batch_norm(
            x_KD, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps
        )


@register("head", "concat")
class Concat(Categorical):
    """The last state, and the largest and the mean value of all: concat pooling of ULMFiT.

    Howard and Ruder 2018, arXiv 1801.06146, section 3.3: two blocks of batch normalization, dropout
    and a linear map, with 50 values and relu between them.
    """

    needs_size = True
    bptt = bptt_chunks = 0  # of the recurrent stack below

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None) -> None:
        super().__init__(config, vocab_size, size)
        self.inner = nn.Sequential(
            Norm(3 * config.width), nn.Dropout(0.4), nn.Linear(3 * config.width, 50), nn.ReLU()
        )
        self.out = nn.Sequential(Norm(50), nn.Dropout(0.1), nn.Linear(50, size or 1))

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        last_K = asked.real.sum(1) - 1
        shown_Ka = asked.real
        if self.bptt_chunks:  # only states that gradients reach, as in the paper
            step_Ka = asked.slots[NOW]
            chunks_K1 = step_Ka.gather(1, last_K[:, None]) // self.bptt + 1
            shown_Ka = shown_Ka & (step_Ka // self.bptt >= chunks_K1 - self.bptt_chunks)
        return self.out(self.inner(pool(asked.states, shown_Ka, last_K)))


def pool(states_KaD: Tensor, shown_Ka: Tensor, last_K: Tensor) -> Tensor:
    """The state of each row at its last place, beside the largest and the mean value of those that
    are shown, [K, 3 D]."""
    shown_Ka1 = shown_Ka[..., None]
    last_KD = states_KaD[torch.arange(len(last_K), device=last_K.device), last_K]
    # a row that reads fewer slots than others has any state after its own
    largest_KD = states_KaD.masked_fill(~shown_Ka1, -torch.inf).amax(1)
    mean_KD = (states_KaD * shown_Ka1).sum(1) / shown_Ka.sum(1, keepdim=True)
    return torch.cat([last_KD, largest_KD, mean_KD], -1)


@register("head", "attend")
class Attend(Categorical):
    """A further LSTM layer of 100 cells, whose outputs are weighted by attention (SiATL).

    Chronopoulou et al. 2019, arXiv 1902.10547, section 3.2: the weights are the softmax of
    tanh(w h + b).
    """

    needs_size = True

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None) -> None:
        super().__init__(config, vocab_size, size)
        self.top = LSTM(config.width, 100, 100)
        self.weigh = nn.Linear(100, 1)
        self.out = nn.Linear(100, size or 1)

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        begin_K = asked.states.new_zeros(len(asked.states), 100)
        length_K = asked.real.sum(1).cpu()
        state_KaH, _ = self.top(asked.states, length_K, (begin_K, begin_K))
        score_Ka = self.weigh(state_KaH)[..., 0].tanh().masked_fill(~asked.real, -torch.inf)
        mixed_KH = (score_Ka.softmax(-1)[..., None].type_as(state_KaH) * state_KaH).sum(1)
        return self.out(mixed_KH)
