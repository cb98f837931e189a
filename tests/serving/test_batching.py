"""What fails, fails alone; what nobody waits for ends; all requests together have a limit."""

from __future__ import annotations

import asyncio
import json
import threading

import pytest

import unitk
from unitk.errors import DataError, UnitkError
from unitk.serving.batching import (
    MAX_COST,
    Abandoned,
    Batcher,
    Busy,
    Claim,
    Internal,
    Job,
    NoMemory,
    TokenBudget,
)
from unitk.serving.config import Limits
from unitk.serving.requests import Service

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")

from unitk.serving.app import Server  # noqa: E402  (after what may be missing)


class Panic(BaseException):
    """What a tokenizer that is written in Rust raises."""


def computed(jobs):
    """What becomes of jobs that wait together, and the batcher."""

    async def main():
        batcher = Batcher(99)
        waiting = asyncio.gather(*(batcher.result(j, 9) for j in jobs), return_exceptions=True)
        await asyncio.sleep(0)
        task = asyncio.create_task(batcher.run())
        found = await waiting
        task.cancel()
        return found, batcher

    return asyncio.run(main())


@pytest.mark.parametrize(
    "error, told",
    [
        (DataError("bad item"), DataError),
        (RuntimeError("shapes"), Internal),
        (IndexError("9"), Internal),
        (AssertionError(), Internal),
        (StopIteration(), Internal),
        (KeyboardInterrupt(), Internal),
        (Panic("a regex"), Internal),
        (MemoryError(), NoMemory),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), NoMemory),
        (RuntimeError("[Errno 12] Cannot allocate memory"), NoMemory),
    ],
)
@pytest.mark.parametrize("place", [0, 5, 12])
def test_a_request_that_fails_fails_alone(error, told, place, caplog):
    calls = []

    def act(items, gone):
        calls.append(len(items))
        if "bad" in items:
            raise error
        return [item.upper() for item in items]

    names = [f"a{i}" for i in range(13)]
    names[place] = "bad"
    found, _ = computed([Job("key", [name], act, lambda found: found[0]) for name in names])
    assert isinstance(found[place], told)
    assert found[:place] + found[place + 1 :] == [n.upper() for n in names if n != "bad"]
    assert len(calls) <= 9  # halves, not each by itself
    assert len(caplog.records) == (told is Internal)


def test_an_answer_that_cannot_be_made_fails_alone():
    def answer(found):
        return 1 / found[0]

    jobs = [Job("key", [number], lambda items, gone: items, answer) for number in (1, 0, 2)]
    one, none, half = computed(jobs)[0]
    assert (one, half) == (1, 0.5) and isinstance(none, Internal)


def test_a_group_is_limited_by_what_it_costs():
    sizes = []

    def act(items, gone):
        sizes.append(len(items))
        return items

    each = MAX_COST // 4
    computed([Job("key", [0], act, len, each) for _ in range(10)])
    assert sizes == [4, 4, 2]
    computed([Job("key", [0], act, len, 3 * MAX_COST)])
    assert sizes[3:] == [1]


def test_what_was_given_up_while_it_waited_is_not_computed():
    begun, go, seen = threading.Event(), threading.Event(), []

    def act(items, gone):
        seen.extend(items)
        begun.set()
        assert go.wait(9)
        return items

    async def main():
        batcher = Batcher(9)
        task = asyncio.create_task(batcher.run())
        first = asyncio.ensure_future(batcher.result(Job(1, ["first"], act, len), 9))
        await asyncio.to_thread(begun.wait, 9)
        with pytest.raises(TimeoutError):
            await batcher.result(Job(2, ["late"], act, len), 0.02)
        assert not batcher.waiting
        go.set()
        assert await first == 1
        task.cancel()

    asyncio.run(main())
    assert seen == ["first"]


def test_all_requests_together_fit_the_budget_and_one_alone_always_does():
    budget = TokenBudget(100)
    one, two, three = (Claim(budget) for _ in range(3))
    one.resize(1000)
    with pytest.raises(Busy):
        two.resize(1)
    one.resize(60)
    two.resize(40)
    two.resize(30)
    with pytest.raises(Busy):
        three.resize(11)
    three.resize(10)
    assert budget.taken == 100
    for claim in (one, two, three, three):
        claim.release()
    assert budget.taken == 0 and three.gone


@pytest.fixture(scope="module")
def models():
    mini = {name: unitk.load("unitk-base-en", task=name) for name in ("glm_infill", "lm")}
    return Service("mini", mini, Limits()), Service(
        "vae", {"optimus": unitk.load("unitk-vae-en")}, Limits()
    )


