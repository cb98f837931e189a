"""Losses of cloze questions: the right answer's score against those of the others."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unitk.criterions.base import Loss, Trainable
from unitk.errors import UsageError, require
from unitk.slots import Ask, Batch

States = Mapping[str, Tensor]


@dataclass(frozen=True)
class ClozeCriterion:
    """Sums over questions of one of the losses of `unitk.families.cloze.config.ClozeConfig`.

    K questions of C answers, W tokens of all answers. The ask "cloze" has the right answers; where
    it names no candidates, its rows are the first slots of the answers whose tokens the ask
    "answers" has, with their weights.
    """

    loss: str

    def counts(self, batch: Batch) -> dict[str, float]:
        return {name: count for name, count in batch.count.items() if name == "cloze"}

    def __call__(self, model: Trainable, batch: Batch, step: int, total: int | None) -> Loss:
        ask = batch.asks.get("cloze")
        if ask is None:
            raise UsageError("--criterion cloze is for --task cloze, which asks what it needs")
        states, carry = model(batch, model.condition(batch))
        if ask.among is not None:
            vague = self.loss not in ("cross_entropy", "hinge")
            require(
                not vague,
                f"--criterion.loss {self.loss} needs --task.multi-token on: the score of one "
                "token is relative to the other answers' alone",
            )
            scores_KC = self.relative(model, states, batch, ask)
        else:
            scores_KC = self.sum_log_probs(model, states, batch, ask)
        right_K1 = ask.label[:, None]
        gold_K = scores_KC.gather(1, right_K1)[:, 0]
        # a loss of its own for answers that a question lacks: they score -inf
        others_KC = scores_KC - gold_K[:, None]
        match self.loss:
            case "cross_entropy":
                loss_K = others_KC.logsumexp(1)
            case "hinge":
                loss_K = (1 + others_KC).clamp(min=0).scatter(1, right_K1, 0).sum(1)
            case "generative":
                loss_K = -gold_K
            case "mixed":
                loss_K = others_KC.logsumexp(1) - gold_K
        correct_K = scores_KC.detach().argmax(1) == ask.label
        sums = {"cloze": (ask.weight * loss_K).sum()}
        return Loss(sums, {"cloze/correct": (ask.weight * correct_K).sum()}, carry)

    def relative(self, model: Trainable, states: States, batch: Batch, ask: Ask) -> Tensor:
        """Log-probabilities of single tokens among the candidates, [K, C]."""
        assert ask.among is not None
        choices = [
            model.answer(states, batch, [replace(ask, label=torch.full_like(ask.label, c))])
            for c in range(len(ask.among))
        ]
        return -torch.stack([terms.loss for terms in choices], dim=1)

    def sum_log_probs(self, model: Trainable, states: States, batch: Batch, ask: Ask) -> Tensor:
        """Weighted log-probabilities of the tokens of each answer, [K, C]; -inf: no answer."""
        words = batch.asks["answers"]
        loss_W = model.answer(states, batch, [words]).loss
        real_KC = ask.rows >= 0
        # slots of an answer follow its first one, and answers follow each other
        answer_W = torch.searchsorted(ask.rows[real_KC], words.first.contiguous(), right=True) - 1
        sums_N = loss_W.new_zeros(int(real_KC.sum())).index_add(0, answer_W, -loss_W)
        empty_KC = loss_W.new_full(ask.rows.shape, -torch.inf)
        return empty_KC.masked_scatter(real_KC, sums_N)
