"""Clients that say nothing or take nothing lose their connection; the others are answered."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import socket
import threading
import time

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("starlette")

from starlette.applications import Starlette  # noqa: E402  (after what may be missing)
from starlette.responses import PlainTextResponse, StreamingResponse  # noqa: E402
from starlette.routing import Route  # noqa: E402

from unitk.errors import UsageError  # noqa: E402
from unitk.serving import connections  # noqa: E402
from unitk.serving.config import Limits  # noqa: E402
from unitk.serving.connections import OnceAMinute, limit_connections, listener  # noqa: E402
from unitk.serving.hosts import Guard  # noqa: E402

READ = 0.4  # seconds that a client has
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
POST = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"


async def hello(request):
    return PlainTextResponse("hello")


async def echo(request):
    return PlainTextResponse(await request.body())


async def endless(request):
    async def parts():
        while True:
            yield b"x" * 65_536
            await asyncio.sleep(0)

    return StreamingResponse(parts())


async def later(request):
    await asyncio.sleep(0.5)
    return PlainTextResponse("at last")


ROUTES = [
    Route("/", hello),
    Route("/later", later),
    Route("/echo", echo, methods=["POST"]),
    Route("/endless", endless),
]


@pytest.fixture
def served(listening):
    """The port at which the three addresses are answered, within limits: a context."""
    app = Starlette(routes=ROUTES)

    def serve(**limits):
        return listening(app, Limits(**{"read_timeout": READ, "timeout": 0.2, **limits}))

    return serve


def connect(port, said=b""):
    one = socket.create_connection(("127.0.0.1", port), timeout=10)
    one.sendall(said)
    return one


def rest(one):
    """What a connection still says, until the server closes it."""
    found = b""
    try:
        while part := one.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


def answer(port, said=GET):
    """Status and body of an answer after which the client hangs up."""
    with connect(port, said.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1)) as one:
        head, _, body = rest(one).partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def trickle(one, text, ended):
    """Send a byte now and then."""
    for at in range(len(text)):
        try:
            one.sendall(text[at : at + 1])
        except OSError:
            return
        if ended.wait(READ / 8):
            return


@pytest.mark.every(3)
@pytest.mark.parametrize(
    "begin, slowly, status",
    [
        (b"", b"", None),
        (GET[:9], b"", 408),
        (b"", GET[:9] + b"X: " + b"x" * 200, 408),
        (POST, b"", 408),
        (POST.replace(b": 9", b": 900"), b"x" * 200, 408),
        (GET, b"", 200),  # and then nothing
        (GET, GET[:9] + b"X: " + b"x" * 200, 200),
    ],
)
def test_a_client_that_keeps_the_server_waiting_is_left(served, begin, slowly, status):
    ended, began = threading.Event(), time.monotonic()
    with served() as port, connect(port, begin) as one:
        feeding = threading.Thread(target=trickle, args=(one, slowly, ended))
        feeding.start()
        try:
            assert answer(port) == (200, b"hello")  # meanwhile
            found = rest(one)
            assert READ * 0.9 < time.monotonic() - began < 3 * READ + 1
            assert answer(port) == (200, b"hello")
        finally:
            ended.set()
            feeding.join(10)
    assert found.startswith(b"HTTP/1.1 %d" % status if status else b"") and bool(found) == (
        status is not None
    )


def test_a_client_that_takes_no_answer_is_left(served):
    with served() as port, connect(port, GET.replace(b"/ ", b"/endless ", 1)) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        began = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() < began + 8:
                one.sendall(b"x")  # which fails once the server has gone
                time.sleep(0.05)
        assert time.monotonic() - began < 4


@pytest.mark.parametrize("said", [b"", GET[:9], POST])
def test_beyond_the_limit_the_longest_waiting_connection_is_closed(served, said):
    with served(max_connections=6, read_timeout=60) as port:
        idle = []
        for _ in range(20):
            idle.append(connect(port, said))
            assert answer(port) == (200, b"hello")  # another client always gets in
        for one in idle[:12]:
            assert rest(one) == b""
        for one in idle[-4:]:
            one.setblocking(False)
            with pytest.raises(BlockingIOError):
                one.recv(1)
        for one in idle:
            one.close()


def test_the_server_ends_without_those_who_keep_it_waiting(served):
    with served(read_timeout=60, timeout=60) as port:
        slow = [connect(port, said) for said in (b"", GET[:9], POST, GET) for _ in range(3)]
        computed = connect(port, GET.replace(b"/ ", b"/later ", 1))
        assert answer(port) == (200, b"hello")  # all are read
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert rest(computed).endswith(b"at last")
    for one in slow:
        one.close()


def test_at_the_limit_who_waits_for_an_answer_stays(served):
    wait = GET.replace(b"/ ", b"/later ", 1)
    with served(max_connections=2, read_timeout=60) as port:
        with connect(port, wait) as first, connect(port, wait) as second:
            time.sleep(0.1)  # both are read
            with connect(port) as third:
                head, _, body = rest(third).partition(b"\r\n\r\n")
            assert head.split()[1] == b"503" and b"retry-after" in head
            assert "many connections" in json.loads(body)["error"]
            assert first.recv(12) == second.recv(12) == b"HTTP/1.1 200"


@pytest.mark.parametrize(
    "said, words",
    [
        (b"nonsense\r\n\r\n", "not HTTP"),
        (GET.replace(b"Host: localhost\r\n", b""), "not HTTP"),  # of HTTP/1.1
        (GET.replace(b"1.1\r\nHost: localhost", b"1.0"), "header Host"),
        (POST.replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), "not both"),
        (POST.replace(b"Length: 9", b"Length: -9"), "not HTTP"),
        (GET[:-2] + b"X: " + b"x" * 100_000, "not HTTP"),  # without end
    ],
)
def test_what_is_not_http_is_refused_and_closed(served, said, words, caplog):
    with served(read_timeout=60) as port, connect(port, said) as one:
        head, _, body = rest(one).partition(b"\r\n\r\n")
        assert head.split()[1] == b"400" and words in json.loads(body)["error"]
    assert not caplog.records


def test_a_mistake_after_the_answer_is_no_traceback(served, caplog):
    wrong = POST.replace(b"POST /echo", b"POST /nothing").replace(b"Content-Length: 9", b"X: y")
    wrong = wrong.replace(b"X: y", b"Transfer-Encoding: chunked")
    with served() as port, connect(port, wrong) as one:
        assert one.recv(12) == b"HTTP/1.1 404"
        one.sendall(b"no number\r\n")
        rest(one)
        assert answer(port) == (200, b"hello")
    assert not caplog.records


def test_a_message_that_is_counted_keeps_its_signs(caplog, monkeypatch):
    caplog.handler.addFilter(quiet := OnceAMinute())
    try:
        for _ in range(3):
            logging.getLogger("other").warning("%d %% of it", 5)
        monkeypatch.setattr(OnceAMinute, "SECONDS", 0.0)
        logging.getLogger("other").warning("%d %% of it", 5)
        shown = [one.getMessage() for one in caplog.records]
        assert shown == ["5 % of it", "5 % of it (and 2 more like it)"]
    finally:
        caplog.handler.removeFilter(quiet)


def test_too_few_descriptors_are_a_line_a_minute(caplog, monkeypatch):
    caplog.handler.addFilter(quiet := OnceAMinute())
    server = listener(None, Limits(max_connections=100))
    server.server_state.connections.update(range(90))

    def report():
        error = OSError(errno.EMFILE, "Too many open files")
        server.report(None, {"message": "socket.accept() out", "exception": error})

    try:
        report()
        assert server.places.maximum == 90 - 2 * connections.AT_ONCE  # the next one makes room
        for _ in range(999):
            report()
        assert server.places.maximum == 90 - 2 * connections.AT_ONCE
        assert [one.getMessage() for one in caplog.records] == [
            "socket.accept() out: Too many open files"
        ]
        assert caplog.records[0].exc_info is None
        logging.getLogger("other").warning("another")
        assert len(caplog.records) == 2
        monkeypatch.setattr(OnceAMinute, "SECONDS", 0.0)
        report()
        assert caplog.records[-1].getMessage().endswith("(and 999 more like it)")
    finally:
        caplog.handler.removeFilter(quiet)


@pytest.mark.parametrize(
    "soft, hard, found",
    [(1024, 1024, 512), (200, 1024, 512), (200, 200, 200 - connections.OTHERS), (100, 100, None)],
)
def test_connections_fit_the_limit_of_open_files(soft, hard, found, monkeypatch, caplog):
    import resource

    given = []
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda kind, both: given.append(both))
    if found is None:
        with pytest.raises(UsageError, match=f"ulimit -n is {hard}"):
            limit_connections(512)
        return
    assert limit_connections(512) == found
    assert all(low <= high == hard for low, high in given)
    assert len(caplog.records) == (found < 512)


def scope(headers, version="1.1", path="/generate"):
    pairs = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "http_version": version, "path": path, "headers": pairs}


HERE = {"Host": "localhost:8000"}


@pytest.mark.parametrize(
    "named, everywhere, headers, status",
    [
        ([], False, {"Host": "localhost:8000"}, None),
        ([], False, {"Host": "LOCALHOST"}, None),
        ([], False, {"Host": "localhost.:8000"}, None),
        ([], False, {"Host": "127.0.0.1:9"}, None),
        ([], False, {"Host": "[::1]:8000"}, None),
        ([], False, {}, 400),
        ([], False, {"Host": ""}, 400),
        ([], False, {"Host": "evil.com"}, 421),
        ([], False, {"Host": "evil.com:8000"}, 421),
        ([], False, {"Host": "localhost.evil.com"}, 421),
        ([], False, {"Host": "127.0.0.1.evil.com"}, 421),
        ([], False, {"Host": "evil@localhost"}, 421),
        ([], False, {"Host": "localhost:80:90"}, 421),
        ([], False, {"Host": "10.0.0.7"}, 421),
        ([], True, {"Host": "10.0.0.7:8000"}, None),  # no name is hidden in an address
        ([], True, {"Host": "[fe80::1]:8000"}, None),
        ([], True, {"Host": "evil.com"}, 421),
        (["Demo.example.org"], False, {"Host": "demo.example.org"}, None),
        (["*.example.org"], False, {"Host": "a.b.example.org"}, None),
        (["*.example.org"], False, {"Host": "example.org.evil.com"}, 421),
        (["*"], False, {"Host": "anything"}, None),
        (["[::7]"], False, {"Host": "[::7]"}, None),
        ([], False, HERE | {"Origin": "http://localhost:8000"}, None),
        ([], False, {"Host": "localhost", "Origin": "http://localhost:80"}, None),
        ([], False, {"Host": "localhost", "Origin": "https://localhost"}, None),  # a proxy
        ([], False, HERE | {"Origin": "http://localhost:3000"}, 403),
        ([], False, HERE | {"Origin": "http://127.0.0.1:8000"}, 403),
        ([], False, HERE | {"Origin": "http://evil.com"}, 403),
        ([], False, HERE | {"Origin": "null"}, 403),
        ([], False, HERE | {"Origin": "file://"}, 403),
        (["demo.org"], False, HERE | {"Origin": "https://demo.org"}, None),
        (["demo.org"], False, HERE | {"Origin": "https://demo.org.evil.com"}, 403),
        ([], False, HERE | {"Sec-Fetch-Site": "same-origin"}, None),
        ([], False, HERE | {"Sec-Fetch-Site": "none"}, None),
        ([], False, HERE | {"Sec-Fetch-Site": "cross-site"}, 403),
        ([], False, HERE | {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ([], False, HERE | {"Transfer-Encoding": "chunked"}, None),
        ([], False, HERE | {"Transfer-Encoding": "chunked", "Content-Length": "3"}, 400),
    ],
)
def test_other_hosts_and_origins_are_refused(named, everywhere, headers, status):
    found = Guard(None, named, everywhere).refusal(scope(headers))
    assert (found and found[0]) == status
    if status == 421:
        assert "--allow-host" in found[1] and repr(headers["Host"].lower()) in found[1]


def test_a_link_of_another_site_opens_the_page_only():
    headers = HERE | {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    guard = Guard(None, [])
    assert guard.refusal(scope(headers, path="/")) is None
    assert guard.refusal(scope(headers, path="/model"))[0] == 403
