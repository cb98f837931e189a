"""Attention whose scores compare contents with distances (He et al. 2021, arXiv 2006.03654)."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unitk.families.disentangled.config import DisentangledConfig
from unitk.kernels.lean import Dropout, norm
from unitk.models.attention import Attention, View
from unitk.models.heads.words import Transform, WordHead
from unitk.models.layers import Layer, init_weights
from unitk.models.model import Model
from unitk.models.stack import Stack
from unitk.slots import POS


class Positions(nn.Module):
    """The vectors of distances [R, D], which all layers share."""

    def __init__(self, config: DisentangledConfig):
        super().__init__()
        self.table = nn.Embedding(config.position_rows, config.width)
        self.norm = norm(config) if config.position_norm else nn.Identity()
        self.dropout = Dropout(config.dropout)

    def forward(self) -> Tensor:
        return self.dropout(self.norm(self.table.weight))


class DisentangledAttention(Attention):
    """Self-attention with, beside the products of contents, those of contents and distances:

        score = (q_i k_j + q_i K p[i-j] + Q p[i-j] k_j) / sqrt(3 K)

    The layer's own maps of queries and keys, Q and K, read the vectors p of distances.
    """

    def __init__(self, config: DisentangledConfig):
        super().__init__(config)
        self.positions = Positions(config)
        self.rows = config.position_rows
        self.far = config.relative_distance
        # three products of vectors that are as wide as a head
        self.scale = (3 * self.key_width) ** -0.5

    def score_bias(self, query_BHTK: Tensor, key_BHSK: Tensor, view: View) -> Tensor:
        """The terms of the scores besides q k / sqrt(3 K)."""
        table_1RD = self.positions()[None]
        query_1HRK, key_1HRK, _ = (
            part.type_as(query_BHTK) for part in self.project(table_1RD, self.rows)
        )
        distance_BTS = view.queries[POS][:, :, None] - view.keys[POS][:, None]
        index_BTS = distance_rows(distance_BTS, self.rows, self.far)
        index_BHTS = index_BTS[:, None].expand(-1, self.num_heads, -1, -1)
        # products with each vector that there is, then those of the pairs
        near_BHTS = (query_BHTK @ key_1HRK.mT).gather(3, index_BHTS)
        far_BHTS = (query_1HRK @ key_BHSK.mT).gather(2, index_BHTS)
        return self.scale * (near_BHTS + far_BHTS)


def distance_rows(distance: Tensor, rows: int, far: int) -> Tensor:
    """The row of each distance query - key.

    Half of the distances of a side have a row of their own; the others share rows that grow by
    equal factors. Rounded as both releases do, in 32 bits.
    """
    middle = rows // 2
    near = (rows + 1) // 4
    # the logarithm is of no distance that has a row of its own
    size = distance.abs()
    wide = size.clamp(min=near) / near
    growth = torch.log(wide) / torch.log(torch.tensor((far - 1) / near)) * (near - 1)
    bucket = torch.where(size <= near, distance, (growth.ceil().long() + near) * distance.sign())
    return (bucket + middle).clamp(0, rows - 1)


class Disentangled(Model):
    """A tower whose layers share the vectors of distances."""

    config: DisentangledConfig

    def __init__(self, config: DisentangledConfig, vocab_size: int, decoder: Stack | None = None):
        super().__init__(config, vocab_size, decoder)
        layers = [layer for layer in self.decoder.layers if isinstance(layer, Layer)]
        # each layer made its own; the first one's are those of all
        for layer in layers:
            layer.alone = False
            layer.attention.positions = layers[0].attention.positions
        if config.plain_norms:
            self._make_plain(layers)

    def _make_plain(self, layers: list[Layer]) -> None:
        """Norms as LTG-BERT has them: without weights, but for the one after attention."""
        config, decoder = self.config, self.decoder
        assert isinstance(decoder, Stack)

        def plain(width: int) -> nn.LayerNorm:
            return nn.LayerNorm(width, config.norm_eps, elementwise_affine=False)

        for layer in layers:
            layer.attention_norm = plain(config.width)
            layer.ffn_norm = plain(config.width)
            layer.attention_after = norm(config)
            layer.ffn.norm = plain(config.ffn_width)
        decoder.embed.norm = plain(config.width)
        decoder.norm = plain(config.width)
        head = self.heads["lm"]
        if isinstance(head, WordHead) and isinstance(head.transform, Transform):
            # the output layer has another form of GELU than the layers, and a bias
            head.transform.dense = nn.Linear(config.width, config.table_width)
            head.transform.activation = F.gelu
            head.transform.norm = plain(config.table_width)
            init_weights(head.transform, config)
