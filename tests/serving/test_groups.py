"""Requests enter between the steps of searches, and leave when they are finished."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest

from unitk.decoding.search import Hypothesis
from unitk.errors import DataError
from unitk.serving.batching import SMALL, Batcher, Internal, Job, NoMemory


@dataclass
class Countdown:
    """A search whose items are numbers of steps; negative ones fail."""

    items: list[int]
    world: World
    rows: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.rows = list(range(len(self.items)))
        self.left = list(self.items)
        self.world.alive.append(self)

    def step(self, on_step=None):
        time.sleep(0.0005)  # long enough that what is asked meanwhile comes in
        self.world.log.append(tuple(self.items[row] for row in self.rows))
        held = sum(len(one.rows) * max(map(abs, one.items)) for one in self.world.alive)
        self.world.most = max(self.world.most, held)
        if any(self.items[row] < 0 for row in self.rows):
            raise self.world.error
        self.left = [one - 1 for one in self.left]
        found = [(row, []) for row in self.rows if self.left[row] <= 0]
        self.rows = [row for row in self.rows if self.left[row] > 0]
        if not self.rows:
            self.world.alive.remove(self)
        return found

    def drop(self, numbers):
        self.rows = [row for row in self.rows if row not in numbers]
        if not self.rows:
            self.world.alive.remove(self)

    def so_far(self, number) -> Hypothesis:
        raise NotImplementedError


@dataclass
class World:
    """What is computed, and how."""

    error: BaseException = field(default_factory=lambda: RuntimeError("bad"))
    log: list[tuple[int, ...]] = field(default_factory=list)
    alive: list[Countdown] = field(default_factory=list)
    most: int = 0

    def begin(self, items):
        return Countdown(list(items), self)

    def columns(self, items):
        return max(map(abs, items))

    def result(self, item, best):
        return f"done {item}"

    def follower(self, item):
        return None

    def job(self, key, *items):
        return Job(key, list(items), lambda items, gone: items, list, steps=self)


def run(main):
    async def started():
        batcher = Batcher(1000, 1000)
        task = asyncio.create_task(batcher.run())
        try:
            return await main(batcher)
        finally:
            task.cancel()

    return asyncio.run(started())


def test_a_short_request_does_not_wait_for_a_long_one(monkeypatch):
    world, order = World(), []
    # each step takes as long as any other, however busy the machine is
    clock = SimpleNamespace(monotonic=lambda: 0.0005 * len(world.log))
    monkeypatch.setattr("unitk.serving.batching.time", clock)
    monkeypatch.setattr("unitk.serving.groups.time", clock)

    async def main(batcher):
        async def one(name, job):
            await batcher.result(job, 60)
            order.append(name)

        long = asyncio.create_task(one("long", world.job("a", 900)))
        while len(world.log) < 10:
            await asyncio.sleep(0.001)
        await asyncio.gather(long, one("short", world.job("b", 5)), one("same", world.job("a", 7)))

    run(main)
    assert order == ["short", "same", "long"] or order == ["same", "short", "long"]
    begun = world.log.index((5,))
    assert world.log[begun : begun + 5].count((5,)) == 5  # what has had least comes next


def test_each_is_answered_when_its_own_items_are_finished():
    world, order = World(), []

    async def main(batcher):
        async def one(*items):
            assert await batcher.result(world.job("a", *items), 60) == [f"done {i}" for i in items]
            order.append(items)

        await asyncio.gather(one(30, 2), one(4), one(3, 3), one())

    run(main)
    assert order == [(), (3, 3), (4,), (30, 2)]


@pytest.mark.parametrize(
    "error, told",
    [(DataError("bad"), DataError), (RuntimeError("?"), Internal), (MemoryError(), NoMemory)],
)
def test_a_request_that_fails_in_a_step_fails_alone(error, told, caplog):
    world = World(error)

    async def main(batcher):
        jobs = [world.job("a", 3 if i != 4 else -3, 2) for i in range(9)]
        return await asyncio.gather(
            *(batcher.result(job, 60) for job in jobs), return_exceptions=True
        )

    found = run(main)
    assert isinstance(found.pop(4), told)
    assert found == [["done 3", "done 2"]] * 8


def test_what_nobody_waits_for_leaves():
    world = World()

    async def main(batcher):
        gone = asyncio.create_task(batcher.result(world.job("a", 10**6), 60))
        stays = asyncio.create_task(batcher.result(world.job("a", 400), 60))
        while len(world.log) < 3:
            await asyncio.sleep(0.001)
        gone.cancel()
        assert await stays == ["done 400"]
        while batcher.running:
            await asyncio.sleep(0.001)
        with pytest.raises(TimeoutError):
            await batcher.result(world.job("a", 10**6), 0.05)
        while batcher.running:
            await asyncio.sleep(0.001)

    run(main)
    assert world.log.count((10**6,)) < 10**4


@pytest.mark.slow
def test_all_searches_together_have_a_limit():
    """60 requests of many kinds hold at most a batch and two small groups, and none is lost."""
    world = World()
    sizes = [(37 * i) % 200 + 1 for i in range(60)]

    async def main(batcher):
        jobs = [world.job(i % 5, size) for i, size in enumerate(sizes)]
        return await asyncio.gather(*(batcher.result(job, 60) for job in jobs))

    assert run(main) == [[f"done {size}"] for size in sizes]
    assert world.most <= 1000 + 2 * (1000 // SMALL)


def test_short_requests_do_not_keep_a_long_one_out(monkeypatch):
    monkeypatch.setattr("unitk.serving.batching.TURN", 0.005)
    world = World()

    async def main(batcher):
        long = asyncio.create_task(batcher.result(world.job("a", 40), 60))

        async def shorts(name):
            while not long.done():
                await batcher.result(world.job(name, 2), 60)

        await asyncio.wait_for(asyncio.gather(long, *(shorts(f"b{i}") for i in range(8))), 30)

    run(main)
    assert sum(40 in one for one in world.log) == 40


def test_a_large_request_is_not_passed_for_ever():
    """While others keep most of a batch busy, one that needs all of it begins at last."""
    world = World()

    async def main(batcher):
        others = [asyncio.create_task(batcher.result(world.job("b", 300), 60)) for _ in range(2)]
        await asyncio.sleep(0.01)
        large = asyncio.create_task(batcher.result(world.job("a", 900), 60))

        async def again(name):
            while not large.done():
                await batcher.result(world.job(name, 300), 60)

        await asyncio.wait_for(asyncio.gather(large, *others, again("c"), again("d")), 30)

    run(main)
    assert sum(900 in one for one in world.log) == 900


def test_one_that_is_too_large_for_a_batch_is_computed():
    world = World()
    found = run(lambda batcher: batcher.result(world.job("a", 3000, 5), 60))
    assert found == ["done 3000", "done 5"]
