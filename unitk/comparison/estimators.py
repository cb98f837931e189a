"""The estimators of tasks that read texts by their protocol, hide tokens in turn, or draw."""

from __future__ import annotations

import math
from typing import ClassVar, Protocol, cast

import numpy as np

from unitk import registry
from unitk.decoding.fit import count_excess
from unitk.decoding.forced import score
from unitk.decoding.likelihood import TOGETHER, Texts, check_task, likelihoods
from unitk.errors import DataError
from unitk.evaluation.estimators import Cost, Estimation, Estimator, Kind
from unitk.models.base import Decoder
from unitk.registry import register
from unitk.slots import Example, Ids
from unitk.tasks.base import Task

SEED = 1202  # of draws: those of a text are those of its number, in every run


def estimator_of(task: Task, whole_words: bool = False) -> Estimator:
    """The estimator of a task; `UsageError` if it has none, or if `whole_words` has no effect."""
    # without a protocol, a task that fills blanks hides each token in turn
    name = task.estimator or ("pseudo" if task.protocol is None else "exact")
    if not task.estimator or whole_words:
        check_task(task, whole_words)
    estimator: type[Estimator] = registry.get("estimator", name, "--task")
    return estimator()


@register("estimator", "exact")
class Exact(Estimator):
    """The log-probability of each token after those before it."""

    def costs(self, model: Decoder, task: Task, texts: Texts, how: Estimation) -> list[Cost]:
        gains = likelihoods(
            model,
            task,
            texts,
            whole_words=how.whole_words,
            max_tokens=how.max_tokens,
            name=how.name,
            report=how.report,
        )
        # where nothing opens a text its first token is not predicted: any is as probable
        first = math.log(len(task.vocab))
        costs = zip(texts, gains, strict=True)
        return [
            Cost(np.append(np.full(len(text) - gain.shape[1], first), -gain[0].astype(np.float64)))
            for (_, text), gain in costs
        ]


@register("estimator", "pseudo")
class Pseudo(Exact):
    """The log-probability of each token given all others, each hidden in turn."""

    kind: ClassVar[Kind] = "pseudo"


class Bounded(Protocol):
    """A task with a bound."""

    def bound(self, before: Ids, text: Ids, rng: np.random.Generator) -> tuple[Example, Ids]:
        """A draw of the layout of a text, and the number of the token that each label is.

        The mean over draws of the weighted cost of the labels is a bound. Numbers beyond the text
        are those of symbols that come after it.
        """


@register("estimator", "drawn")
class Drawn(Estimator):
    """The mean over draws of what is hidden, or of an order of the tokens."""

    kind: ClassVar[Kind] = "bound"
    draws = 8

    def costs(self, model: Decoder, task: Task, texts: Texts, how: Estimation) -> list[Cost]:
        bounded = cast(Bounded, task)
        totals = list[Cost]()
        for first in range(0, len(texts), TOGETHER):
            windows = texts[first : first + TOGETHER]
            # one place more, for the symbols after a text
            costs = [np.zeros(len(text) + 1) for _, text in windows]
            for draw in range(how.draws):
                numbers, examples, places = list[int](), list[Example](), list[Ids]()
                for number, (before, text) in enumerate(windows):
                    if len(text):
                        rng = np.random.default_rng([SEED, first + number, draw])
                        example, place = bounded.bound(before, text, rng)
                        self.check(example, model, how.name(first + number))
                        numbers.append(number)
                        examples.append(example)
                        places.append(place)
                # a draw of all texts at once, so that texts of like length share a batch
                gains = score(model, examples, how.max_tokens, how.report)
                for number, example, place, (gain, _) in zip(
                    numbers, examples, places, gains, strict=True
                ):
                    [ask] = example.asks
                    costs[number][place] -= ask.weight * gain.astype(np.float64) / how.draws
            totals += [Cost(cost[:-1], float(cost[-1])) for cost in costs]
        return totals

    def check(self, example: Example, model: Decoder, name: str) -> None:
        """Raise `DataError` unless an example fits the positions of a model."""
        if (over := count_excess(example, model.config)) > 0:
            raise DataError(f"{name} is too long by {over:,} for this model's positions")
