"""Fields of OpenAI's requests: what they are called here, and errors in the shape of that API."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from unitk.errors import UsageError, require
from unitk.registry import nearest
from unitk.serving.requests import UnknownModel

HERE = {
    "max_tokens": "max_len",
    "min_tokens": "min_len",
    "top_p": "sampling_topp",
    "top_k": "sampling_topk",
    "min_p": "sampling_minp",
    "n": "nbest",
    "best_of": "beam",
}
"""A field, and the option of `unitk generate` that it is."""
THERE = {option: field for field, option in HERE.items()}
IDLE = "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key"
"""Fields that change no answer."""
ERRORS = {
    401: "authentication_error",
    403: "permission_error",
    404: "invalid_request_error",
    503: "overloaded_error",
}
CODES = {401: "invalid_api_key", 404: "not_found", 413: "request_too_large", 503: "overloaded"}
MAX_STOPS = 4
"""The most stop strings of a request."""


def check_fields(
    body: Mapping[str, Any], known: Sequence[str], fixed: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """The fields that say something; UsageError for one that is not `known`.

    A field that is `fixed` may have one of these values, which are those of its absence.
    """
    fields = dict[str, Any]()
    for name, value in body.items():
        if value is None or name in IDLE:  # clients write out what they leave to the server
            continue
        if name in fixed:
            allowed = " or ".join(["left out", *(json.dumps(value) for value in fixed[name])])
            require(value in fixed[name], f"{name} must be {allowed}: no model here does more")
            continue
        if name not in known:
            names = [*known, *fixed, *IDLE]
            hint = f"; use {THERE[name]}" if name in THERE else nearest(name, names)
            raise UsageError(f"there is no field {name!r}{hint} (known: {', '.join(names)})")
        fields[name] = value
    return fields


def read_integer(body: Mapping[str, Any], name: str, least: int, default: int) -> int:
    """An integer of a request."""
    value = body.get(name, default)
    # true is an integer in Python, but not in json
    valid = isinstance(value, int) and not isinstance(value, bool) and value >= least
    above = f" of at least {least}" if least >= 0 or isinstance(value, int) else ""
    require(valid, f"{name} must be an integer{above}, got {value!r}")
    return int(value)


def read_float(body: Mapping[str, Any], name: str) -> float | None:
    """A number of a request, which is no less than 0."""
    value = body.get(name)
    if value is None:
        return None
    valid = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    require(valid, f"{name} must be a number of at least 0, got {value!r}")
    return float(value)


def read_flag(body: Mapping[str, Any], name: str) -> bool:
    """Whether something is asked for."""
    value = body.get(name, False)
    require(isinstance(value, bool), f"{name} must be true or false, got {value!r}")
    return bool(value)


def read_stops(body: Mapping[str, Any], max_letters: int) -> list[str]:
    """The strings at which an output ends."""
    value = body.get("stop", [])
    strings = [value] if isinstance(value, str) else value
    valid = isinstance(strings, list) and all(
        isinstance(string, str) and string for string in strings
    )
    require(valid, f"stop must be a string or a list of strings, none empty, got {value!r}")
    require(
        len(strings) <= MAX_STOPS, f"stop: {len(strings)} strings; a request may have {MAX_STOPS}"
    )
    require(
        all(len(string) <= max_letters for string in strings),
        f"stop: a string has more than {max_letters} letters",
    )
    return list(strings)


def error_body(status: int, message: str, error: BaseException | None) -> tuple[int, Any]:
    """Status and body of a refusal."""
    # messages name options; but what a client wrote itself, in quotes, stays
    for option, name in THERE.items():
        message = re.sub(rf"(?<!['\"])\b{option}\b", name, message)
    if isinstance(error, UnknownModel):
        status, code, name = 404, "model_not_found", "model"
    else:
        code = CODES.get(status, "")
        # messages begin with the field that they are about, where it is one
        match = re.match(r"([a-z_]+)(?: must |: )", message) if status == 400 else None
        name = match[1] if match else ""
    kind = ERRORS.get(status, "invalid_request_error" if status < 500 else "server_error")
    body = {"message": message, "type": kind, "param": name or None, "code": code or None}
    return status, {"error": body}
