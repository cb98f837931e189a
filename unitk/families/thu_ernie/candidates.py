"""The head over entities, of which each batch names the candidates."""

from __future__ import annotations

from torch import Tensor, nn

from unitk.errors import require
from unitk.families.thu_ernie.config import THUERNIEConfig
from unitk.models.base import families_with
from unitk.models.config import ModelConfig
from unitk.models.heads.base import Asked, Categorical
from unitk.models.heads.words import Transform
from unitk.registry import register


@register("head", "candidates")
class Candidates(Categorical):
    """Entities: a transformed state times the vectors of the candidates, which are not trained.

    `Ask.among` names those of an example; in a batch each example has those of all (Zhang et al.
    2019, arXiv 1905.07129, equation 6). Row 0 of the table is no entity.
    """

    needs_size = True

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None) -> None:
        super().__init__(config, vocab_size, size)
        if not isinstance(config, THUERNIEConfig):
            able = families_with(lambda arch: isinstance(arch, THUERNIEConfig))
            require(False, f"--arch.heads candidates: this --arch has no entities; {able} have")
        assert isinstance(config, THUERNIEConfig)
        self.transform = Transform(config, config.entity_width)
        self.table = nn.Embedding(size or 1, config.entity_width)
        self.table.requires_grad_(False)

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        assert asked.among is not None, "a head over candidates needs an ask that names them"
        return self.transform(asked.states[:, 0]) @ self.table(asked.among).mT
