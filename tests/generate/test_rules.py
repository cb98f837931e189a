"""What may not follow, against plain loops."""

import numpy as np
import torch

from unitk.generate.config import GenerateConfig
from unitk.generate.rules import Rules
from unitk.slots import Protocol


def naive_repeats(written, count, n):
    """The words that would end an n-gram seen before in the blank at hand."""
    blank = written[len(written) - count :]
    tail = blank[len(blank) - (n - 1) :] if n > 1 else []
    if len(blank) < n - 1:
        return set()
    return {blank[i + n - 1] for i in range(len(blank) - n + 1) if blank[i : i + n - 1] == tail}


def test_no_ngram_twice_equals_a_loop():
    rng = np.random.default_rng(0)
    blocked = 0
    for _ in range(1000):
        n, length, words = rng.integers(1, 5), rng.integers(0, 20), rng.integers(2, 6)
        rows = 3
        written = rng.integers(words, size=(rows, length))
        count = rng.integers(0, length + 1, size=rows)
        rules = Rules(Protocol(end=6), GenerateConfig(no_repeat_ngram_size=int(n)), "cpu")
        logits = torch.zeros(rows, 7)
        rules.forbid(logits, torch.from_numpy(written), torch.from_numpy(count))
        for row, words_so_far, inside in zip(logits, written.tolist(), count, strict=True):
            expected = naive_repeats(words_so_far, int(inside), int(n))
            assert set((row == -torch.inf).nonzero()[:, 0].tolist()) == expected
            blocked += len(expected)
    assert blocked > 1000


def test_banned_words_and_early_ends():
    rules = Rules(Protocol(end=2, banned=(3, 5)), GenerateConfig(min_len=2), "cpu")
    logits = torch.zeros(2, 6)
    rules.forbid(logits, torch.zeros(2, 4, dtype=torch.int64), torch.tensor([1, 2]))
    assert (logits == -torch.inf).tolist() == [
        [False, False, True, True, False, True],
        [False, False, False, True, False, True],
    ]
