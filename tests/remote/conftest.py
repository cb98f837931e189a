"""A store that is a folder, a cache of its own, and no pauses between tries."""

from __future__ import annotations

import pytest

from unitk import registry
from unitk.remote import copies, runs, store


def forget():
    """Be as a process that has just begun."""
    copies.fetch_file.cache_clear()
    copies.fetch_part.cache_clear()
    for known in (runs._sent, runs._brought, runs._told):
        known.clear()
    for file in copies._held:
        file.close()
    copies._held.clear()


@pytest.fixture(autouse=True)
def machine(tmp_path, monkeypatch):
    """Moves to a machine with an empty disk: a function of its name."""
    monkeypatch.setattr(store, "PAUSES", (0.0,) * 3)
    monkeypatch.delenv("UNITK_CACHE_SIZE", raising=False)

    def move(name):
        forget()
        monkeypatch.setenv("UNITK_CACHE_DIR", str(tmp_path / name))

    move("here")
    yield move
    forget()


@pytest.fixture
def bucket(tmp_path):
    """The path of a folder in a store, and that folder."""
    folder = tmp_path / "bucket"
    folder.mkdir()
    return registry.get("hub", "file")(str(folder), "file"), folder
