"""Mixtures: the same texts, laid out by a task that is drawn for each example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from unitk.data.kinds import Source
from unitk.errors import UsageError, require
from unitk.options.config import Component
from unitk.slots import Example, Ids
from unitk.spans import places


def mixed(sources: dict[str, Source], tasks: dict[str, Component]) -> Source:
    """Join the sources of several tasks; each ask is called TASK.ASK.

    The examples of the coarsest cut are planned, and one uniform number for each picks its task. A
    task with another cut has its examples distributed among these, in order and per corpus. So an
    epoch shows each text once, whatever the shares; where cuts differ, each token once on average.
    """
    lead = min(sources.values(), key=lambda one: int(one.counts(0).sum()))
    others = {name: one for name, one in sources.items() if one.cut != lead.cut}
    for name, one in sources.items():
        alike = f"--task {name} reads texts from both ends, and the tasks beside it do not"
        require(not (others and one.cut[2]), f"{alike}: --task.{name}.both-ways off")

    def own(other: Source, epoch: int, ids: Ids) -> tuple[Ids, Ids]:
        """The examples [start, stop) of another cut that replace those of `lead`; at least one."""
        counts, theirs = lead.counts(epoch), other.counts(epoch)
        # example i of a corpus' n stands for [i m / n, (i + 1) m / n) of the m that it has there
        first, begin = (np.cumsum(each) - each for each in (counts, theirs))
        corpus = np.searchsorted(first + counts, ids, "right")
        i, n, m = ids - first[corpus], counts[corpus], theirs[corpus]
        start = begin[corpus] + i * m // n
        return start, np.maximum(begin[corpus] + (i + 1) * m // n, start + 1)

    def bounds(epoch: int) -> Ids:
        each = []
        for name, one in sources.items():
            bound = one.examples.bounds(epoch)
            if name in others:
                total, planned = np.append(0, bound.cumsum()), lead.examples.bounds(epoch)
                start, stop = own(one, epoch, np.arange(len(planned)))
                bound = total[stop] - total[start]  # of all examples that one stands for
            each.append(bound)
        return reduce(np.maximum, each)  # whichever task is picked, it fits the plan

    def group(other: Source) -> Callable[[int, Ids], Ids]:
        return lambda epoch, ids: places(np.stack(own(other, epoch, ids), axis=1))

    def shares(step: int, total: int | None) -> dict[str, float]:
        found = {name: float(task.share(step, total)) for name, task in tasks.items()}
        if min(found.values()) < 0 or not sum(found.values()):
            given = ", ".join(f"{name} {share:g}" for name, share in found.items())
            raise UsageError(f"--task: shares must be 0 or more, not all 0; step {step}: {given}")
        return {name: share / sum(found.values()) for name, share in found.items()}

    parts = {
        name: replace(
            one.examples,
            draw=_named(name, one.examples.draw),
            group=group(one) if name in others else None,
        )
        for name, one in sources.items()
    }
    asks = {f"{n}.{ask}": w for n, one in parts.items() for ask, w in one.asks.items()}
    examples = replace(lead.examples, bounds=bounds, parts=parts, shares=shares, asks=asks)
    return replace(lead, examples=examples)


def _named(name: str, draw: Callable[..., Example]) -> Callable[..., Example]:
    def renamed(*drawn: Any) -> Example:
        example = draw(*drawn)
        asks = [replace(ask, name=f"{name}.{ask.name}") for ask in example.asks]
        return replace(example, asks=asks)

    return renamed
