"""Two towers: sources and targets are read by networks of their own (DSSM; BERT's two towers)."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from unitk.models.archs import BERT, CPU, TESTS, for_cpu, tiny
from unitk.models.base import Preset
from unitk.models.config import ModelConfig
from unitk.registry import register
from unitk.tasks.base import Side

SIDES: tuple[Side, Side] = ("source", "target")
"""What each tower reads; the tower is called so."""


@dataclass(frozen=True, kw_only=True)
class TwoTowersConfig(ModelConfig):
    """Two Transformers with the same settings, of which one reads sources, the other targets."""

    shared_embeddings: bool = False
    """Share one token embedding between both towers."""
    towers = SIDES
    network = "unitk.families.retrieval.network:TwoTowers"

    def num_weights(self, vocab_size: int) -> int:
        tower_weights = self._weights(vocab_size, self.num_layers, output=False)
        return (
            super().num_weights(vocab_size)
            + tower_weights
            - self.shared_embeddings * (vocab_size * self.table_width)
        )


for name, config, text in (
    ("tiny", tiny(BERT), TESTS),
    ("small", for_cpu(BERT), CPU),
    ("base", BERT, "BERT-base, 2 x 110 M parameters."),
):
    preset = Preset(TwoTowersConfig(**asdict(config)), f"Two towers, each: {text}")
    register("arch", f"two_towers_{name}")(preset)
