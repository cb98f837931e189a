"""A tiny run by keyword arguments: `unitk.train(**short, save_dir=...)`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def short(toy_data: Path) -> dict[str, Any]:
    """Options of a run of six updates that logs each, and validates twice."""
    return {
        "task": "lm",
        "arch": "gpt2_tiny",
        "data": toy_data / "text",
        "max_steps": 6,
        "max_tokens": 400,
        "precision": "fp32",
        "log_every": 1,
        "valid_every": 3,
        "options": {"arch.dropout": 0.1},
    }
