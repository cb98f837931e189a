"""Fixtures for all tests."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from unitk.registry import load_plugins
from unitk.vocab import Vocab, train_vocab

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
def toy_vocab() -> Vocab:
    """A small vocabulary with every special symbol, trained on `toy_lines`."""
    return train_vocab(toy_lines(400), 300)


def toy_lines(count: int) -> list[str]:
    """Sentences of made-up words; every line is a function of its number."""
    stems = [a + b for a in "b d f g k l m n p r s t".split() for b in "a e i o u".split()]
    lines = []
    for i in range(count):
        words = [
            stems[(i * 31 + j * 17) % 60] + stems[(i * 7 + j * j * 13) % 60]
            for j in range(4 + i % 7)
        ]
        lines.append(" ".join(["the", *words]).capitalize() + ".")
    return lines
