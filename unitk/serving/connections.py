"""Connections of the server: how many there are, and how long a client may keep it waiting."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import math
import signal
import socket
import sys
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from unitk.errors import UsageError
from unitk.serving.config import Limits

log = logging.getLogger(__name__)

AT_ONCE, BACKLOG = 16, 1024
"""Connections that are accepted in one turn of the event loop, and those that may wait for it."""
OTHERS = 64 + 4 * AT_ONCE
"""Files that the process opens beside connections within the limit. A connection beyond it is
closed up to four turns after it was accepted."""
FEWEST = 8
"""Connections without which there is no server."""
HEAD, BODY = "the head of a request", "the body of a request"
ANSWER, END = "that an answer is taken", "that the connection ends"
"""The things for which the server may wait."""


@dataclass
class ConnectionLimit:
    """How many connections there may be: fewer, once the process ran out of descriptors."""

    maximum: int


class Connection(H11Protocol):
    """A connection to a client, which has a limited time for whatever the server waits for.

    The client has `read_timeout` seconds for the head of a request, from the first moment or the
    end of the answer before, and again for the body. From the first byte of an answer that it does
    not take, it also has the time in which the server would have computed it.
    """

    def __init__(self, limits: Limits, places: ConnectionLimit, **options: Any) -> None:
        super().__init__(**options)
        self.limits = limits
        self.places = places
        self.expected: tuple[object, str] | None = None
        """What the client has to do, after which request; None while the client waits."""
        self.since = 0.0  # when that began
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._expect()
        while len(self.connections) > self.places.maximum and self._make_room() is not self:
            pass

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._expect()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._expect()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect()  # for the whole answer: taking a part of it does not prolong the time

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP, unless an answer has begun."""
        begun = self.cycle is not None and self.cycle.response_started
        if not begun or self.cycle.response_complete:
            what = "the request is not HTTP/1.1, or its head is too long"
            self.transport.write(response(400, what))
        self.transport.close()

    def shutdown(self) -> None:
        """End, after the answer that is computed; a body that is still sent is given up."""
        if self.expected is not None and self.expected[1] == BODY:
            self.transport.abort()
        else:
            super().shutdown()

    def _expect(self) -> None:
        """Start the clock of what the client has to do next, unless it runs already."""
        expected = None
        if self.transport.is_closing():
            expected = self.cycle, END
        elif self.flow.write_paused:
            expected = self.cycle, ANSWER
        elif self.conn.their_state is h11.IDLE:
            expected = self.cycle, HEAD
        elif self.conn.their_state is h11.SEND_BODY:
            expected = self.cycle, BODY
        if expected == self.expected:
            return
        self.expected = expected
        self.since = self.loop.time()
        if self._timer is not None:
            self._timer.cancel()
        seconds = self.limits.read_timeout
        if expected is not None:
            seconds += self.limits.timeout * (expected[1] == ANSWER)
            self._timer = self.loop.call_later(seconds, self._expire)

    def _expire(self) -> None:
        """Close the connection: the client did not do in time what is expected."""
        assert self.expected is not None
        what = self.expected[1]
        if self.transport.is_closing() or self.transport.get_write_buffer_size():
            self.transport.abort()  # closing would wait until the client takes the rest
            return
        if what == HEAD:
            begun = bool(self.conn.trailing_data[0])  # an idle connection is closed without a word
        else:
            begun = not self.cycle.response_started
        if begun:
            seconds = f"{self.limits.read_timeout:g} seconds"
            self.transport.write(response(408, f"{what} took more than {seconds}"))
        self.transport.close()
        self._expect()

    def _make_room(self) -> Connection:
        """Close the connection that has kept the server waiting longest.

        Of several addresses, it is one of that which has the most connections. If no connection
        keeps the server waiting, this one is refused.
        """
        others: set[Any] = self.connections
        idle = [peer for peer in others if peer.expected is not None and peer is not self]
        host = {peer: peer.client and peer.client[0] for peer in others}
        crowd = Counter(host.values())
        worst = max(idle, key=lambda peer: (crowd[host[peer]], -peer.since), default=self)
        if worst is self:
            self.transport.write(response(503, "too many connections; try again later"))
            self.transport.close()
        else:
            others.discard(worst)
            worst.transport.abort()
        return worst


