"""Batches of requests: those that wait together and have the same options are computed together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from unitk.errors import UnitkError

log = logging.getLogger(__name__)

PAUSE, PAUSES = 0.005, 20  # seconds of a pause; the most pauses before a group
MAX_ITEMS = 128  # texts that are computed together; the decoder divides them by --max-tokens


class Abandoned(Exception):
    """Raised when no client waits any more for what is being computed."""


class QueueFull(Exception):
    """Raised when the queue has no room for another request."""


@dataclass(eq=False)
class Job:
    """The items of one request, and the function that computes them with those of others."""

    key: Hashable
    """Jobs with equal keys may be computed together, by the `act` of the first one."""
    items: list[Any]
    act: Callable[[list[Any], Callable[[], bool]], list[Any]]
    """(items, whether nobody waits for them) -> a result for each item."""
    answer: Callable[[list[Any]], Any]
    """The results of its own items -> what is sent."""
    gone: bool = False  # whoever asked does not wait any more
    future: asyncio.Future[Any] = field(init=False)


class Batcher:
    """Computes jobs, one group at a time, in its own thread; `run` is a task of the event loop."""

    def __init__(self, max_queue: int) -> None:
        self.max_queue = max_queue
        self.waiting: list[Job] = []
        self.preparing = 0  # requests that are read and will wait soon
        self.groups = self.joined = 0  # computed so far, and jobs in them
        self.latest = 0  # jobs of the last group
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, "unitk-model")

    async def result(self, job: Job, timeout: float) -> Any:
        """What the items of a job come to; QueueFull, TimeoutError, or what it raised."""
        if len(self.waiting) >= self.max_queue:
            raise QueueFull
        job.future = asyncio.get_running_loop().create_future()
        self.waiting.append(job)
        self._wake.set()
        try:
            return job.answer(await asyncio.wait_for(job.future, timeout))
        finally:
            job.gone = True

    async def run(self) -> None:
        """Compute what waits, for ever."""
        loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()  # of this loop
        self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while await self._gathered() and (group := self._group()):
                self.latest = len(group)
                await loop.run_in_executor(self._thread, self._compute, loop, group)

    async def _gathered(self) -> int:
        """How many jobs wait; under load, after a pause for requests that are under way.

        Clients that were answered together ask again together. Without a pause, the first of them
        would be computed alone.
        """
        pauses = 0
        while self.waiting and self.latest > 1 and pauses < PAUSES:
            await asyncio.sleep(PAUSE)
            pauses = pauses + 1 if self.preparing else PAUSES
        return len(self.waiting)

    def _group(self) -> list[Job]:
        """The jobs to compute next: the first one that waits, and all others with the same key."""
        # what was given up while it waited costs no computation
        self.waiting = [job for job in self.waiting if not job.gone]
        group: list[Job] = []
        size = 0
        for job in self.waiting:
            if job.key != self.waiting[0].key:
                continue
            size += len(job.items)
            # the first one is taken whatever its size, so that nothing waits for ever
            if not group or size <= MAX_ITEMS:
                group.append(job)
        self.waiting = [job for job in self.waiting if job not in group]
        return group

    def _compute(self, loop: asyncio.AbstractEventLoop, group: list[Job]) -> None:
        items = [item for job in group for item in job.items]
        try:
            done = iter(group[0].act(items, lambda: all(job.gone for job in group)))
            results: list[Any] = [[next(done) for _ in job.items] for job in group]
        except Abandoned:
            return
        except UnitkError as error:
            if len(group) > 1:  # which of them is wrong is found by each alone
                for job in group:
                    self._compute(loop, [job])
                return
            results = [error]
        except Exception as error:  # whatever it is, the server lives on
            log.exception("a request failed")
            results = [error] * len(group)
        self.groups += 1
        self.joined += len(group)
        for job, result in zip(group, results, strict=True):
            # futures belong to the loop, which runs in another thread
            loop.call_soon_threadsafe(_settle, job.future, result)


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():  # given up
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
