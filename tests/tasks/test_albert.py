"""ALBERT: the docstring's table, n-grams of whole words, swapped parts, single sentences."""

import numpy as np
import pytest

from unitk.data.cuts import Text
from unitk.tasks.albert import ALBERT
from unitk.tasks.base import frame_parts
from unitk.tasks.mlm import ask_sentences, layout


def task(vocab, **config):
    return ALBERT(ALBERT.Config(**config), vocab)


def test_layout_is_the_table(ids, labels):
    tokens, seg = frame_parts([ids("d e f"), ids("a b c")], *ids("C S"))
    example = layout(tokens, seg, np.array([3, 6, 7]), ids("M M M"))
    example.asks.append(ask_sentences("sop", 1))
    x = example.towers["x"]
    assert x.token.tolist() == ids("C d e M S a M M S").tolist()
    assert x.seg.tolist() == [0, 0, 0, 0, 0, 1, 1, 1, 1] and not x.now.any()
    f, b, c = ids("f b c")
    assert labels(example, "mlm") == [-1, -1, -1, f, -1, -1, b, c, -1]
    assert labels(example, "sop") == [1, *[-1] * 8]
    assert example.asks[1].head == "class:sop"


def test_half_of_the_pairs_are_swapped_and_told(toy_vocab):
    made, rng, flags = (
        task(toy_vocab, mask_keep_random=(0.0, 1.0, 0.0)),
        np.random.default_rng(0),
        [],
    )
    one, two = made.words[:5], made.words[5:12]
    for _ in range(2000):
        example = made.pretrain(Text([one, two], np.array([0, 5])), rng)
        [flag] = example.asks[1].label
        first, second = (two, one) if flag else (one, two)
        v = toy_vocab
        expected = np.concatenate([[v.cls], first, [v.sep], second, [v.sep]])
        assert example.towers["x"].token.tolist() == expected.tolist()
        assert example.towers["x"].seg.sum() == len(second) + 1
        flags.append(flag)
    assert np.mean(flags) == pytest.approx(0.5, abs=0.04)


def test_a_single_part_and_sop_off_are_not_asked_about(toy_vocab):
    rng = np.random.default_rng(0)
    words = task(toy_vocab).words[:12]
    for options, parts in (({}, [words]), ({"sop": False}, [words[:5], words[5:]])):
        example = task(toy_vocab, **options).pretrain(Text(parts, np.zeros(1, int)), rng)
        assert [ask.name for ask in example.asks] == ["mlm"]
    off = task(toy_vocab, sop=False)
    assert (off.cut, off.heads, off.frame) == (None, (), 2)


def test_the_cut_gives_parts_that_follow_each_other(toy_vocab):
    """Halves of one document in its order, and single sentences alone."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(3, 20, 400)
    sentences = np.append(0, np.cumsum(sizes))
    documents = np.append(np.arange(0, 400, 7), 400)  # the last one has a single sentence
    cut = task(toy_vocab).cut(sentences, documents, 64, rng)
    b = cut.seconds
    single = b[:, 0] == b[:, 1]
    whole = cut.stops - cut.starts + b[:, 1] - b[:, 0]
    assert not cut.flags.any() and single.any() and (~single).any() and whole.max() <= 64
    near = ~single & (whole < 64)  # nothing was cut off
    assert (b[near, 0] >= cut.stops[near]).all()
    homes = np.searchsorted(sentences[documents], [cut.starts[~single], b[~single, 0]], "right")
    assert (homes[0] == homes[1]).all()


def test_ngrams_are_whole_words_within_the_share(toy_vocab):
    made, rng, sizes = task(toy_vocab), np.random.default_rng(0), []
    text = np.array(toy_vocab.encode("The baba kelo mipu sane teri bobo lulu " * 12))
    word = np.cumsum(toy_vocab.starts[text])
    assert len(text) > 1.5 * word[-1], "words must have several tokens, or nothing is shown"
    for _ in range(300):
        [ask] = made.pretrain(Text([text], np.zeros(1, int)), rng).asks
        hidden = np.isin(np.arange(len(text)), ask.rows[:, 0] - 1)
        assert not set(word[hidden]) & set(word[~hidden])
        assert hidden.sum() <= round(0.15 * (len(text) + 2))
        runs = np.split(
            np.unique(word[hidden]), np.flatnonzero(np.diff(np.unique(word[hidden])) > 1) + 1
        )
        sizes += [len(run) for run in runs]
    # runs that touch make longer ones: law 1.636 in mean, and a little more
    assert 1.5 < np.mean(sizes) < 2.2


def test_tokens_of_an_ngram_draw_for_themselves(toy_vocab, some_text):
    made, rng, seen = task(toy_vocab, sop=False), np.random.default_rng(0), []
    for _ in range(200):
        example = made.pretrain(some_text(toy_vocab, 510, rng), rng)
        [ask] = example.asks
        assert len(ask.label) == 77
        read = example.towers["x"].token[ask.rows[:, 0]]
        seen.append(np.where(read == toy_vocab.mask, 0, np.where(read == ask.label, 1, 2)))
    kind = np.concatenate(seen)
    assert np.bincount(kind) / len(kind) == pytest.approx([0.8, 0.1, 0.1], abs=0.01)
    masked = kind == 0  # neighbours are masked together as often as any two are
    assert (masked[1:] & masked[:-1]).mean() == pytest.approx(0.64, abs=0.02)
