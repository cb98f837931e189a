"""Text that others wrote in json or YAML, as Python's objects; a mistake in it is one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from unitk.errors import DataError, UnitkError


def parse_json(text: str | bytes, where: str, error: type[UnitkError] = DataError) -> Any:
    """What a json says, or an error that names the place."""
    try:
        return json.loads(text)
    except RecursionError as cause:  # brackets within brackets, a thousand deep
        raise error(f"{where}: no JSON (nested too deeply)") from cause
    except ValueError as cause:
        raise error(f"{where}: no JSON ({cause})") from cause


def read_json(path: Path, error: type[UnitkError] = DataError) -> dict[str, Any]:
    """The object in a file, or an error that names it."""
    try:
        data = path.read_bytes()
    except OSError as cause:
        raise error(f"{path}: {cause.strerror}") from cause
    found = parse_json(data, str(path), error)
    if not isinstance(found, dict):
        raise error(f"{path}: no JSON object")
    return found
