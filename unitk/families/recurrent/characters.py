"""Words made of their characters (ELMo): convolutions, the largest values, highways, a linear map.

Kim et al. 2016, arXiv 1508.06615; Peters et al. 2018, arXiv 1802.05365, section 3.4. U different
words, C characters, F filters.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.families.recurrent.config import CHARACTERS


class NoTable(nn.Module):
    """Stands where a table of token embeddings would be, with no rows."""

    weight: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.num_embeddings, self.lean = 0, False
        self.register_buffer("weight", torch.empty(0, width), persistent=False)


class Highway(nn.Module):
    """g * relu(W x + b) + (1 - g) * x, where the gate g = sigmoid(V x + c) begins near 0.12."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)

    def begin(self) -> None:
        """Draw the weights anew."""
        nn.init.constant_(self.gate.bias, -2.0)

    def forward(self, x: Tensor) -> Tensor:
        gate = self.gate(x).sigmoid()
        return gate * self.transform(x).relu() + (1 - gate) * x


class CharacterEmbedding(nn.Module):
    """Embeddings of words [..., D] from their characters [..., C].

    `filters` are WIDTH:COUNT each. A word that occurs several times is computed once.
    """

    def __init__(self, char_width: int, filters: tuple[str, ...], highways: int, width: int):
        super().__init__()
        sizes = [(int(wide), int(count)) for wide, count in (text.split(":") for text in filters)]
        self.widest = max(wide for wide, _ in sizes)
        total = sum(count for _, count in sizes)
        self.tokens = NoTable(width)
        self.chars = nn.Embedding(CHARACTERS, char_width)
        self.convolutions = nn.ModuleList(nn.Conv1d(char_width, n, wide) for wide, n in sizes)
        self.highways = nn.ModuleList(Highway(total) for _ in range(highways))
        self.map = nn.Linear(total, width)

    def begin(self) -> None:
        """Draw the weights of convolutions as bilm-tf does, uniformly within 0.05."""
        nn.init.normal_(self.chars.weight)
        for convolution in self.convolutions:
            assert isinstance(convolution, nn.Conv1d)
            nn.init.uniform_(convolution.weight, -0.05, 0.05)

    def forward(self, chars: Tensor) -> Tensor:
        padded = F.pad(chars, (0, max(0, self.widest - chars.shape[-1])))
        words_UC, word = padded.flatten(0, -2).unique(dim=0, return_inverse=True)
        x_UcC = self.chars(words_UC).mT
        # the largest value at any place; relu after it, which is the same and less work
        x_UF = torch.cat(
            [convolution(x_UcC).amax(-1).relu() for convolution in self.convolutions], -1
        )
        for highway in self.highways:
            x_UF = highway(x_UF)
        return self.map(x_UF)[word].unflatten(0, chars.shape[:-1])
