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

from unitk import registry
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
class PerModel:
    """The conditions, or the caches, of the models of an ensemble, one for each model."""

    of_models: Sequence[Any]

    def follow(self, back: Tensor) -> None:
        """Follow the back-pointers [B, K] of the search."""
        for cache in self.of_models:
            cache.follow(back)

    def select(self, rows: Tensor) -> PerModel:
        """Keep only these batch rows."""
        return PerModel([state and state.select(rows) for state in self.of_models])


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

    def condition(self, batch: Batch) -> PerModel:
        """The models' conditions."""
        return PerModel([model.condition(batch) for model in self.models])

    def forward(
        self, batch: Batch, condition: PerModel | None = None
    ) -> tuple[dict[str, Tensor], Carry]:
        """The states [B, T, sum of D] of each tower."""
        conditions = condition.of_models if condition else [None] * len(self.models)
        outputs = [model(batch, own)[0] for model, own in zip(self.models, conditions, strict=True)]
        names = outputs[0]
        return {name: torch.cat([states[name] for states in outputs], -1) for name in names}, {}

    def new_cache(
        self, batch_size: int, columns: int, *, condition: PerModel | None = None
    ) -> PerModel:
        """Empty caches for `batch_size` rows of `columns` slots."""
        conditions = condition.of_models if condition else [None] * len(self.models)
        return PerModel(
            [
                model.new_cache(batch_size, columns, condition=own)
                for model, own in zip(self.models, conditions, strict=True)
            ]
        )

    def step(
        self,
        columns: Tensor,
        sight: Tensor,
        condition: PerModel,
        cache: PerModel,
        at: int | Tensor,
        asked: Tensor | None = None,
    ) -> Tensor:
        """Read further slots: the states [B, q, sum of D]."""
        states = [
            model.step(columns, sight, own, own_cache, at, asked)
            for model, own, own_cache in zip(
                self.models, condition.of_models, cache.of_models, strict=True
            )
        ]
        return torch.cat(states, -1)  # side by side: `head` splits them again

    @property
    def heads(self) -> Heads:  # type: ignore[override]
        """The heads of the first model; heads of one name have the same kind in all models."""
        return self.models[0].heads

    def head(self, asked: Tensor | Asked, name: str = LM) -> Tensor:
        """The mean of the models' heads: of probabilities, or of numbers."""
        asked = Asked(asked[:, None]) if isinstance(asked, Tensor) else asked
        configs = [m.config if name == LM else m.config.head_config for m in self.models]
        states = asked.states.split([config.width for config in configs], -1)
        outputs = [
            model.head(replace(asked, states=own), name)
            for model, own in zip(self.models, states, strict=True)
        ]
        return self.heads.get(name).mean(outputs)


class Tightest(ArchConfig):
    """The smallest limits of several architectures, table by table; 0 is no limit."""

    def __init__(self, configs: Sequence[ArchConfig]) -> None:
        self.configs = configs
        self.max_positions = self._least("max_positions")
        self.max_positions2 = self._least("max_positions2")
        self.sequential = any(config.sequential for config in configs)
        self.static_steps = all(config.static_steps for config in configs)

    @property
    def position_limit(self) -> int:
        return self._least("position_limit")

    def tower(self, name: str) -> Tightest:
        return Tightest([config.tower(name) for config in self.configs])

    def _least(self, name: str) -> int:
        return min(filter(None, (getattr(config, name) for config in self.configs)), default=0)


def join(members: Sequence[tuple[str, Model, Task]]) -> Ensemble:
    """Join checkpoints, given by name; CheckpointError if they cannot work together."""
    first, first_model, task = members[0]
    same = registry.get("measure", "same_vocab")
    for name, model, other in members[1:]:
        fault = f"--checkpoint {name} cannot be in one ensemble with {first}"
        if not same(other.vocab, task.vocab):
            raise CheckpointError(f"{fault}: their vocabularies differ")
        if not same(other.source_vocab, task.source_vocab):
            raise CheckpointError(f"{fault}: their vocabularies of sources differ")
        if len(first_model.config.head_layers) != len(model.config.head_layers):
            raise CheckpointError(f"{fault}: their heads read different numbers of layers")
        if other.trained.labels != task.trained.labels or labels_in(other) != labels_in(task):
            raise CheckpointError(f"{fault}: their labels differ")
        if not are_alike(task, other):
            raise CheckpointError(
                f"{fault}: tasks {type(task).__name__} and {type(other).__name__} lay out sources "
                "or outputs differently"
            )
    _, models, tasks = zip(*members, strict=True)
    return Ensemble(models, tasks)


def labels_in(task: Task) -> set[str]:
    """The labels that a task predicts."""
    return {*cast("Understanding", task).labels} if task.predicts else set()


def are_alike(task: Task, other: Task) -> bool:
    """Whether two tasks lay out and decode sources alike, or predict what can be averaged.

    The former is tested on a few sources, one of them with a blank.
    """
    if task.predicts:
        return cast("Understanding", task).alike(other)
    if (task.protocol, task.infills) != (other.protocol, other.infills):
        return False
    word = task.words[:1]  # any word: layouts do not depend on which
    sources = list[list[Ids]]()
    if task.infills:
        sources.append([np.append(word, task.vocab.mask)])
    if task.protocol is not None:
        sources += [[word], [word, word]]
    return all(_equal_examples(task.prompt(source), other.prompt(source)) for source in sources)


def _equal_examples(example: Example, other: Example) -> bool:
    if example.towers.keys() != other.towers.keys():
        return False
    return np.array_equal(example.blanks, other.blanks) and all(
        np.array_equal(slots.table, other.towers[name].table)
        for name, slots in example.towers.items()
    )
