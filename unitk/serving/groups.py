"""Groups of requests that are computed together: at once, or by a search step by step."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from unitk.decoding.constraints.searches import report_step
from unitk.decoding.drivers import Running
from unitk.decoding.search import Hypothesis
from unitk.slots import Ids


class Stepwise(Protocol):
    """Computes items step by step."""

    def begin(self, items: Sequence[Any]) -> Running:
        """Begin a search over items."""

    def columns(self, items: Sequence[Any]) -> int:
        """The slots that each of these items needs in a batch of all of them."""

    def result(self, item: Any, best: list[Hypothesis]) -> Any:
        """The result for an item with its n best outputs."""

    def follower(self, item: Any) -> Callable[[Ids], bool | None] | None:
        """A callback for the words of an item so far; it returns whether the item needs no more."""


@dataclass(eq=False)
class JobPart:
    """An item of a job that waits or is being computed."""

    job: Any
    at: int
    """Its place among the items of its job."""
    item: Any
    size: int
    """The slots that it needs alone in a search; otherwise the tokens that it costs."""


class JobGroup:
    """Parts of jobs that are computed at once."""

    def __init__(self, parts: list[JobPart], spent: float) -> None:
        self.parts = parts
        self.key = parts[0].job.key
        self.left = set(range(len(parts)))
        """Numbers of the parts without a result."""
        self.spent = spent
        """Seconds of computing so far."""
        self.stepped = time.monotonic()
        """The time at which its last step ended."""

    @property
    def slots(self) -> int:
        """The slots that it occupies between its steps."""
        return 0

    def step(self) -> list[tuple[JobPart, Any]]:
        """Compute for a while; returns the parts that are finished, each with its result."""
        begun = time.monotonic()
        finished = self.advance()
        self.left.difference_update(finished)
        self.stepped = time.monotonic()
        self.spent += self.stepped - begun
        return [(self.parts[row], result) for row, result in finished.items()]

    def advance(self) -> dict[int, Any]:
        """Take a step; returns the results of the parts that are finished, by number."""
        items = [part.item for part in self.parts]
        # jobs with one key compute alike
        results = self.parts[0].job.act(items, lambda: all(part.job.gone for part in self.parts))
        assert len(results) == len(items), "a result for each item"
        return dict(enumerate(results))


class SearchGroup(JobGroup):
    """Parts of jobs that one search computes, which leave it when they are finished."""

    def __init__(self, parts: list[JobPart], spent: float) -> None:
        super().__init__(parts, spent)
        items = [part.item for part in parts]
        self.steps = parts[0].job.steps
        followers = enumerate(map(self.steps.follower, items))
        self.followers = {row: follower for row, follower in followers if follower is not None}
        self.columns = self.steps.columns(items)
        self.running = self.steps.begin(items)

    @property
    def slots(self) -> int:
        return self.columns * len(self.running.rows)

    def advance(self) -> dict[int, Any]:
        """Write a word of every hypothesis."""
        gone = [row for row in self.left if self.parts[row].job.gone]
        self.left.difference_update(gone)
        if gone:  # nobody waits for these any more
            self.running.drop(gone)
        if not self.left:
            return {}
        enough = list[int]()

        def follow(row: int, ids: Ids) -> None:
            if row in self.left and row in self.followers and self.followers[row](ids):
                enough.append(row)

        watched = not self.left.isdisjoint(self.followers)
        numbers = range(len(self.parts))
        results = dict(
            self.running.step(partial(report_step, follow, numbers) if watched else None)
        )
        # an item that needs no more words is finished before its search is
        if early := [row for row in enough if row not in results]:
            results |= {row: [self.running.partial_output(row)] for row in early}
            self.running.drop(early)
        awaited = self.left & results.keys()
        return {row: self.steps.result(self.parts[row].item, results[row]) for row in awaited}