def response(status: int, message: str) -> bytes:
    """A whole answer of HTTP with an error, after which the connection is closed."""
    body = json.dumps({"error": message}).encode()
    head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", "content-type: application/json"]
    head += [f"content-length: {len(body)}", "connection: close"]
    head += ["retry-after: 1"] if status == 503 else []
    return "\r\n".join([*head, "", ""]).encode() + body


class Listener(uvicorn.Server):
    """A server that accepts a few connections at a time, while many may wait for that."""

    def __init__(self, config: uvicorn.Config, places: ConnectionLimit) -> None:
        super().__init__(config)
        self.places = places

    def report(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log what went wrong in the event loop; too few descriptors have no traceback."""
        error = context.get("exception")
        message = context["message"]
        if not isinstance(error, OSError):
            log.error(message, exc_info=error)
            return
        log.error("%s: %s", message, error.strerror)
        if error.errno in (errno.EMFILE, errno.ENFILE):
            # something else opened files: the next connections displace others before that
            fewer = len(self.server_state.connections) - 2 * AT_ONCE
            self.places.maximum = max(FEWEST, min(self.places.maximum, fewer))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        asyncio.get_running_loop().set_exception_handler(self.report)
        await super().startup(sockets)
        for listening in sockets or []:
            listening.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await super().shutdown(sockets)
        if self.force_exit:  # a second Ctrl-C: answers are cancelled, which is no fault to log
            logging.getLogger("uvicorn.error").disabled = True


def listener(app: Any, limits: Limits) -> Listener:
    """A server of an application within the limits, for a socket that is given to its `run`."""
    places = ConnectionLimit(limits.max_connections)
    ends = [number for number in signal.Signals if number.name in ("SIGINT", "SIGTERM", "SIGHUP")]
    heeded = tuple(number for number in ends if signal.getsignal(number) != signal.SIG_IGN)  # nohup
    uvicorn.server.HANDLED_SIGNALS = heeded  # type: ignore[assignment]
    config = uvicorn.Config(
        app,
        http=partial(Connection, limits, places),  # type: ignore[arg-type]
        loop="asyncio",
        ws="none",
        log_config=None,
        log_level="error",  # a client that sends no HTTP is told so; the log is not
        access_log=False,
        server_header=False,
        proxy_headers=False,
        backlog=AT_ONCE,
        timeout_keep_alive=math.ceil(limits.read_timeout) + 1,
        timeout_graceful_shutdown=math.ceil(limits.timeout),
    )
    return Listener(config, places)


def limit_connections(requested: int) -> int:
    """The connections that the limit of open files allows, which is raised if that is possible."""
    if sys.platform == "win32":
        return requested
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = requested + OTHERS
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        needed = soft
    available = needed - OTHERS
    if available < FEWEST:
        least = FEWEST + OTHERS
        raise UsageError(f"the server needs {least} open files or more (ulimit -n is {soft})")
    if available < requested:
        log.warning("--max-connections is %d, not %d: ulimit -n is %d", available, requested, soft)
    return available


class OnceAMinute(logging.Filter):
    """Drops a record whose message was logged within a minute; the next one tells how many."""

    SECONDS, KNOWN = 60.0, 1000

    def __init__(self) -> None:
        super().__init__()
        self._seen: dict[object, tuple[float, int]] = {}  # when it was logged, how many since

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is logged."""
        kind = record.exc_info[0] if record.exc_info else None
        key = (record.name, record.msg, kind)
        now = time.monotonic()
        logged, dropped = self._seen.get(key, (-self.SECONDS, 0))
        if now < logged + self.SECONDS:
            self._seen[key] = logged, dropped + 1
            return False
        if len(self._seen) >= self.KNOWN:  # such messages have the words of clients in them
            self._seen.clear()
        self._seen[key] = now, 0
        if dropped:
            record.msg = f"{record.getMessage()} (and {dropped:,} more like it)"
            record.args = ()
        return True
