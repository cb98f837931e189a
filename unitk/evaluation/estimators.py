"""Estimators of the likelihood of a text, and the kinds of values that they give.

exact    the log-probability of each token after those before it (`Task.likelihood`)
bound    an upper bound of the cost: over draws of what is hidden, or with a latent
pseudo   each token hidden alone: no probability of a text at all (Salazar et al. 2020)

A task names its estimator (`Task.estimator`), or its protocol decides. Costs are in nats.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from unitk.decoding.likelihood import Texts
from unitk.models.base import Decoder
from unitk.progress import Report, no_report
from unitk.slots import Doubles
from unitk.tasks.base import Task

Kind = Literal["exact", "bound", "pseudo"]


class Cost(NamedTuple):
    """The cost of a text in nats: that of each token, and the rest (of a latent, an end)."""

    tokens: Doubles
    rest: float = 0.0

    @property
    def total(self) -> float:
        """The cost of the text."""
        return float(self.tokens.sum()) + self.rest


@dataclass(frozen=True, kw_only=True)
class Estimation:
    """How the cost of texts is estimated."""

    max_tokens: int = 8192
    draws: int = 8
    whole_words: bool = False
    name: Callable[[int], str] = "text {}".format  # of a text by its number, for messages
    report: Report = no_report


class Estimator:
    """Estimates the cost of texts by models of a task."""

    kind: ClassVar[Kind] = "exact"
    contexts: ClassVar[bool] = True
    """Whether a text may come after another one."""
    draws: ClassVar[int] = 0
    """The default number of draws; 0: nothing is drawn."""

    def costs(self, model: Decoder, task: Task, texts: Texts, how: Estimation) -> list[Cost]:
        """The cost of each text after what is before it; `DataError` if one is too long."""
        raise NotImplementedError
