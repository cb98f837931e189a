"""Architectures of the tests, among the registered ones."""

import distance_attention
import pytest

from unitk import registry


@pytest.fixture(autouse=True)
def plugged_in(monkeypatch):
    for name, config in distance_attention.ARCHS.items():
        monkeypatch.setitem(registry._entries["arch"], name, config)
