"""Batches of requests: those that wait together and have the same options are computed together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from unitk.errors import UnitkError, out_of_memory
from unitk.serving.streams import Stream

log = logging.getLogger(__name__)

PAUSE, PAUSES = 0.005, 20  # seconds of a pause; the most pauses before a group
MAX_COST = 65_536  # tokens that are computed together; the decoder divides them by --max-tokens


class Abandoned(Exception):
    """Raised when no client waits any more for what is being computed."""


class Busy(Exception):
    """Raised when there is no room for another request."""


class NoMemory(Exception):
    """Raised when a request alone needs more memory than there is."""


class Internal(Exception):
    """Raised for what nobody expected, which the log has in full."""


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
    cost: int = 0
    """Tokens that it reads and writes, those of every hypothesis counted."""
    stream: Stream | None = None
    """How the answer is sent while it is written; None: at once."""
    read: int = 0
    """Tokens of its texts."""
    written: int = 0
    """Tokens of its outputs, once it is computed."""
    gone: bool = False  # whoever asked does not wait any more
    future: asyncio.Future[Any] = field(init=False)


class Room:
    """The tokens that all requests together may have in the server."""

    def __init__(self, most: int) -> None:
        self.most, self.taken = most, 0


class Claim:
    """What one request has of the room, from its first byte to the last one of its answer."""

    def __init__(self, room: Room) -> None:
        self.room, self.size = room, 0
        self.gone = False  # nobody waits for the answer any more

    def resize(self, size: int) -> None:
        """Take `size` tokens instead; Busy if others leave no room. Alone, a request has any."""
        others = self.room.taken - self.size
        if others and size > self.size and others + size > self.room.most:
            raise Busy
        self.room.taken, self.size = others + size, size

    def release(self) -> None:
        """Give everything back."""
        self.resize(0)
        self.gone = True


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
        """The answer of a job; Busy, TimeoutError, or what it raised (see `failure`)."""
        if len(self.waiting) >= self.max_queue:
            raise Busy
        job.future = asyncio.get_running_loop().create_future()
        self.waiting.append(job)
        self._wake.set()
        try:
            return await asyncio.wait_for(job.future, timeout)
        finally:
            job.gone = True
            if job in self.waiting:
                self.waiting.remove(job)

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
        group: list[Job] = []
        cost = 0
        for job in self.waiting:
            if job.key != self.waiting[0].key:
                continue
            # the first one is taken whatever it costs, so that nothing waits for ever
            if not group or cost + job.cost <= MAX_COST:
                group.append(job)
                cost += job.cost
        self.waiting = [job for job in self.waiting if job not in group]
        return group

    def _compute(self, loop: asyncio.AbstractEventLoop, group: list[Job]) -> None:
        """Compute a group; if that fails, each half by itself, so that the others are answered."""
        items = [item for job in group for item in job.items]
        try:
            results = group[0].act(items, lambda: all(job.gone for job in group))
            assert len(results) == len(items), "a result for each item"
        except Abandoned:
            return
        except BaseException as error:  # whatever it is, the server lives on
            found = failure(error) if len(group) == 1 else None
        else:
            self.groups += 1
            self.joined += len(group)
            for job in group:
                own, results = results[: len(job.items)], results[len(job.items) :]
                try:
                    answer = job.answer(own)
                except BaseException as error:
                    answer = failure(error)
                # futures belong to the loop, which runs in another thread
                loop.call_soon_threadsafe(_settle, job.future, answer)
            return
        # outside the handler, so that nothing holds the memory of what failed
        if found is not None:
            loop.call_soon_threadsafe(_settle, group[0].future, found)
            return
        half = len(group) // 2
        for part in (group[:half], group[half:]):
            if not all(job.gone for job in part):
                self._compute(loop, part)


def failure(error: BaseException) -> Exception:
    """What a client is told of an error: a `UnitkError` as it is, NoMemory, or Internal, logged."""
    if isinstance(error, UnitkError):
        return error
    if out_of_memory(error):
        return NoMemory()
    log.error("a request failed", exc_info=error)
    return Internal()


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():  # given up
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)
