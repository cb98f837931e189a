"""Text that others wrote in json or YAML, as Python's objects; a mistake in it is one line."""

from __future__ import annotations

import json
from typing import Any

from unitk.errors import DataError, UnitkError


def parse_json(text: str | bytes, where: str, error: type[UnitkError] = DataError) -> Any:
    """What a json says, or an error that names the place."""
    try:
        return json.loads(text)
    except RecursionError as cause:
        raise error(f"{where}: no JSON (nested too deeply)") from cause
    except ValueError as cause:
        raise error(f"{where}: no JSON ({cause})") from cause
