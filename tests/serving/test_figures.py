"""Keys, figures, and a log of requests without their texts."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import shutil
from pathlib import Path

import pytest

import unitk
from unitk.errors import UnitkError

httpx = pytest.importorskip("httpx")
pytest.importorskip("starlette")

from unitk.serving.app import Server  # noqa: E402  (after what may be missing)
from unitk.serving.config import Limits  # noqa: E402
from unitk.serving.figures import Entry, Figures  # noqa: E402
from unitk.serving.keys import read_keys  # noqa: E402
from unitk.serving.requests import Service  # noqa: E402
from unitk.verbs.serve import access_log  # noqa: E402

SECRET = "a-key-of-this-test"


@pytest.fixture(scope="module")
def service():
    return Service("mini", {"lm": unitk.load("unitk-base-en", task="lm")}, Limits())


def exchange(server, *requests):
    """The responses to requests, one after the other: (address, what is posted, headers)."""

    async def main():
        app = server.app()
        transport, found = httpx.ASGITransport(app), []
        async with (
            server.lifespan(app),
            httpx.AsyncClient(transport=transport, base_url="http://x") as client,
        ):
            for path, body, headers in requests:
                post = client.get(path, headers=headers) if body is None else None
                found.append(await (post or client.post(path, json=body, headers=headers)))
        return found

    return asyncio.run(main())


def test_a_key_is_needed(service):
    body = {"texts": "a"}
    good = httpx.BasicAuth("anybody", SECRET)._auth_header
    wrong = httpx.BasicAuth("anybody", "other-key")._auth_header
    headers = [f"Bearer {SECRET}", f"bearer  {SECRET}", good]
    refused = ["", "Bearer", f"Bearer {SECRET}x", SECRET, "Bearer \xff", wrong, "Basic ?", "Basic"]
    given = [{"authorization": one.encode("latin-1")} for one in (*headers, *refused)]
    server = Server(service, keys=["another-key", SECRET])
    found = exchange(server, *(("/embed", body, one) for one in given))
    assert [one.status_code for one in found] == [200] * 3 + [401] * len(refused)
    assert found[-1].headers["www-authenticate"].startswith("Basic ")
    open_, page, figures, models = exchange(
        server, *((path, None, {}) for path in ("/health", "/", "/metrics", "/v1/models"))
    )
    assert [open_.status_code, page.status_code, figures.status_code] == [200, 401, 401]
    assert models.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(
    "text, said",
    [
        ("", "has no key"),
        ("# none\n\n", "has no key"),
        ("short\n", "line 1: a key is 8 or more"),
        ("good-enough\nwith a blank\n", "line 2"),
        ("ключ-ключ\n", "line 1"),
    ],
)
def test_a_file_of_keys_is_checked(tmp_path, text, said):
    path = tmp_path / "keys"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UnitkError, match=said) as caught:
        read_keys(path)
    assert "ключ" not in str(caught.value) and "blank\n" not in str(caught.value)
    path.write_text("# of alice\nalice-alice\n\n bob-bob-bob \n")
    assert read_keys(path) == ["alice-alice", "bob-bob-bob"]
    with pytest.raises(UnitkError, match="none: "):
        read_keys(tmp_path / "none")


def test_the_log_has_no_texts(service, tmp_path):
    path = tmp_path / "access.log"
    server = Server(service, write=access_log(path), keys=[SECRET])
    key = {"authorization": f"Bearer {SECRET}"}
    stream = {"texts": ["Sesame"], "sampling": True, "max_len": 3, "stream": True}
    found = exchange(
        server,
        ("/embed?Sesame", {"texts": ["Sesame", "Sesame"]}, key),
        ("/generate", stream, key),
        ("/Sesame", None, key),
        ("/embed", {"Sesame": 1}, {}),
    )
    text = path.read_text()
    assert "Sesame" not in text and SECRET not in text
    lines = [json.loads(line) for line in text.splitlines()]
    assert [one["status"] for one in lines] == [200, 200, 404, 401]
    assert [one["verb"] for one in lines] == ["embed", "generate", "", ""]
    assert [one["stream"] for one in lines] == [False, True, False, False]
    assert lines[1]["tokens_read"] > 0 and lines[1]["tokens_written"] > 0
    assert [one["id"] for one in lines] == [one.headers["x-request-id"] for one in found]
    assert lines[0]["bytes"] == len(found[0].content)
    with pytest.raises(UnitkError, match="--access-log"):
        access_log(tmp_path)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a disk that is full")
def test_a_log_that_cannot_be_written_is_a_warning(tmp_path, caplog, capsys):
    access_log(Path("/dev/full"))("{}")
    (folder := tmp_path / "logs").mkdir()
    write = access_log(folder / "access.log")
    shutil.rmtree(folder)
    write("{}")
    full, gone = caplog.messages
    assert os.strerror(errno.ENOSPC) in full and "access.log: " in gone
    assert "Traceback" not in capsys.readouterr().err
    folder.mkdir()
    write("{}")
    assert (folder / "access.log").read_text() == "{}\n"


def test_figures_add_up():
    figures = Figures()
    for seconds in (0.004, 0.01, 0.7, 99):
        figures.add(Entry(verb="embed", read=3, written=1), 200, seconds)
    text = "\n".join(figures.lines({"unitk_waiting": ("Requests that wait.", 2)}))
    assert 'unitk_request_seconds_bucket{verb="embed",le="0.01"} 2' in text
    assert 'unitk_request_seconds_bucket{verb="embed",le="1"} 3' in text
    assert 'unitk_request_seconds_bucket{verb="embed",le="60"} 3' in text
    assert 'unitk_request_seconds_bucket{verb="embed",le="+Inf"} 4' in text
    assert 'unitk_request_seconds_count{verb="embed"} 4' in text
    assert 'unitk_request_seconds_sum{verb="embed"} 99.714000' in text
    assert 'unitk_tokens_total{verb="embed",kind="read"} 12' in text
    assert text.splitlines()[-1] == "unitk_waiting 2"
    for line in text.splitlines():
        assert re.fullmatch(r'# (HELP|TYPE) \w+ .+|\w+(\{(\w+="[^"]*",?)+\})? [\d.]+', line), line
