"""A server among clients that are careless, gone or slow, and a checkpoint that is replaced."""

from __future__ import annotations

import json
import random
import shutil
import socket
import time
from pathlib import Path

import pytest

httpx = pytest.importorskip("httpx")
pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from unitk.pretrained import locate  # noqa: E402  (after what may be missing)
from unitk.serving.app import Server  # noqa: E402
from unitk.serving.route import routes  # noqa: E402

pytestmark = pytest.mark.slow
JSON = {"content-type": "application/json"}
GOOD = {"task": "lm", "texts": ["It was"], "beam": 2, "max_len": 3}
VALUES = [
    *(None, True, 0, -1, 3.5, 1e308, 10**30, float("nan"), "", "x", "1x", "auto", "none", "first"),
    *("\x00", "\ud800", "9" * 400, "9" * 400 + "x", [], {}, [[]], [[1]], [None], ["a", "b"]),
    *([["a", "b"], ["c"]], [""], ["\ud800"], {"a": 1}, [[0.0] * 64], [[1e300] * 64]),
]


def bodies(draws, count):
    """Noise, json that ends too soon, and objects whose fields have values of any kind."""
    whole = json.dumps(GOOD).encode()
    for number in range(count):
        verb = draws.choice(list(routes()))
        if number % 4 == 0:
            yield verb, draws.randbytes(draws.randrange(60))
        elif number % 4 == 1:
            yield verb, whole[: draws.randrange(len(whole) - 1)]
        else:
            names = ["task", *routes()[verb].takes, *routes()[verb].options()]
            body = {"texts": ["a"]} if "texts" in names else {}
            body |= {"max_len": 3, "beam": 2} if "beam" in names else {}
            some = draws.sample(names, min(3, len(names)))
            yield verb, json.dumps(body | {name: draws.choice(VALUES) for name in some}).encode()


def test_a_thousand_malformed_bodies_change_nothing(serving):
    with serving("unitk-base-en") as where, httpx.Client(base_url=where, timeout=60) as client:
        first, refused = client.post("/generate", json=GOOD).json(), 0
        for verb, body in bodies(random.Random(0), 1000):
            answer = client.post(f"/{verb}", content=body, headers=JSON)
            assert answer.status_code in (200, 400), (verb, body, answer.text)
            if answer.status_code == 400:
                assert answer.json()["error"], (verb, body)
                refused += 1
        assert refused > 900
        assert client.post("/generate", json=GOOD).json() == first


def test_clients_that_are_gone_or_slow_change_nothing(serving):
    long = GOOD | {"sampling": True, "max_len": 300, "min_len": 299, "stream": True, "beam": 1}
    with serving("unitk-base-en") as where, httpx.Client(base_url=where, timeout=60) as client:
        first, slow = client.post("/generate", json=GOOD).json(), []
        host, _, port = where.removeprefix("http://").partition(":")
        for number in range(16):
            body = json.dumps(long | {"seed": number}).encode()
            head = (
                "POST /generate HTTP/1.1\r\nHost: 127.0.0.1\r\ncontent-type: application/json\r\n"
            )
            one = socket.create_connection((host, int(port)))
            one.sendall(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
            if number % 2:
                one.close()  # before its answer
            else:
                slow.append(one)  # which reads nothing
        assert client.post("/generate", json=GOOD).json() == first
        for one in slow:
            one.close()
        begun = time.perf_counter()
        while client.get("/health").json()["waiting"]:
            assert time.perf_counter() - begun < 60, "what nobody waits for is given up"
            time.sleep(0.1)
        assert client.post("/generate", json=GOOD).json() == first


def test_a_checkpoint_that_is_replaced_goes_on_being_served(serving, tmp_path, caplog, monkeypatch):
    monkeypatch.setattr(Server, "WATCH", 0.05)
    path, (old, new) = (
        tmp_path / "model",
        map(locate, map(Path, ("unitk-base-en", "unitk-vae-en"))),
    )
    shutil.copytree(old, path)
    with serving(path) as where, httpx.Client(base_url=where, timeout=60) as client:
        first = client.post("/generate", json=GOOD).json()
        assert client.get("/health").json()["replaced"] is False
        shutil.rmtree(path)
        shutil.copytree(new, path)
        begun = time.perf_counter()
        while "was replaced" not in caplog.text:  # although nobody asks
            assert time.perf_counter() - begun < 30
            time.sleep(0.05)
        assert client.get("/health").json()["replaced"] is True
        assert client.post("/generate", json=GOOD).json() == first
        assert caplog.text.count("was replaced; the loaded one goes on serving") == 1
