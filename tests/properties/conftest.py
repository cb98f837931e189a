"""Architectures of the tests, among the registered ones."""

import distances
import pytest

from unitk import registry


@pytest.fixture(autouse=True)
def plugged_in(monkeypatch):
    for name, config in distances.ARCHS.items():
        monkeypatch.setitem(registry._entries["arch"], name, config)
