"""What holds for every registered task that pre-trains: leaks, keys, seeds, bounds, restoration."""

import numpy as np
import pytest

from unitk import registry
from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.masks import dense
from unitk.slots import collate

TASKS = registry.names("task")
LENGTHS = (1, 2, 5, 17, 60)


def build(name, vocab):
    cls = registry.get("task", name)
    return cls(cls.Config(), vocab)


def distinct_text(vocab, n, rng):
    """No word twice, so that seeing a token is seeing the answer."""
    words = np.setdiff1d(np.arange(len(vocab)), list(vocab.symbols.values()))
    assert len(words) >= n
    return Text([rng.permutation(words)[:n]], np.zeros(1, int))


def draws(task, vocab, count=25):
    for n in LENGTHS:
        for seed in range(count):
            rng = np.random.default_rng([n, seed])
            text = distinct_text(vocab, n, rng)
            try:
                yield text, task.pretrain(text, rng)
            except UsageError:
                pytest.skip("does not pre-train on texts")


def reach(example):
    """Through any number of layers: who can be influenced by whom, over all towers [T, T]."""
    assert set(example.towers) == {"x"}, "two towers: extend this when there are any"
    table = example.towers["x"].table
    seen = dense(table, table) | np.eye(table.shape[1], dtype=bool)
    while True:
        further = (seen.astype(int) @ seen.astype(int)) > 0
        if (further == seen).all():
            return seen
        seen = further


@pytest.mark.parametrize("name", TASKS)
def test_no_asked_slot_can_reach_its_answer(name, toy_vocab):
    task = build(name, toy_vocab)
    symbols = set(toy_vocab.symbols.values())
    asked = 0
    for _, example in draws(task, toy_vocab):
        seen = reach(example)
        token = example.towers["x"].token
        for ask in example.asks:
            for rows, label in zip(ask.rows, ask.label, strict=True):
                if int(label) not in symbols:
                    asked += 1
                    assert label not in token[seen[rows].any(axis=0)]
    assert asked


@pytest.mark.parametrize("name", TASKS)
def test_every_slot_sees_a_key(name, toy_vocab):
    for _, example in draws(build(name, toy_vocab), toy_vocab):
        for slots in example.towers.values():
            assert dense(slots.table, slots.table).any(axis=1).all()


@pytest.mark.parametrize("name", TASKS)
def test_same_seed_same_slots_and_another_seed_other_ones(name, toy_vocab):
    task = build(name, toy_vocab)
    text = distinct_text(toy_vocab, 60, np.random.default_rng(0))

    def table(seed):
        made = task.pretrain(text, np.random.default_rng(seed))
        return {name: slots.table.tolist() for name, slots in made.towers.items()}

    assert table(3) == table(3)
    assert any(table(3) != table(seed) for seed in range(4, 8))


@pytest.mark.parametrize("name", TASKS)
def test_labels_and_visible_words_restore_the_text(name, toy_vocab):
    symbols = set(toy_vocab.symbols.values())
    for text, example in draws(build(name, toy_vocab), toy_vocab):
        labels = {int(y) for ask in example.asks for y in ask.label}
        shown = {int(t) for slots in example.towers.values() for t in slots.token}
        assert (labels | shown) - symbols == set(text.ids.tolist())


@pytest.mark.parametrize("name", TASKS)
def test_no_draw_exceeds_the_declared_bound_and_each_asks_something(name, toy_vocab):
    task = build(name, toy_vocab)
    for text, example in draws(task, toy_vocab, count=100):
        longest = max(len(slots) for slots in example.towers.values())
        assert longest <= task.slots(np.array(len(text.ids)))
        assert sum(ask.weight.sum() for ask in example.asks) > 0


@pytest.mark.parametrize("name", TASKS)
def test_position_tables_of_the_default_arch_reach(name, toy_vocab):
    task = build(name, toy_vocab)
    config = registry.get("arch", task.arch)()
    text = Text([np.resize(np.arange(30, 60), 512 - task.frame)], np.zeros(1, int))
    for seed in range(20):
        batch = collate([[task.pretrain(text, np.random.default_rng(seed))]], pad=0)
        for table in batch.towers.values():
            assert table[1].max() < config.max_positions
            assert table[2].max() < max(config.max_positions2, 1)
