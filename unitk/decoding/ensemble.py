"""Ensembles: several models as one, by the mean of their probabilities for each word (as in
fairseq).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from unitk.errors import CheckpointError
from unitk.models.base import ArchConfig
from unitk.models.heads.base import LM, Answers, Asked, Heads
from unitk.models.model import Model
from unitk.models.state import Carry
from unitk.slots import Batch, Example, Ids
from unitk.tasks.base import Task

if TYPE_CHECKING:
    from unitk.tasks.understanding.base import Understanding


@dataclass(frozen=True)
class Each:
    """The conditions, or the caches, of the models of an ensemble, one for each model."""

    each: Sequence[Any]

    def follow(self, back: Tensor) -> None:
        """Follow the back-pointers [B, K] of the search."""
        for one in self.each:
            one.follow(back)

    def select(self, rows: Tensor) -> Each:
        """Keep only these batch rows."""
        return Each([one and one.select(rows) for one in self.each])


class Ensemble(Answers):
    """Several models with the interface of one; its states are the models' states side by side.

    The models may differ in size and architecture. They read the same slots and write the same
    words. Where labels are predicted, each reads the slots of its own one of `tasks`.
    """

    def __init__(self, models: Sequence[Model], tasks: Sequence[Task] = ()) -> None:
        super().__init__()
        self.tasks = tasks
        self.models = cast(Sequence[Model], nn.ModuleList(models))
        self.config = Tightest([model.config for model in models])

    @property
    def members(self) -> Sequence[Model]:
        """The models whose answers are averaged."""
        return self.models

    @property
    def trained(self) -> int:
        """The rows of the output layer that were trained, in the model that has fewest."""
        return min(model.trained for model in self.models)

    def condition(self, batch: Batch) -> Each:
        """The models' conditions."""
        return Each([model.condition(batch) for model in self.models])

    def forward(
        self, batch: Batch, condition: Each | None = None
    ) -> tuple[dict[str, Tensor], Carry]:
        """The states [B, T, sum of D] of each tower."""
        each = condition.each if condition else [None] * len(self.models)
        states = [model(batch, one)[0] for model, one in zip(self.models, each, strict=True)]
        return {name: torch.cat([one[name] for one in states], -1) for name in states[0]}, {}

    def new_cache(self, batch_size: int, columns: int, *, condition: Each | None = None) -> Each:
        """Empty caches for `batch_size` rows of `columns` slots."""
        each = condition.each if condition else [None] * len(self.models)
        pairs = zip(self.models, each, strict=True)
        return Each([m.new_cache(batch_size, columns, condition=one) for m, one in pairs])

    def step(
        self,
        columns: Tensor,
        sight: Tensor,
        condition: Each,
        cache: Each,
        at: int | Tensor,
        asked: Tensor | None = None,
    ) -> Tensor:
        """Read further slots: the states [B, q, sum of D]."""
        parts = zip(self.models, condition.each, cache.each, strict=True)
        states = [m.step(columns, sight, one, own, at, asked) for m, one, own in parts]
        return torch.cat(states, -1)  # side by side: `head` parts them again

    @property
    def heads(self) -> Heads:  # type: ignore[override]
        """The heads of the first model; heads of one name have the same kind in all models."""
        return self.models[0].heads

    def head(self, asked: Tensor | Asked, name: str = LM) -> Tensor:
        """The mean of the models' heads: of probabilities, or of numbers."""
        asked = Asked(asked[:, None]) if isinstance(asked, Tensor) else asked
        configs = [one.config if name == LM else one.config.head_config for one in self.models]
        each = asked.states.split([config.width for config in configs], -1)
        parts = zip(self.models, each, strict=True)
        outputs = [model.head(replace(asked, states=own), name) for model, own in parts]
        return self.heads.get(name).mean(outputs)


class Tightest(ArchConfig):
    """The smallest limits of several architectures, table by table; 0 is no limit."""

    def __init__(self, each: Sequence[ArchConfig]) -> None:
        self.each = each
        self.max_positions = self._least("max_positions")
        self.max_positions2 = self._least("max_positions2")
        self.sequential = any(one.sequential for one in each)
        self.static_steps = all(one.static_steps for one in each)

    @property
    def room(self) -> int:
        return self._least("room")

    def tower(self, name: str) -> Tightest:
        return Tightest([config.tower(name) for config in self.each])

    def _least(self, name: str) -> int:
        return min((rows for one in self.each if (rows := getattr(one, name))), default=0)


def join(members: Sequence[tuple[str, Model, Task]]) -> Ensemble:
    """Join checkpoints, given by name; CheckpointError if they cannot work together."""
    first, _, task = members[0]
    for name, model, other in members[1:]:
        what = f"--checkpoint {name} cannot be in one ensemble with {first}"
        if other.vocab.hash != task.vocab.hash:
            raise CheckpointError(f"{what}: their vocabularies differ")
        if other.source_vocab.hash != task.source_vocab.hash:
            raise CheckpointError(f"{what}: their vocabularies of sources differ")
        layers = {len(one.config.head_layers) for one in (members[0][1], model)}
        if len(layers) > 1:
            raise CheckpointError(f"{what}: their heads read different numbers of layers")
        if other.trained.labels != task.trained.labels or labels_in(other) != labels_in(task):
            raise CheckpointError(f"{what}: their labels differ")
        if not are_alike(task, other):
            kinds = " and ".join(type(one).__name__ for one in (task, other))
            raise CheckpointError(f"{what}: tasks {kinds} lay out sources or outputs differently")
    return Ensemble([model for _, model, _ in members], [task for _, _, task in members])


def labels_in(task: Task) -> set[str]:
    """The labels that a task predicts."""
    return {*cast("Understanding", task).labels} if task.predicts else set()


def are_alike(one: Task, other: Task) -> bool:
    """Whether two tasks lay out and decode sources alike, or predict what can be averaged.

    The former is tested on a few sources, one of them with a blank.
    """
    if one.predicts:
        return cast("Understanding", one).alike(other)
    if (one.protocol, one.infills) != (other.protocol, other.infills):
        return False
    word = one.words[:1]  # any word: layouts do not depend on which
    sources = list[list[Ids]]()
    if one.infills:
        sources.append([np.append(word, one.vocab.mask)])
    if one.protocol is not None:
        sources += [[word], [word, word]]
    return all(_equal_examples(one.prompt(source), other.prompt(source)) for source in sources)


def _equal_examples(one: Example, other: Example) -> bool:
    same = one.towers.keys() == other.towers.keys() and np.array_equal(one.blanks, other.blanks)
    pairs = ((one.towers[name].table, other.towers[name].table) for name in one.towers)
    return same and all(np.array_equal(*pair) for pair in pairs)
