"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from unitk.registry import load_plugins

if "UNITK_USER_DIR" in os.environ:  # the property tests then cover a plug-in's tasks too
    load_plugins(Path(os.environ["UNITK_USER_DIR"]))


@pytest.fixture
def shared_data() -> Callable[[str], Path]:
    """A folder of real data beside the checkout; where it is missing the test is skipped."""

    def find(name: str) -> Path:
        path = Path(__file__).resolve().parents[2] / "shared" / "data" / name
        if not path.exists():
            pytest.skip(f"no {name} beside the checkout")
        return path

    return find


@pytest.fixture(scope="session")
def toy_vocab():
    """A small vocabulary with every special symbol, trained on the lines below."""
    from unitk.vocab import train_vocab

    return train_vocab(TOY_LINES, 48)


WORDS = (
    "the a cat dog bird sat on in under mat hat tree sees likes big small red blue and then".split()
)
TOY_LINES = [
    " ".join(WORDS[(i * 7 + j * (i + 3)) % len(WORDS)] for j in range(4 + i % 7)) + "."
    for i in range(400)
]