MANY = ["a dog ran ."] * 20
BODIES = {
    "generate": {"texts": MANY, "task": "lm", "max_len": 4},
    "infill": {"texts": ["a [MASK] ."] * 20},
    "score": {"texts": MANY, "targets": MANY, "task": "lm"},
    "embed": {"texts": MANY},
    "latent/encode": {"texts": MANY},
    "latent/decode": {"points": [[0.0] * 32] * 20, "max_len": 4},
    "latent/interpolate": {"texts": ["a dog .", "a cat ."], "steps": 9, "max_len": 4},
}


def job(models, verb, **how):
    service = models[verb.startswith("latent")]
    body = BODIES[verb]
    if verb == "latent/decode":
        size = len(Service.job(service, "latent/encode", {"texts": "a"}).act(["a"], bool)[0])
        body = body | {"points": [[0.0] * size] * 20}
    return service.job(verb, body, **how)


@pytest.mark.every(2)
@pytest.mark.parametrize("verb", BODIES)
def test_the_computation_of_every_verb_ends_when_nobody_waits(models, verb):
    made = job(models, verb)
    assert made.cost >= 20
    with pytest.raises(Abandoned):
        made.act(made.items, lambda: True)
    assert len(made.act(made.items, lambda: False)) == len(made.items)


@pytest.mark.parametrize("verb", ["generate", "infill", "score", "embed"])
def test_texts_are_read_only_while_the_client_waits(models, verb):
    asked = []

    def gone():
        asked.append(1)
        return len(asked) == 3

    with pytest.raises(Abandoned):
        job(models, verb, gone=gone)
    assert len(asked) == 3


@pytest.mark.slow
def test_predictions_end_when_nobody_waits(trained):
    model = unitk.load(trained("classify"))
    made = Service("x", {"classify": model}, Limits()).job("predict", {"texts": ["dada"] * 3})
    with pytest.raises(Abandoned):
        made.act(made.items, lambda: True)


def exchange(server, *requests):
    """The responses to requests at once: (address, body, further headers)."""

    async def main():
        app = server.app()
        transport = httpx.ASGITransport(app)
        async with (
            server.lifespan(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            each = (
                client.post(
                    path, content=body, headers={"content-type": "application/json"} | headers
                )
                for path, body, headers in requests
            )
            return await asyncio.gather(*each)

    return asyncio.run(main())


def test_a_full_server_refuses_with_the_status_503(models):
    mini = models[0].tasks
    body = json.dumps({"texts": ["a dog ran"] * 8, "task": "lm", "beam": 4, "max_len": 8})
    server = Server(Service("mini", mini, Limits(max_work=600)))
    found = exchange(server, *[("/generate", body, {})] * 9)
    statuses = [one.status_code for one in found]
    assert set(statuses) == {200, 503} and statuses.count(200) >= 1
    full = found[statuses.index(503)]
    assert "too much work" in full.json()["error"] and full.headers["retry-after"] == "1"
    assert server.budget.taken == 0
    # alone, it is answered whatever it costs
    [alone] = exchange(Server(Service("mini", mini, Limits(max_work=1))), ("/generate", body, {}))
    assert alone.status_code == 200


def test_a_body_that_is_announced_too_large_is_not_read(models):
    server = Server(models[0])
    [found] = exchange(server, ("/embed", b"{}", {"content-length": "99999999"}))
    assert found.status_code == 413


@pytest.mark.parametrize(
    "error, status, words",
    [
        (MemoryError(), 503, "too little memory"),
        (RuntimeError("can't allocate memory"), 503, "too little memory"),
        (IndexError("9"), 500, "internal error"),
        (Panic(), 500, "internal error"),
        (UnitkError("the model is odd"), 500, "the model is odd"),
    ],
)
@pytest.mark.parametrize("where", ["encode", "embed"])
def test_errors_have_a_status_and_a_line(models, monkeypatch, caplog, error, status, words, where):
    def fail(*given, **how):
        raise error

    if where == "encode":  # while it is read
        monkeypatch.setattr(models[0].tasks["glm_infill"], "encode", fail)
    else:
        monkeypatch.setattr("unitk.serving.routes.embed", fail)
    server = Server(models[0])
    [found] = exchange(server, ("/embed", b'{"texts": ["a"]}', {}))
    assert (found.status_code, words in found.json()["error"]) == (status, True)
    assert sum(one.exc_info is not None for one in caplog.records) == (words == "internal error")
    assert server.budget.taken == 0


def test_numbers_that_are_not_finite_are_an_error(models, monkeypatch):
    monkeypatch.setattr("unitk.serving.routes.list_numbers", lambda one: [float("nan")])
    [found] = exchange(Server(models[0]), ("/embed", b'{"texts": ["a"]}', {}))
    assert found.status_code == 500 and "not finite" in found.json()["error"]


def test_an_error_quotes_no_more_than_a_screen(models):
    body = json.dumps({"texts": ["a"], "beam": "x" * 100_000})
    [found] = exchange(Server(models[0]), ("/embed", body, {}))
    assert found.status_code == 400 and len(found.text) < 1200
