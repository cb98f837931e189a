"""An optimizer, a criterion and an architecture, for docs/adding-an-objective.md."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from unitk.models.config import ModelConfig
from unitk.optim.config import Groups, OptimizerConfig
from unitk.registry import get, register
from unitk.slots import Batch
from unitk.vocab.base import Vocab


@register("optimizer", "nadam")
@dataclass(frozen=True, kw_only=True)
class NAdamConfig(OptimizerConfig):
    """Adam with Nesterov's momentum (Dozat 2016)."""

    momentum_decay: float = 0.004
    """How fast the momentum grows to its final value."""

    def build(self, groups: Groups) -> Any:
        from torch.optim import NAdam

        return NAdam(groups, momentum_decay=self.momentum_decay)


@register("arch", "bert_narrow")
def bert_narrow() -> ModelConfig:
    """BERT for tests, with a narrow feed-forward part."""
    return replace(get("arch", "bert_tiny")(), ffn_width=64)


@register("criterion", "focal")
@dataclass(frozen=True, kw_only=True)
class FocalConfig:
    """Cross-entropy that counts hard labels more: each row has the factor (1 - p) ** gamma."""

    gamma: float = 2.0
    """Exponent of the factor. 0 is cross-entropy."""

    def build(self, vocab: Vocab) -> Focal:
        return Focal(self.gamma)


@dataclass(frozen=True)
class Focal:
    """Sums over the rows of each ask; the factor is constant in backward."""

    gamma: float

    def counts(self, batch: Batch) -> dict[str, float]:
        return batch.count

    def __call__(self, model: Any, batch: Batch, step: int, total: int | None) -> Any:
        from unitk.criterions.base import Loss

        states, carry = model(batch, model.condition(batch))
        loss = Loss({}, {}, carry)
        for ask in batch.asks.values():
            nll_K = model.answer(states, batch, [ask]).nll.detach()
            factor_K = (1 - (-nll_K).exp()) ** self.gamma
            loss.sums[ask.name] = model.answer(
                states, batch, [ask], ask.weight * factor_K
            ).loss.sum()
            loss.parts[f"{ask.name}/nll"] = (ask.weight * nll_K).sum()
        return loss
