"""Fixtures for all tests."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """A folder of real data beside the checkout; where it is missing the test is skipped."""

    def find(name: str) -> Path:
        path = Path(__file__).resolve().parents[2] / "shared" / "data" / name
        if not path.exists():
            pytest.skip(f"no {name} beside the checkout")
        return path

    return find
