"""Masked diffusion: the docstring's table, the law of what is hidden, the bound that it makes."""

import numpy as np
import pytest

from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.families.diffusion.bd3lm import BD3LM
from unitk.families.diffusion.mdlm import MDLM, draw, layout


def weights(example):
    """Of each slot that is asked."""
    [ask] = example.asks
    return dict(zip(ask.first.tolist(), ask.weight.tolist(), strict=True))


@pytest.mark.parametrize(("shift", "label"), [(False, ". . b . d S"), (True, ". b . d S .")])
def test_layout_is_the_table(ids, labels, shift, label):
    text, hidden, weight = ids("C a b c d S"), np.array([2, 4, 5]), np.full(3, 5 / 3, np.float32)
    example = layout(text, hidden, weight, mask=ids("M")[0], shift=shift)
    slots = example.towers["x"]
    assert slots.token.tolist() == ids("C a M c M M").tolist()
    assert slots.pos.tolist() == [*range(6)] and not slots.now.any()
    asked = [ids(one)[0] if one != "." else -1 for one in label.split()]
    assert labels(example, "bound") == asked
    assert [*weights(example).values()] == pytest.approx([5 / 3] * 3)


@pytest.mark.slow
def test_every_number_of_hidden_tokens_is_as_likely_and_so_is_every_place():
    rng, n, times = np.random.default_rng(0), 5, 20000
    counts, places = np.zeros(n + 1), np.zeros(n)
    for _ in range(times):
        hidden, weight = draw(np.zeros(n, int), (0, 1), rng)
        assert weight == pytest.approx(np.full(len(hidden), n / len(hidden)))
        counts[len(hidden)] += 1
        places[hidden] += 1
    assert counts / times == pytest.approx([0, *[1 / n] * n], abs=0.01)
    assert places / times == pytest.approx([(n + 1) / 2 / n] * n, abs=0.01)


def test_the_law_is_that_of_a_uniform_time():
    """MDLM: each of n tokens is hidden with a chance t, and weighs 1 / t. Given that k are hidden,
    k = 1, ..., n is as likely as another, and k times the mean of 1 / t is n + 1: of n + 1 numbers
    0 is one that costs nothing, so that n / k and n numbers give the same."""
    n, rng = 6, np.random.default_rng(0)
    time = rng.random(400000)
    count = rng.binomial(n, time)
    for k in range(1, n + 1):
        some = count == k
        assert some.mean() == pytest.approx(1 / (n + 1), rel=0.02)
        if k > 1:  # at k = 1 the mean exists, but not the variance
            assert (1 / time[some]).mean() * k == pytest.approx(n + 1, rel=0.03)


def test_weights_of_a_text_sum_to_its_tokens_and_end(toy_vocab, some_text):
    for ends in (True, False):
        task = MDLM(MDLM.Config(ends=ends), toy_vocab)
        for n in (1, 2, 9, 40):
            rng = np.random.default_rng(n)
            [ask] = task.pretrain(some_text(toy_vocab, n, rng), rng).asks
            assert ask.weight.sum() == pytest.approx(n + ends)
            assert ask.head == "lm" and len(ask.label) <= n + ends
            assert (ask.rows > 0).all()


def test_a_model_that_ignores_its_input_has_its_cross_entropy_as_bound(toy_vocab, some_text):
    """The mean of weighted -log p over draws is then that over all tokens."""
    task, rng = MDLM(MDLM.Config(), toy_vocab), np.random.default_rng(0)
    text = some_text(toy_vocab, 12, rng)
    nll = rng.gamma(2.0, size=len(toy_vocab))
    found = []
    for _ in range(4000):
        [ask] = task.pretrain(text, rng).asks
        found.append((ask.weight * nll[ask.label]).sum() / ask.weight.sum())
    exact = nll[[*text.ids, toy_vocab.sep]].mean()
    assert np.mean(found) == pytest.approx(exact, rel=0.02)


def test_prompts_ask_for_masks_or_for_an_output(toy_vocab):
    v, task = toy_vocab, MDLM(MDLM.Config(), toy_vocab)
    a, b, c = task.words[:3]
    blanks = task.prompt([np.array([a, v.mask, b, v.mask])])
    assert blanks.towers["x"].token.tolist() == [v.cls, a, v.mask, b, v.mask, v.sep]
    assert blanks.asks[0].first.tolist() == [2, 4]
    made = task.canvas([np.array([a, b])], np.array([c, v.mask, v.mask]))
    assert made.towers["x"].token.tolist() == [v.cls, a, b, c, v.mask, v.mask]
    assert made.asks[0].first.tolist() == [3, 4, 5]
    assert task.text([np.array([a, v.mask, b])], np.array([c])) == v.decode(np.array([a, c, b]))
    assert task.text([np.array([a])], np.array([b, c, v.sep])) == v.decode(np.array([b, c]))
    with pytest.raises(UsageError, match=r"task mdlm fills \[MASK\]s.*none"):
        task.prompt([np.array([a])])


def test_texts_without_an_end(toy_vocab):
    task = MDLM(MDLM.Config(ends=False), toy_vocab)
    text = Text([task.words[:5]], np.zeros(1, int))
    tokens = task.pretrain(text, np.random.default_rng(0)).towers["x"].token
    assert len(tokens) == 6 == task.slots(np.array(5)) and toy_vocab.sep not in tokens


@pytest.mark.parametrize("cls", [MDLM, BD3LM])
def test_a_text_may_open_with_the_end_of_the_one_before(toy_vocab, cls):
    task = cls(cls.Config(opening="sep"), toy_vocab)
    ids = task.words[:5]
    slots = task.canvas([ids], ids[:0]).towers["x"]
    assert slots.token.tolist() == [toy_vocab.sep, *ids]
    read = task.pretrain(Text([ids], np.zeros(1, int)), np.random.default_rng(0)).towers["x"].token
    assert read[0] == toy_vocab.sep and toy_vocab.cls not in read
