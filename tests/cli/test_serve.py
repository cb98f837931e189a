"""The command: ports, what is missing, the tasks of a checkpoint, a checkpoint that is replaced."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from unitk.errors import UsageError  # noqa: E402  (after what may be missing)
from unitk.options.config import parse  # noqa: E402
from unitk.verbs.serve import Options, open_service, read_card, run, watch_checkpoint  # noqa: E402


def test_a_port_in_use_is_named():
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=f"--port {port} at --host 127.0.0.1: .*in use"):
            run(["--port", str(port)])


@pytest.mark.parametrize(
    "words, said",
    [
        ("--port 70000", "port must be in 0 to 65535, got 70000"),
        ("--host 256.0.0.1.x", "host 256.0.0.1.x"),
    ],
)
def test_options_that_cannot_be_meant(words, said):
    with pytest.raises(UsageError, match=said):
        run(words.split())


def test_every_task_of_a_checkpoint_is_served_with_the_same_weights():
    service = open_service(Path("unitk-base-en"), Options(max_beam=3))
    assert list(service.tasks) == ["glm_infill", "lm"] and service.limits.max_beam == 3
    assert len({id(one.model) for one in service.tasks.values()}) == 1
    assert {type(one.task).__name__ for one in service.tasks.values()} == {"GLMInfill", "LM"}


def test_a_replaced_checkpoint_is_said_once(make_checkpoint, tmp_path, caplog):
    path = tmp_path / "model"
    shutil.copytree(make_checkpoint("lm", "gpt2_tiny"), path)
    replaced = watch_checkpoint(path)
    assert not replaced() and not caplog.records
    shutil.rmtree(path)
    assert replaced()
    shutil.copytree(make_checkpoint("lm", "gpt2_tiny", seed=1), path)
    assert replaced() and len(caplog.records) == 1


def test_weights_are_read_again_only_if_something_changed(make_checkpoint, monkeypatch):
    import unitk.verbs.serve as command

    path, found = make_checkpoint("lm", "gpt2_tiny"), []
    monkeypatch.setattr(command, "find_checkpoint", lambda path: found.append(path) or path)
    replaced = watch_checkpoint(path)
    assert not any(replaced() for _ in range(9)) and len(found) == 1
    os.utime(path / "manifest.json", ns=(1, 1))
    assert not any(replaced() for _ in range(9)) and len(found) == 2


@pytest.mark.parametrize("name", ["a b", "http://x", "x:80", "", "x/y", "[::1", "abc:80", "é"])
def test_hosts_that_cannot_be_meant(name):
    with pytest.raises(UsageError, match="allow-host must be.*port"):
        Options(allow_host=(name,))


@pytest.mark.parametrize("text", ["inf", "1e308", "0"])
@pytest.mark.parametrize("name", ["timeout", "read-timeout"])
def test_seconds_are_those_that_clocks_can_count(name, text):
    with pytest.raises(UsageError, match=f"{name}.*604800"):
        parse("serve", Options, [f"--{name}", text])


def test_a_card_in_another_encoding_is_shown_as_far_as_it_is_read(tmp_path):
    (tmp_path / "README.md").write_bytes(b"# m: a caf\xe9\n\nSmall.\n")
    assert read_card(tmp_path) == {"title": "a caf\N{REPLACEMENT CHARACTER}", "summary": "Small."}


def test_hosts_are_repeatable():
    words = "--allow-host a.org --allow-host *.b.org --allow-host ::1".split()
    assert parse("serve", Options, words).main.allow_host == ("a.org", "*.b.org", "::1")


@pytest.mark.slow
@pytest.mark.parametrize("host, said", [("127.0.0.1", False), ("0.0.0.0", True)])
def test_an_open_server_says_so(host, said):
    command = [sys.executable, "-m", "unitk_cli", "serve", "--port", "0", "--host", host]
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert server.stderr is not None
    address = server.stderr.readline().strip()
    port = int(address.rpartition(":")[2])
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=60) as answer:
        assert answer.status == 200
    server.send_signal(signal.SIGTERM)
    server.wait(60)
    lines = server.stderr.read().splitlines()
    assert [f"--host {host}: the server is open to the network" in one for one in lines] == [
        True
    ] * said


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_ends_it(number, code):
    command = [sys.executable, "-m", "unitk_cli", "serve", "--port", "0"]
    heeds = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heeds)
    assert server.stderr is not None
    address = server.stderr.readline().strip()
    with urllib.request.urlopen(f"{address}/health", timeout=60) as answer:
        assert answer.status == 200
    server.send_signal(number)
    assert server.wait(60) == code
    assert "Traceback" not in server.stderr.read()


@pytest.mark.slow
def test_a_second_interrupt_breaks_answers_off_without_a_traceback():
    command = [sys.executable, "-m", "unitk_cli", "serve", "--port", "0", "--max-output", "512"]
    heeds = partial(signal.signal, signal.SIGINT, signal.default_int_handler)
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, preexec_fn=heeds)
    assert server.stderr is not None
    address = server.stderr.readline().strip()
    asked = json.dumps({"texts": ["It was"], "max_len": 500, "min_len": 499, "beam": 8})
    request = urllib.request.Request(f"{address}/generate", asked.encode())
    request.add_header("content-type", "application/json")
    with ThreadPoolExecutor() as pool:
        answer = pool.submit(urllib.request.urlopen, request)
        time.sleep(3)
        assert not answer.done()
        for _ in range(2):
            server.send_signal(signal.SIGINT)
            time.sleep(0.5)
        assert server.wait(30) == 130
        assert isinstance(answer.exception(), OSError)  # 500, or the connection is closed
    assert "Traceback" not in server.stderr.read()
