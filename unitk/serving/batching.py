"""Batches of requests: those that wait together and have the same options are computed together.

A search is computed step by step. New requests enter between its steps as a further group, and each
is answered when its own rows are finished. The group with the least computing time is next, so that
short requests do not wait for long ones.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, ClassVar

from unitk.errors import NonFiniteError, UnitkError, out_of_memory
from unitk.serving.groups import JobGroup, JobPart, SearchGroup, Stepwise

log = logging.getLogger(__name__)

PAUSE, PAUSES = 0.005, 20  # seconds of a pause; the most pauses before a group
MAX_COST = 65_536  # tokens that are computed together; the decoder divides them by --max-tokens
TURN = 0.2  # seconds after which a group has its turn, whatever the others had
PATIENCE = 16  # steps of a larger group after which a request like it enters beside it
SMALL = 8  # a group of this part of a batch or less is admitted beside a full batch, twice
MOST_PARTS = 512  # items that are looked at for a group
OVERDUE = 128  # steps after which others do not take the slots that a request waits for


class Abandoned(Exception):
    """Raised within a computation whose clients are all gone."""


class Busy(Exception):
    """Raised when the requests under way leave too few tokens for another one."""


class NoMemory(Exception):
    """Raised when a request alone needs more memory than there is."""


class Internal(Exception):
    """Raised for an unexpected error; the log has its traceback."""


class Stream:
    """How an answer is sent while it is written; a route may have a form of its own.

    A line of json for the text so far, as often as it grows; the last one is the answer.
    """

    media_type: ClassVar[str] = "application/x-ndjson"

    def text(self, event: Any) -> bytes:
        """The message for a text that has grown; `event` is what the route knows of it."""
        return json_line({"text": event})

    def answer(self, value: Any) -> bytes:
        """The message with the whole answer at the end."""
        return json_line(value)

    def error(self, status: int, message: str) -> bytes:
        """The message in place of the rest if something fails."""
        return json_line({"error": message})


def json_line(value: Any) -> bytes:
    """A line of json; NonFiniteError if a number has none."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise NonFiniteError("the model gives numbers that are not finite") from error
    return text.encode() + b"\n"


@dataclass(eq=False)
class Job:
    """The items of one request, and the function that computes them with those of others."""

    key: Hashable
    """Jobs with equal keys may be computed together, by the `act` of the first one."""
    items: list[Any]
    act: Callable[[list[Any], Callable[[], bool]], list[Any]]
    """(items, a function that tells whether all clients are gone) -> a result for each item."""
    answer: Callable[[list[Any]], Any]
    """The results of its own items -> the answer that is sent."""
    cost: int = 0
    """Tokens that it reads and writes, those of every hypothesis counted."""
    steps: Stepwise | None = None
    """How its items are computed step by step; None: `act` computes them at once."""
    stream: Stream | None = None
    """How the answer is sent while it is written; None: at once."""
    read: int = 0
    """Tokens of its texts."""
    written: int = 0
    """Tokens of its outputs, once it is computed."""
    gone: bool = False  # the client does not wait any more
    future: asyncio.Future[Any] = field(init=False)
    since: float = field(init=False, default=0.0)  # when it began to wait
    parts: list[JobPart] = field(init=False, default_factory=list)
    """Its items that have not begun."""
    seen: int = field(init=False, default=-1)  # the step at which it was first considered
    results: list[Any] = field(init=False, default_factory=list)
    left: int = field(init=False, default=0)
    """Items without a result."""

    def enter(self) -> None:
        """Begin to wait, in the event loop."""
        self.future = asyncio.get_running_loop().create_future()
        self.since = time.monotonic()
        self.left = len(self.items)
        self.results = [None] * len(self.items)
        for at, item in enumerate(self.items):
            size = self.steps.columns([item]) if self.steps else self.cost // self.left
            self.parts.append(JobPart(self, at, item, size))
        if not self.items:
            self.finish()

    def put(self, at: int, result: Any) -> None:
        """Store the result of an item; the last one completes the job."""
        self.results[at] = result
        self.left -= 1
        if not self.left:
            self.finish()

    def finish(self) -> None:
        """Answer with all results."""
        try:
            self.settle(self.answer(self.results))
        except BaseException as error:  # whatever it is, the server lives on
            self.settle(failure(error))

    def settle(self, answer: Any) -> None:
        """Set the answer from any thread; the future belongs to the event loop."""
        self.future.get_loop().call_soon_threadsafe(_set_result, self.future, answer)


