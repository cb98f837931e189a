"""Figures of a server for Prometheus, and a log of requests without their texts."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from unitk.serving.hosts import Application, Message

BOUNDS = 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0
"""Seconds that the buckets of a histogram end with."""
RECORD = "unitk.record"
"""Where the scope of a request has what is recorded of it."""


@dataclass
class Entry:
    """The log entry of a request."""

    id: str = field(default_factory=lambda: secrets.token_hex(12))
    verb: str = ""
    """The address, if it is one that computes."""
    model: str = ""
    read: int = 0
    """Tokens of its texts."""
    written: int = 0
    """Tokens of its outputs."""
    stream: bool = False


@dataclass
class Figures:
    """Counters since the start."""

    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    """The number of requests by verb and status."""
    tokens: Counter[tuple[str, str]] = field(default_factory=Counter)
    """The number of tokens by verb, and by whether they were read or written."""
    buckets: Counter[tuple[str, float]] = field(default_factory=Counter)
    """Requests by verb and the least bound that is no less than their seconds."""
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))

    def add(self, record: Entry, status: int, seconds: float) -> None:
        """Count a request."""
        self.requests[record.verb, status] += 1
        self.tokens[record.verb, "read"] += record.read
        self.tokens[record.verb, "written"] += record.written
        bound = next((limit for limit in BOUNDS if seconds <= limit), float("inf"))
        self.buckets[record.verb, bound] += 1
        self.seconds[record.verb] += seconds

    def lines(self, gauges: Mapping[str, tuple[str, float]]) -> Iterator[str]:
        """The lines of Prometheus' text format; a gauge has a description and a value."""
        yield from preface("unitk_requests_total", "counter", "Requests by address and status.")
        for (verb, status), count in sorted(self.requests.items()):
            yield f'unitk_requests_total{{verb="{verb}",status="{status}"}} {count}'
        yield from preface("unitk_tokens_total", "counter", "Tokens of texts read and written.")
        for (verb, kind), count in sorted(self.tokens.items()):
            yield f'unitk_tokens_total{{verb="{verb}",kind="{kind}"}} {count}'
        yield from preface("unitk_request_seconds", "histogram", "Seconds from head to last byte.")
        for verb in sorted(self.seconds):
            count = 0
            # each bucket has what those below it have, too
            for bound in (*BOUNDS, float("inf")):
                count += self.buckets[verb, bound]
                name = f"{bound:g}".replace("inf", "+Inf")
                yield f'unitk_request_seconds_bucket{{verb="{verb}",le="{name}"}} {count}'
            yield f'unitk_request_seconds_sum{{verb="{verb}"}} {self.seconds[verb]:.6f}'
            yield f'unitk_request_seconds_count{{verb="{verb}"}} {count}'
        for name, (what, value) in gauges.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            yield from preface(name, kind, what)
            yield f"{name} {value:g}"


def preface(name: str, kind: str, what: str) -> Iterable[str]:
    """The lines before those of a figure."""
    return f"# HELP {name} {what}", f"# TYPE {name} {kind}"


@dataclass(frozen=True)
class Observed:
    """An application whose requests are counted, and logged by `write`, a line of json each.

    The log has no texts: of an address only the name of what computes, and nothing of a body.
    """

    app: Application
    figures: Figures
    write: Callable[[str], None] | None = None

    async def __call__(self, scope: Message, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        record = scope[RECORD] = Entry()
        begun = time.perf_counter()
        status = 0
        size = 0

        async def count(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
                # by which a client and the log can name the request
                identity = (b"x-request-id", record.id.encode())
                message = {**message, "headers": [*message.get("headers", ()), identity]}
            size += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, count)
        finally:
            seconds = time.perf_counter() - begun
            if record.verb:
                self.figures.add(record, status or 500, seconds)
            if self.write is not None:
                self.write(log_line(scope, record, status or 500, seconds, size))


def log_line(scope: Message, record: Entry, status: int, seconds: float, size: int) -> str:
    """A line of the log of requests."""
    entry = {
        "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "id": record.id,
        "client": (scope.get("client") or ("",))[0],
        "method": scope["method"],
        "verb": record.verb,
        "model": record.model,
        "status": status,
        "seconds": round(seconds, 4),
        "tokens_read": record.read,
        "tokens_written": record.written,
        "stream": record.stream,
        "bytes": size,
    }
    return json.dumps(entry, ensure_ascii=False)
