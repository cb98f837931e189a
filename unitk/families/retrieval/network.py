"""Two towers that do not see each other: what each reads becomes vectors."""

from __future__ import annotations

from torch import Tensor

from unitk.families.retrieval.towers import SIDES, TwoTowersConfig
from unitk.models.layers import init_weights
from unitk.models.model import Model
from unitk.models.stack import Stack
from unitk.models.state import Carry, Condition, Reading, read_to_depth
from unitk.slots import Batch


class TwoTowers(Model):
    """A tower for sources and one for targets.

    The tower of sources begins as that of targets where a checkpoint has a single one.
    """

    copied = SIDES[:1]

    def __init__(self, config: TwoTowersConfig, vocab_size: int):
        super().__init__(config, vocab_size)
        first = self.towers[SIDES[0]] = Stack(config, vocab_size)
        init_weights(first, config)
        if config.shared_embeddings:  # positions and segments remain each tower's own
            first.embed.tokens = self.decoder.embed.tokens
            first.embed.virtual = self.decoder.embed.virtual

    def forward(
        self, batch: Batch, condition: Condition | None = None
    ) -> tuple[dict[str, Tensor], Carry]:
        """The states of both towers."""
        for name in SIDES:
            self.check_tower(name, batch)
        return {name: self.read(name, batch)[name] for name in SIDES}, {}

    def embed(self, batch: Batch, depth: int) -> Tensor:
        """The states of texts after as many layers of the tower that the batch names."""
        [name] = batch.towers
        tower = self.tower(name)
        return read_to_depth(
            lambda depths: tower.encode(Reading.of(batch, name, depths=depths)),
            depth,
            len(tower.layers),
        )
