"""Limits of the server; torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from unitk.options.fields import Bound, Checked, Positive


@dataclass(frozen=True, kw_only=True)
class Limits(Checked):
    """Limits of a request, and of the queue."""

    max_body: Positive = 1_000_000
    """Maximum bytes of a request."""
    max_texts: Positive = 64
    """Maximum texts of a request."""
    max_chars: Positive = 10_000
    """Maximum characters of a text."""
    max_output: Positive = 1024
    """Maximum tokens of an output: the request's max_len, times its blanks if it has any."""
    max_beam: Positive = 16
    """Maximum beam and nbest of a request."""
    max_queue: Positive = 256
    """Requests that may wait. Further ones are refused with status 503."""
    max_work: Positive = 2_000_000
    """Tokens of all requests that are read, wait, are computed or answered: those of their texts,
    and beam times length of their outputs. Further requests are refused with status 503."""
    max_tokens: Positive = 8192
    """Maximum slots of a batch, and tokens of a text. Fewer need less memory, and a request that is
    given up ends sooner."""
    max_connections: Positive = 512
    """Open connections. Beyond it, the one that has kept the server waiting longest is closed."""
    timeout: Annotated[float, Bound(0.1, 604_800)] = 60.0
    """Seconds from a request's last byte to its answer, after which it is given up with status
    504."""
    read_timeout: Annotated[float, Bound(0.1, 604_800)] = 20.0
    """Seconds in which a client must send the head of its next request, and again its body."""
