"""How an answer is sent while it is written; a route may have a form of its own."""

from __future__ import annotations

import json
from typing import Any, ClassVar

from unitk.errors import NonFiniteError


class Stream:
    """A line of json for the text so far, as often as it grows; the last one is the answer."""

    media_type: ClassVar[str] = "application/x-ndjson"

    def text(self, event: Any) -> bytes:
        """The message for a text that has grown; `event` is what the route knows of it."""
        return json_line({"text": event})

    def answer(self, value: Any) -> bytes:
        """The message with the whole answer at the end."""
        return json_line(value)

    def error(self, status: int, message: str) -> bytes:
        """The message in place of the rest if something fails."""
        return json_line({"error": message})


def json_line(value: Any) -> bytes:
    """A line of json; NonFiniteError if a number has none."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise NonFiniteError("the model gives numbers that are not finite") from error
    return text.encode() + b"\n"
