"""XLNet: the docstring's tables, the official rule, the laws of spans and orders, directions."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from unitk.data.cuts import Text
from unitk.families.xlnet.task import XLNet, context_spans, layout, order
from unitk.masks import dense
from unitk.slots import NEVER
from unitk.spans import length_law


def task(vocab, **config):
    return XLNet(XLNet.Config(**config), vocab)


def made(vocab, n=60, seed=0, flag=0, **config):
    """A text of so many different words, laid out."""
    words = np.arange(50, 50 + n)
    text = Text([words], np.zeros(1, int), flag=flag)
    return task(vocab, **config).pretrain(text, np.random.default_rng(seed))


def test_layout_is_the_table(ids, labels):
    at, seg = np.array([0, 5, 0, 0, 3, 1, 0, 7, 9]), np.array([0] * 5 + [1] * 3 + [2])
    predicted, asking = np.array([1, 5]), 99
    example = layout(ids("a b c d S e f S C"), seg, np.arange(9), at, predicted, asking=asking)
    x = example.towers["x"]
    assert x.token.tolist() == [*ids("a b c d S e f S C"), 99, 99]
    assert x.pos.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 5]
    assert x.seg.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 2, 0, 1]
    assert x.now.tolist() == [0, 5, 0, 0, 3, 1, 0, 7, 9, 4, 0]
    assert (x.born == [0, 5, 0, 0, 3, 1, 0, 7, 9, NEVER, NEVER]).all()
    assert labels(example, "lm") == [-1] * 9 + ids("b e").tolist()


def test_fine_tuning_is_the_table(toy_vocab, labels):
    one, S = task(toy_vocab), toy_vocab.sep
    example = one.finetune([np.array([50, 51])], np.array([60, 61]), np.random.default_rng(0))
    x, q = example.towers["x"], one.asking
    assert x.token.tolist() == [50, 51, S, q, 60, q, 61, q]
    assert x.pos.tolist() == [0, 1, 2, 3, 3, 4, 4, 5]
    assert x.seg.tolist() == [0, 0, 0, 1, 1, 1, 1, 1]
    assert x.now.tolist() == [0, 0, 0, 0, 1, 2, 3, 4]
    assert (x.born[x.token == q] == NEVER).all()
    assert labels(example, "lm") == [-1, -1, -1, 60, -1, 61, -1, S]
    # a model of texts goes on with what it is given
    one = one.with_trained(pairs=False)
    x = one.prompt([np.array([50, 51])]).towers["x"]
    assert x.token.tolist() == [S, 50, 51, q] and not x.seg.any()


def test_understanding_reads_the_content_stream_at_a_c_that_comes_last(toy_vocab):
    C, S = toy_vocab.cls, toy_vocab.sep
    encoded = task(toy_vocab).lay_out_parts([np.array([50, 51]), np.array([60])])
    x = encoded.example.towers["x"]
    assert x.token.tolist() == [50, 51, S, 60, S, C] and encoded.whole == 5
    assert x.seg.tolist() == [0, 0, 0, 1, 1, 2] and not x.now.any()
    assert [part.tolist() for part in encoded.parts] == [[0, 1], [3]]


def official(rank, functional, target):
    """zihangdai/xlnet, data_utils.py: who may not look at whom, of one run with this order.

    A token that is neither a target nor functional has rank -1. A target does not look at itself.
    """
    rank = np.where(target | functional, rank, -1)
    own = np.where(target, rank, rank + 1)
    return (own[:, None] <= rank[None]) & (target | functional)[None]


@pytest.mark.parametrize("runs", [1, 2])
def test_the_mask_is_the_official_one(runs):
    """Queries see what the rule says, contents also themselves; a run reads all of those before."""
    size = 24
    for seed in range(300):
        rng = np.random.default_rng(seed)
        n = size * runs
        functional, target = rng.random(n) < 0.1, rng.random(n) < 0.3
        target &= ~functional
        functional[::size] = target[::size] = False
        at = order(target | functional, size, rng)
        x = layout(
            np.arange(n), np.zeros(n, int), np.arange(n), at, np.flatnonzero(target), asking=99
        )
        x = x.towers["x"]
        seen = dense(x.table, x.table)
        hidden = np.ones((n, n), bool)
        for a in range(0, n, size):
            run = slice(a, a + size)
            hidden[run, :a] = False
            # any numbers in the drawn order: ours are its times
            hidden[run, run] = official(at[run], functional[run], target[run])
        assert (seen[n:, :n] == ~hidden[target]).all() and not seen[:, n:].any()
        assert (seen[:n, :n] == (~hidden | np.eye(n, dtype=bool))).all()


def test_each_order_is_as_likely():
    late = np.array([False, True, True, False, True])
    found = Counter(
        tuple(np.argsort(order(late, 16, np.random.default_rng(seed))[late]))
        for seed in range(6000)
    )
    assert found.keys() == {*permutations(range(3))}
    assert max(found.values()) - min(found.values()) < 6 * 1000**0.5


def test_lengths_have_the_weights_of_their_inverse():
    """Of long texts, whose last context hardly counts; the mean is 5 / (1 + 1/2 + ... + 1/5)."""
    law, rng = length_law(tuple(1 / n for n in range(1, 6))), np.random.default_rng(0)
    lengths = np.concatenate(
        [np.diff(context_spans(1200, 0, 6, law, rng), axis=1)[:-1, 0] for _ in range(600)]
    )
    weights = 1 / np.arange(1, 6)
    share = np.bincount(lengths, minlength=6)[1:] / len(lengths)
    near = 4 * (weights / weights.sum() / len(lengths)) ** 0.5
    assert (abs(share - weights / weights.sum()) < near).all()
    assert lengths.mean() == pytest.approx(5 / weights.sum(), rel=0.01)


def test_of_512_slots_85_are_predicted(toy_vocab):
    """As in the paper's settings, whose 512 have the symbols, too."""
    rng, words = np.random.default_rng(0), task(toy_vocab).words
    text = Text([rng.choice(words, 509)], np.zeros(1, int))
    for _ in range(50):
        example = task(toy_vocab).pretrain(text, rng)
        assert len(example.asks[0].label) == 85 and len(example.towers["x"]) == 512 + 85


