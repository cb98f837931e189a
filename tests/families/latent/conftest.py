"""Fixtures for the tests of autoencoders."""

import numpy as np
import pytest

from unitk import registry


@pytest.fixture(scope="session")
def texts_of(toy_vocab):
    """Examples of texts of so many words, of ids 30 to 59: `texts_of(7, 2, 4)`."""
    cls = registry.get("task", "optimus")

    def make(*lengths):
        task, rng = cls(cls.Config(), toy_vocab), np.random.default_rng(0)
        words = [rng.integers(30, 60, n) for n in lengths]
        return [task.finetune([one], one, rng) for one in words]

    return make
