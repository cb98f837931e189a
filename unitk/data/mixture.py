"""Mixtures: the same texts, laid out by a task that is drawn for each example."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import reduce

import numpy as np

from unitk.data.batching import Examples
from unitk.data.cuts import When
from unitk.data.laid import Laid
from unitk.errors import UsageError, require
from unitk.options.config import Component
from unitk.slots import Doubles, Example, Ids
from unitk.spans import places_in


class Part(Examples):
    """The examples of one task of a mixture; each ask is called TASK.ASK."""

    def __init__(self, name: str, own: Laid, lead: Laid) -> None:
        self.name = name
        self.own = own
        self.lead = lead
        self.copies = own.copies
        self.recut = own.cut != lead.cut
        self.asks = {f"{name}.{ask}": weight for ask, weight in own.asks.items()}

    def bounds(self, epoch: int) -> Ids:
        return self.own.bounds(epoch)

    def draw(self, epoch: int, index: int, rng: np.random.Generator, when: When) -> Example:
        example = self.own.draw(epoch, index, rng, when)
        # means of asks are logged by their names, which several tasks may share
        asks = [replace(ask, name=f"{self.name}.{ask.name}") for ask in example.asks]
        return replace(example, asks=asks)

    def group(self, epoch: int, ids: Ids) -> Ids:
        return places_in(np.stack(self._examples_for(epoch, ids), axis=1))

    def plan_slots(self, epoch: int) -> Ids:
        """The most slots that this task may need for each example of `lead`, which are planned."""
        bound = self.own.bounds(epoch)
        if self.recut:
            total = np.append(0, bound.cumsum())
            planned = self.lead.bounds(epoch)
            start, stop = self._examples_for(epoch, np.arange(len(planned)))
            bound = total[stop] - total[start]  # of all examples that one stands for
        return bound

    def _examples_for(self, epoch: int, ids: Ids) -> tuple[Ids, Ids]:
        """The examples [start, stop) of this task that replace each of `lead`; at least one."""
        counts, own_counts = self.lead.counts(epoch), self.own.counts(epoch)
        # example i of a corpus' n stands for [i m / n, (i + 1) m / n) of the m that it has there
        first, begin = (np.cumsum(numbers) - numbers for numbers in (counts, own_counts))
        corpus = np.searchsorted(first + counts, ids, "right")
        i = ids - first[corpus]
        n = counts[corpus]
        m = own_counts[corpus]
        start = begin[corpus] + i * m // n
        return start, np.maximum(begin[corpus] + (i + 1) * m // n, start + 1)


class Mixed(Examples):
    """The examples of several tasks, one of which lays out each.

    The plan of an epoch has the examples of the coarsest cut, `lead`, and one uniform number for
    each picks its task. The examples of a task with another cut are distributed among them, in the
    order of each corpus. So an epoch shows each text once, whatever the shares are; if cuts differ,
    it shows each token once on average.
    """

    parts: dict[str, Part]

    def __init__(self, laid: Mapping[str, Laid], tasks: Mapping[str, Component]) -> None:
        self.tasks = tasks
        self.lead = lead = min(laid.values(), key=lambda of_task: int(of_task.counts(0).sum()))
        parts = [Part(name, examples, lead) for name, examples in laid.items()]
        several = any(part.recut for part in parts)
        for name, examples in laid.items():
            require(
                not (several and examples.task.both_ways),
                f"--task {name} reads texts from both ends, and the tasks beside it do not: "
                f"--task.{name}.both-ways off",
            )
        self.about = lead.about
        self.shortened = lead.shortened
        self.max_lengths = lead.max_lengths
        self.items = lead.items
        self.parts = {part.name: part for part in parts}
        self.copies = lead.copies
        self.asks = {ask: weight for part in parts for ask, weight in part.asks.items()}

    def bounds(self, epoch: int) -> Ids:
        # the plan must have room for whichever task is picked
        return reduce(np.maximum, [part.plan_slots(epoch) for part in self.parts.values()])

    def draw(self, epoch: int, index: int, rng: np.random.Generator, when: When) -> Example:
        return self.lead.draw(epoch, index, rng, when)

    def weights(self, epoch: int) -> float | Doubles:
        return self.lead.weights(epoch)

    def shares(self, step: int, total: int | None) -> dict[str, float]:
        shares = {name: float(task.share(step, total)) for name, task in self.tasks.items()}
        if min(shares.values()) < 0 or not 0 < sum(shares.values()) < math.inf:
            given = ", ".join(f"{name} {share:g}" for name, share in shares.items())
            raise UsageError(
                f"--task: shares must be finite, 0 or more and not all 0; step {step}: {given}"
            )
        return {name: share / sum(shares.values()) for name, share in shares.items()}