@pytest.mark.every(2)
@pytest.mark.parametrize("beside", [0, 2, 3])
@pytest.mark.parametrize("share", [2, 3, 6])
def test_one_token_of_so_many_is_predicted_and_any_is_as_likely(share, beside):
    law, rng = length_law((1.0, 0.5)), np.random.default_rng(0)
    for size in range(1, 60):
        for _ in range(20):
            spans = context_spans(size, beside, share, law, rng)
            chosen = np.concatenate([np.arange(a, b) for a, b in spans])
            count = max((size + beside) // share, 1)
            assert len(chosen) == len(set(chosen))
            if share > beside:
                assert len(chosen) == min(count, max(size - 1, 1))
            assert size // share <= len(chosen) <= count
            assert chosen.min() >= 0 and chosen.max() < size
            assert (np.diff(spans.ravel()) >= 0).all()
    # contexts of one length: a span begins at each of the places with equal chance
    one = length_law((0.0, 1.0))
    begins = [context_spans(2 * share, 0, share, one, rng)[0, 0] for _ in range(4000)]
    counts = np.bincount(begins)
    assert len(counts) == 2 * share - 1
    assert abs(counts - 4000 / len(counts)).max() < 5 * (4000 / len(counts)) ** 0.5


def test_a_sixth_is_asked_and_symbols_are_not(toy_vocab):
    """85 of 512 slots are 1 of 6 (the official --num_predict): here of the words alone."""
    for seed in range(40):
        example = made(toy_vocab, n=120, seed=seed)
        [ask] = example.asks
        x = example.towers["x"]
        assert len(ask.label) == 20 and ask.label.min() >= 50
        home = {int(p): int(t) for p, t in zip(x.pos[:123], x.token[:123], strict=True)}
        assert [home[int(p)] for p in x.pos[ask.first]] == ask.label.tolist()
        assert (x.now[ask.first] + 1 == x.now[x.pos[ask.first]]).all()
        assert (x.seg[ask.first] == x.seg[x.pos[ask.first]]).all()


def test_a_separator_of_documents_is_a_word_like_any_other(toy_vocab):
    """As the official <eod>: seen by all unless it is asked for, which it may be."""
    words = np.insert(np.arange(50, 108), [20, 41], toy_vocab.sep)
    asked = 0
    for seed in range(80):
        text = Text([words], np.zeros(1, int))
        example = task(toy_vocab, pairs=False).pretrain(text, np.random.default_rng(seed))
        x, label = example.towers["x"], example.asks[0].label
        hidden = x.pos[example.asks[0].first]
        for place in np.flatnonzero(x.token == toy_vocab.sep):
            if x.token[place - 1] + 1 == x.token[place + 1]:  # between two words that it parts
                assert (x.now[place] > 0) == (x.pos[place] in hidden)
        asked += (label == toy_vocab.sep).sum()
    assert asked


def test_the_second_segment_begins_in_the_second_half(toy_vocab):
    cuts = []
    for seed in range(300):
        x = made(toy_vocab, n=10, seed=seed).towers["x"]
        first, second = np.flatnonzero(x.token[:13] == toy_vocab.sep)
        assert second == 11 and x.token[12] == toy_vocab.cls
        assert x.seg[:13].tolist() == [0] * (first + 1) + [1] * (11 - first) + [2]
        cuts.append(first)
    assert set(cuts) == set(range(5, 10))
    x = made(toy_vocab, n=10, pairs=False).towers["x"]
    assert x.seg[:12].tolist() == [0] * 11 + [2]


def test_a_text_in_reverse_has_its_words_at_falling_places(toy_vocab):
    """As if the words were given in reverse, but for the positions."""
    for seed in range(20):
        back = made(toy_vocab, seed=seed, flag=1).towers["x"]
        words = Text([np.arange(50, 110)[::-1]], np.zeros(1, int))
        plain = task(toy_vocab).pretrain(words, np.random.default_rng(seed)).towers["x"]
        assert (back.pos + plain.pos == 62).all()
        back.table[1] = plain.table[1]
        assert (back.table == plain.table).all()


def test_long_texts_are_permuted_in_runs(toy_vocab):
    """The first run knows nothing of the second, whose contexts know all of the first."""
    x = made(toy_vocab, n=90, perm_size=40).towers["x"]
    runs = [x.born[:93][a : a + 40] for a in (0, 40, 80)]
    for before, after in zip(runs, runs[1:], strict=False):
        assert before.max() < after.min()
    assert all((run == run.min()).sum() > 10 for run in runs[:2])