class TokenBudget:
    """The tokens that all requests together may occupy in the server."""

    def __init__(self, max_tokens: int) -> None:
        self.max_tokens = max_tokens
        self.taken = 0


class Claim:
    """The part of the budget that a request occupies until its answer is sent."""

    def __init__(self, budget: TokenBudget) -> None:
        self.budget = budget
        self.size = 0
        self.gone = False  # nobody waits for the answer any more

    def resize(self, size: int) -> None:
        """Take `size` tokens instead; Busy if others leave too few. Alone, a request has any."""
        others = self.budget.taken - self.size
        if others and size > self.size and others + size > self.budget.max_tokens:
            raise Busy
        self.budget.taken = others + size
        self.size = size

    def release(self) -> None:
        """Give everything back."""
        self.resize(0)
        self.gone = True


class Batcher:
    """Computes jobs in its own thread; `run` is a task of the event loop.

    `max_slots` are those of a batch of a search.
    """

    def __init__(self, max_queue: int, max_slots: int = 8192) -> None:
        self.max_queue = max_queue
        self.max_slots = max_slots
        self.waiting: list[Job] = []
        self.preparing = 0  # requests that are read and will wait soon
        self.groups = self.joined = 0  # computed so far, and jobs in them
        self.latest = 0  # jobs of the last group
        self.running: list[JobGroup] = []
        self.steps = 0  # of all groups
        self._again: deque[list[JobPart]] = deque()  # parts of a group that failed
        self._wake = asyncio.Event()
        self._lock = threading.Lock()  # of what waits: two threads change it
        self._thread = ThreadPoolExecutor(1, "unitk-model")

    @property
    def rows(self) -> int:
        """Items that have begun and have no result."""
        return sum(len(group.left) for group in self.running)

    async def result(self, job: Job, timeout: float) -> Any:
        """The answer of a job; Busy, TimeoutError, or what it raised (see `failure`)."""
        if len(self.waiting) >= self.max_queue:
            raise Busy
        job.enter()
        if job.parts:  # otherwise it is answered
            with self._lock:
                self.waiting.append(job)
        self._wake.set()
        try:
            return await asyncio.wait_for(job.future, timeout)
        finally:
            job.gone = True
            with self._lock:
                if job in self.waiting:
                    self.waiting.remove(job)

    async def run(self) -> None:
        """Compute waiting jobs forever."""
        loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()  # of this loop
        self._wake.set()
        while True:
            await self._wake.wait()
            self._wake.clear()
            while await self._gather():
                await loop.run_in_executor(self._thread, self._work)

    async def _gather(self) -> int:
        """Wait for requests that are under way, if there is load; returns how many jobs wait.

        Clients that were answered together ask again together. Without a pause, the first of them
        would be computed alone.
        """
        pauses = 0
        while self.waiting and self.latest > 1 and pauses < PAUSES:
            await asyncio.sleep(PAUSE)
            pauses = pauses + 1 if self.preparing else PAUSES
        return len(self.waiting)

    def _work(self) -> None:
        """Compute all groups and waiting jobs, a step of one group at a time."""
        while True:
            now = time.monotonic()
            late = min(self.running, key=lambda group: group.stepped, default=None)
            if late is not None and now > late.stepped + TURN:
                self._step(late)
            elif parts := self._enter(now):
                self._begin(parts)
            elif self.running:
                self._step(min(self.running, key=lambda group: group.spent))
            elif not self.waiting and not self._again:
                return

    def _enter(self, now: float) -> list[JobPart]:
        """The parts of jobs that begin as a group, if there are free slots."""
        if self._again:
            return [part for part in self._again.popleft() if not part.job.gone]
        with self._lock:
            jobs = list(self.waiting)
        by_key = dict[Hashable, list[Job]]()
        overdue = False
        for job in jobs:
            by_key.setdefault(job.key, []).append(job)
        for jobs_of_key in by_key.values():
            first = jobs_of_key[0]
            if first.seen < 0:
                first.seen = self.steps
            parts = [part for job in jobs_of_key for part in job.parts][:MOST_PARTS]
            if not self._should_begin(parts, now):
                continue
            if some := self._choose(parts, overdue):
                self._leave(some)
                return some
            overdue = overdue or self.steps > first.seen + OVERDUE
        return []

    def _choose(self, parts: list[JobPart], overdue: bool) -> list[JobPart]:
        """The first of parts, and those of the others that are computed well with it.

        The parts of a search fit into a batch together, with those of all searches that run. Small
        groups have a few slots of their own, and no more if another request is `overdue`.
        """
        if parts[0].job.steps is None:
            total = accumulate(part.size for part in parts)
            # the first one is taken whatever it costs, so that nothing waits for ever
            affordable = [part for part, cost in zip(parts, total, strict=True) if cost <= MAX_COST]
            return affordable or parts[:1]
        small = self.max_slots // SMALL
        wide = parts[0].size
        # small groups have slots of their own, so that large ones do not keep them out
        occupied = [group.slots for group in self.running]
        little = sum(slots for slots in occupied if slots <= small)
        large = sum(occupied) - little
        free = self.max_slots - large - max(0, little - 2 * small)
        if overdue or (wide > free and large):
            free = small if little <= small else 0
            if wide > free:
                return []
        chosen = parts[:1]
        # those of a similar size first: all rows are as wide as the widest one
        for part in sorted(parts[1:], key=lambda part: abs(part.size - parts[0].size)):
            wide = max(wide, part.size)
            if wide * (len(chosen) + 1) > free:
                break
            chosen.append(part)
        return chosen

    def _should_begin(self, parts: list[JobPart], now: float) -> bool:
        """Whether a group should begin beside others of its key: small groups cost more per row."""
        first = parts[0].job
        remaining = [len(group.left) for group in self.running if group.key == first.key]
        if not remaining or self.steps >= first.seen + PATIENCE * len(remaining):
            return True
        # clients that were answered in one step ask again together
        waited = now - first.since
        gathered = waited > PAUSE * PAUSES or (waited > PAUSE and not self.preparing)
        return gathered and len(parts) >= sum(remaining)

    def _leave(self, parts: list[JobPart]) -> None:
        """Remove parts from those that wait."""
        chosen = set(parts)
        with self._lock:
            for job in {part.job for part in parts}:
                self.joined += len(job.parts) == len(job.items)
                job.parts = [part for part in job.parts if part not in chosen]
            self.waiting = [job for job in self.waiting if job.parts]

    def _begin(self, parts: list[JobPart]) -> None:
        """Begin a group, whose time so far counts as the least of the groups with its key."""
        job = parts[0].job
        spent = min((group.spent for group in self.running if group.key == job.key), default=0.0)
        self.groups += 1
        self.latest = len({part.job for part in parts})
        try:
            group = (JobGroup if job.steps is None else SearchGroup)(parts, spent)
        except BaseException as error:  # whatever it is, the server lives on
            self._fail(parts, error)
        else:
            self.running.append(group)
            self._step(group)

    def _step(self, group: JobGroup) -> None:
        """Compute a step of a group, and answer the jobs whose last parts finish."""
        self.steps += 1
        try:
            finished = group.step()
        except BaseException as error:
            self.running.remove(group)
            self._fail([group.parts[row] for row in sorted(group.left)], error)
            return
        for part, result in finished:
            part.job.put(part.at, result)
        if not group.left:
            self.running.remove(group)

    def _fail(self, parts: list[JobPart], error: BaseException) -> None:
        """Let the halves of a group that failed begin anew, so that only one job gets the error."""
        jobs = list({part.job: None for part in parts if not part.job.gone})
        if len(jobs) == 1:
            jobs[0].gone = True  # its other parts, too
            jobs[0].settle(failure(error))
        elif jobs:
            for some in (jobs[: len(jobs) // 2], jobs[len(jobs) // 2 :]):
                self._again.append([part for part in parts if part.job in some])


def failure(error: BaseException) -> Exception:
    """The error that a client gets: a `UnitkError` as it is, NoMemory, or Internal (logged)."""
    if isinstance(error, UnitkError):
        return error
    if out_of_memory(error):
        return NoMemory()
    log.error("a request failed", exc_info=error)
    return Internal()


def _set_result(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():  # else it was given up
        (future.set_exception if isinstance(result, Exception) else future.set_result)(result)
