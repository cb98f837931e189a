"""The loss of adaptive masking: which tokens stay hidden, and how hard they were.

Edman and Fraser 2025, arXiv 2510.20475, the "hard" score. K tokens that may be hidden, N slots of
all rows, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from unitk.criterions.base import Loss, Trainable, totals
from unitk.errors import UsageError
from unitk.families.adaptive.config import COUNT, DIFFICULTY, DRAW
from unitk.models.config import ModelConfig
from unitk.models.heads.base import LM, Asked, Head, Terms
from unitk.registry import register
from unitk.slots import DOC, TOKEN, Ask, Batch


@register("head", "difficulty")
class Difficulty(Head):
    """The difficulty of each token of the vocabulary for `--task adaptive_mlm`; it has no asks.

    The weights [V] begin as 1. They are part of a checkpoint, and no parameters.
    """

    weight: Tensor
    seen: Tensor
    """How often each token was predicted since the weights changed, and how often rightly."""
    updates: Tensor

    def __init__(self, config: ModelConfig, vocab_size: int, size: int | None) -> None:
        super().__init__(config, vocab_size, size)
        self.register_buffer("weight", torch.ones(vocab_size))
        self.register_buffer("seen", torch.zeros(2, vocab_size))
        self.register_buffer("updates", torch.zeros(1))

    def forward(self, asked: Asked, tokens_VD: Tensor) -> Tensor:
        raise UsageError(f"{DIFFICULTY} keeps weights of tokens; no task asks it")

    def terms(self, output: Tensor, label: Tensor, price_K: Tensor, *smoothed: Any) -> Terms:
        raise UsageError(f"{DIFFICULTY} keeps weights of tokens; no task asks it")

    def mean(self, outputs: Sequence[Tensor]) -> Tensor:
        raise UsageError(f"{DIFFICULTY} keeps weights of tokens; no task asks it")

    def learn(self, seen_2V: Tensor, every: int, kept: float) -> None:
        """Add what an update predicted; after `every` updates the weights change."""
        self.seen += seen_2V
        self.updates += 1
        many_V, right_V = self.seen
        # of a token that was not seen, half of the predictions are taken to be right
        score_V = (right_V + 0.5) / (many_V + 1)
        changed_V = kept * self.weight + (1 - kept) * (1 - score_V)
        # asked of no device: a GPU need not be waited for
        due = self.updates % every == 0
        self.weight.copy_(torch.where(due, changed_V, self.weight))
        self.seen.copy_(torch.where(due, 0.0, self.seen))


@dataclass
class AdaptiveMasking:
    """Sums of cross-entropy over hidden tokens (mlm), and over other asks as they are.

    A model that does not train has tokens hidden all alike, as `--task mlm` hides them.
    """

    every: int
    kept: float
    pending: Tensor | None = field(default=None, init=False)
    """What this rank predicted since the last update, [2, V]."""

    def counts(self, batch: Batch) -> dict[str, float]:
        if DRAW not in batch.inputs:
            raise UsageError(
                "--criterion adaptive is for --task adaptive_mlm, whose texts have draws"
            )
        hidden = float(batch.inputs[COUNT].sum())
        return {n: hidden if ask.head == LM else batch.count[n] for n, ask in batch.asks.items()}

    def __call__(self, model: Trainable, batch: Batch, step: int, total: int | None) -> Loss:
        head = model.heads.get(DIFFICULTY)
        assert isinstance(head, Difficulty)
        weight_V = head.weight if model.training else torch.ones_like(head.weight)
        read = hide_by_weight(batch, weight_V)
        lean = batch.docs.device.type == "cpu"
        states, carry = model(replace(read, only_asked=lean), model.condition(read))
        loss = Loss({}, {}, carry)
        for name, ask in read.asks.items():
            terms = model.answer(states, read, [ask])
            [(loss.sums[name], nll, correct)] = totals(terms, [ask])
            if nll is not None and ask.head == LM:
                loss.parts[f"{name}/nll"] = nll
            if correct is not None:
                loss.parts[f"{name}/correct"] = correct
            # a rank without texts computes those of others
            learns = model.training and torch.is_grad_enabled()
            if learns and ask.head == LM and batch.num_real:
                self.note(head, ask.label, terms.correct)
        return loss

    def note(self, head: Difficulty, label_K: Tensor, correct_K: Tensor) -> None:
        """Remember which tokens were predicted, and whether rightly."""
        # made with the first batch, on the model's device
        if self.pending is None:
            self.pending = torch.zeros_like(head.seen)
        self.pending[0].index_add_(0, label_K, torch.ones_like(correct_K, dtype=self.pending.dtype))
        self.pending[1].index_add_(0, label_K, correct_K.to(self.pending.dtype))

    def learn(self, model: Any, total: Callable[[dict[str, Tensor]], dict[str, Tensor]]) -> None:
        """Update the difficulties with the predictions of all ranks, which `total` adds up."""
        head = model.heads.get(DIFFICULTY)
        counts_2V = torch.zeros_like(head.seen) if self.pending is None else self.pending
        [seen_2V] = total({DIFFICULTY: counts_2V}).values()
        head.learn(seen_2V.to(head.seen.dtype), self.every, self.kept)
        # an update without texts on this rank adds nothing
        self.pending = None


def hide_by_weight(batch: Batch, weight_V: Tensor) -> Batch:
    """The batch in which as many tokens of each text stay hidden as it says, and no others.

    They are drawn one after the other, each with a probability in proportion to its weight: those
    of the largest log(u) / weight (Efraimidis and Spirakis 2006, section 2).
    """
    # another ask may be of the whole text, such as that of the next sentence
    [name] = [name for name, ask in batch.asks.items() if ask.head == LM]
    ask: Ask = batch.asks[name]
    slots = batch.towers["x"]
    draw_N = batch.inputs[DRAW].flatten()
    token_N = slots[TOKEN].flatten()
    # in the order of slots, as the rows of the ask are
    place_K = draw_N.nonzero()[:, 0]
    key_K = draw_N[place_K].double().log() / weight_V[ask.label]
    order_K = key_K.argsort(descending=True, stable=True)
    doc_K = slots[DOC].flatten()[place_K]
    # the texts one after the other, in each the largest keys first
    order_K = order_K[doc_K[order_K].argsort(stable=True)]
    sorted_K = doc_K[order_K]
    # how many of its text come before each
    rank_K = torch.arange(len(sorted_K), device=sorted_K.device)
    rank_K = rank_K - torch.searchsorted(sorted_K, sorted_K)
    chosen = order_K[rank_K < batch.inputs[COUNT][sorted_K]].sort().values
    # all tokens are shown again, but for those that were drawn
    read_N = token_N.clone()
    read_N[place_K] = ask.label
    read_N[place_K[chosen]] = token_N[place_K[chosen]]
    tower = slots.clone()
    tower[TOKEN] = read_N.view_as(slots[TOKEN])
    asked = replace(ask, rows=ask.rows[chosen], label=ask.label[chosen], weight=ask.weight[chosen])
    return replace(batch, towers={"x": tower}, asks={**batch.asks, name: asked})
