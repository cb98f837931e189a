"""Limits of the server; torch-free."""

from __future__ import annotations

from dataclasses import dataclass, fields

from unitk.errors import at_least


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a request, and of the queue."""

    max_body: int = 1_000_000
    """Maximum bytes of a request."""
    max_texts: int = 64
    """Maximum texts of a request."""
    max_chars: int = 10_000
    """Maximum characters of a text."""
    max_output: int = 1024
    """Maximum tokens of an output: the request's max_len, times its blanks if it has any."""
    max_beam: int = 16
    """Maximum beam and nbest of a request."""
    max_queue: int = 256
    """Requests that may wait. Further ones are refused with status 503."""
    timeout: float = 60.0
    """Seconds after which a request is given up with status 504."""

    def __post_init__(self) -> None:
        at_least(self, **{one.name: 1 for one in fields(Limits) if one.name != "timeout"})
        at_least(self, timeout=0.1)
