"""The head over candidates that each batch names."""

from __future__ import annotations

from torch import Tensor, nn

from unitk.models.config import ModelConfig
from unitk.models.heads.base import Asked, Categorical
from unitk.models.heads.words import Transform
from unitk.registry import register


@register("head", "candidates")
class Candidates(Categorical):
    """Candidates such as entities: a transformed state times the candidates' embeddings.

    `Ask.among` names those of an example; in a batch each example has those of all.
    """

    needs_size = True

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None) -> None:
        super().__init__(config, vocab_size, size)
        self.transform = Transform(config, config.width)
        self.table = nn.Embedding(size or 1, config.width)

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        assert asked.among is not None, "a head over candidates needs an ask that names them"
        logits_KC: Tensor = self.transform(asked.states[:, 0]) @ self.table(asked.among).mT
        return logits_KC
