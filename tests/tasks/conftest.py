"""Letters as ids, for tests that read like the docstrings' tables."""

from __future__ import annotations

import numpy as np
import pytest

from unitk.data.cuts import Text

from ..training.conftest import start  # noqa: F401

LETTERS = {letter: number for number, letter in enumerate("abcdefghijxyCSMP", start=10)}


def ids_of(text: str) -> np.ndarray:
    """`"C a M"` -> ids."""
    return np.array([LETTERS[letter] for letter in text.split()], np.int64)


@pytest.fixture
def ids():
    return ids_of


@pytest.fixture
def some_text():
    """Makes a text of different words, as long as there are enough, with sentences of ten."""

    def make(vocab, n, rng):
        words = np.setdiff1d(np.arange(len(vocab)), list(vocab.symbols.values()))
        return Text([np.resize(rng.permutation(words), n)], np.arange(0, n, 10))

    return make


@pytest.fixture
def labels():
    """A label for every slot of a tower, as a docstring's table has them; -1 where none is."""

    def spread(example, name, tower="x"):
        found = np.full(len(example.towers[tower]), -1)
        for ask in example.asks:
            if ask.name == name:
                assert ask.tower == tower
                found[ask.rows[:, 0]] = ask.label
        return found.tolist()

    return spread
