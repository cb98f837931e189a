"""GPT-BERT's network (Charpentier and Samuel 2024, arXiv 2410.24159, section 3.1).

LTG-BERT with two changes: each channel of what attention finds is gated, and normed before the
output map; and each part of a layer reads a weighted sum of the embedding and of all states that
the parts before it made (DenseFormer: Pagliardini et al. 2024, arXiv 2402.02622).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.families.disentangled.config import GPTBERTConfig
from unitk.families.disentangled.network import Disentangled, DisentangledAttention
from unitk.kernels.products import recompute
from unitk.models.attention import take_asked
from unitk.models.layers import Context, Layer
from unitk.models.stack import Stack
from unitk.models.state import Condition


class GatedAttention(DisentangledAttention):
    """Disentangled attention with a gate for each channel of what it finds."""

    def __init__(self, config: GPTBERTConfig):
        super().__init__(config)
        self.channels = nn.Linear(config.width, config.heads_width)
        self.norm = nn.LayerNorm(config.heads_width, config.norm_eps, elementwise_affine=False)

    def join(self, mixed_BHTK: Tensor, x_BTD: Tensor) -> Tensor:
        # of the normed states that queries and values are made from
        gate_BHTK = self.split(F.gelu(self.channels(x_BTD)))
        return super().join(mixed_BHTK * gate_BHTK, x_BTD)


class WeightedStack(Stack):
    """A tower whose parts read weighted sums of all states before them."""

    def __init__(self, config: GPTBERTConfig, vocab_size: int):
        super().__init__(config, vocab_size)
        for number, layer in enumerate(self.layers):
            # at first, a part reads what the one before it made
            for part, count in (("attention_sum", 2 * number + 2), ("ffn_sum", 2 * number + 3)):
                first = F.one_hot(torch.tensor(count - 1), count).float()
                layer.register_parameter(part, nn.Parameter(first))

    def pass_through(
        self,
        embedded_BTD: Tensor,
        contexts: Sequence[Context],
        condition: Condition,
        asked: Tensor | None = None,
        depths: list[Tensor] | None = None,
    ) -> Tensor:
        """The layers, of which each part adds to a sum of all states before it."""
        x_BTD = embedded_BTD
        states = [embedded_BTD]
        again = self.recompute and self.training
        for layer, context in zip(self.layers, contexts, strict=True):
            assert isinstance(layer, Layer)
            if depths is not None:
                depths.append(x_BTD)
            attend = partial(layer.attention, view=context.view, store=context.store)
            parts: list[tuple[Tensor, nn.Module, Callable[[Tensor], Tensor]]] = [
                (layer.get_parameter("attention_sum"), layer.attention_norm, attend),
                (layer.get_parameter("ffn_sum"), layer.ffn_norm, layer.ffn),
            ]
            for weight_n, norm, part in parts:
                arguments = x_BTD, norm, part
                # what a part made is kept as it is; the next one reads the sum
                states.append(recompute(layer.add, *arguments) if again else layer.add(*arguments))
                # in fp32, as the weights are; autocast would add up in 16 bits
                terms = (weight * state for weight, state in zip(weight_n, states, strict=True))
                x_BTD = layer.keep_dtype(torch.stack([*terms]).sum(0), x_BTD)
        states_BTD: Tensor = self.norm(x_BTD)
        return states_BTD if asked is None else take_asked(states_BTD, asked)


class GPTBERT(Disentangled):
    """A tower of gated layers and weighted sums, which share the vectors of distances."""

    def __init__(self, config: GPTBERTConfig, vocab_size: int):
        super().__init__(config, vocab_size, WeightedStack(config, vocab_size))
        for layer in self.decoder.layers:
            assert isinstance(layer, Layer)
            # its norm is before the output map
            layer.attention_after = nn.Identity()
