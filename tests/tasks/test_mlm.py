"""BERT and RoBERTa: the docstring's table, what is hidden and what it reads, pairs, filling."""

import numpy as np
import pytest

from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.tasks.base import frame_parts
from unitk.tasks.mlm import MLM, layout


def task(vocab, **config):
    return MLM(MLM.Config(**config), vocab)


def test_layout_is_the_table(ids, labels):
    tokens, seg = frame_parts([ids("a b c d e f")], *ids("C S"))
    example = layout(tokens, seg, np.array([2, 4, 5]), ids("M d x"))
    x = example.towers["x"]
    assert x.token.tolist() == ids("C a M c d x f S").tolist()
    assert x.pos.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert x.now.tolist() == x.born.tolist() == x.seg.tolist() == [0] * 8
    b, d, e = ids("b d e")
    assert labels(example, "mlm") == [-1, -1, b, -1, d, e, -1, -1]


def test_a_shifted_layout_asks_the_slot_before(ids, labels):
    tokens, seg = frame_parts([ids("a b c d e f")], *ids("C S"))
    plain, shifted = (
        layout(tokens, seg, np.array([2, 4, 5]), ids("M d x"), shift) for shift in (False, True)
    )
    assert (shifted.towers["x"].table == plain.towers["x"].table).all()
    b, d, e = ids("b d e")
    assert labels(shifted, "mlm") == [-1, b, -1, d, e, -1, -1, -1]


def test_a_shifted_task_differs_in_nothing_else(toy_vocab, some_text):
    text = some_text(toy_vocab, 40, np.random.default_rng(0))
    for options in ({}, {"max_span": 3}, {"whole_words": True}):
        one, two = (
            task(toy_vocab, shift=shift, **options).pretrain(text, np.random.default_rng(7))
            for shift in (False, True)
        )
        assert (one.towers["x"].table == two.towers["x"].table).all()
        assert (one.asks[0].label == two.asks[0].label).all()
        assert (one.asks[0].rows == two.asks[0].rows + 1).all()


def test_a_pair_has_segments(ids):
    tokens, seg = frame_parts([ids("a b"), ids("c d")], *ids("C S"))
    assert tokens.tolist() == ids("C a b S c d S").tolist()
    assert seg.tolist() == [0, 0, 0, 0, 1, 1, 1]


def test_c_is_asked_about_pairs_only(toy_vocab):
    made, rng = task(toy_vocab, nsp=True), np.random.default_rng(0)
    assert made.cut is not None and made.frame == 3
    words = made.words[:12]
    for flag in (0, 1):
        pair = Text([words[:5], words[5:]], np.array([0, 5]), flag=flag)
        one, two = made.pretrain(pair, rng).asks
        assert (two.name, two.head) == ("nsp", "class:nsp")
        assert (two.rows.tolist(), two.label.tolist()) == ([[0]], [flag])
        assert set(one.label) <= set(words)
    assert len(made.pretrain(Text([words], np.zeros(1, int)), rng).asks) == 1
    assert len(task(toy_vocab).pretrain(pair, rng).asks) == 1
    assert not made.cut.single and task(toy_vocab, nsp=True, parts="sentences").cut.single


@pytest.mark.parametrize("n", [1, 2, 18, 62, 510])
def test_the_nearest_count_is_hidden(toy_vocab, some_text, n):
    made, rng = task(toy_vocab), np.random.default_rng(0)
    for _ in range(20):
        example = made.pretrain(some_text(toy_vocab, n, rng), rng)
        assert len(example.asks[0].label) == max(1, round(0.15 * (n + 2)))


def test_random_rounding_hides_the_share_on_average(toy_vocab, some_text):
    made, rng = task(toy_vocab, rounding="random"), np.random.default_rng(0)
    text = some_text(toy_vocab, 16, rng)  # 0.15 * 18 = 2.7
    counts = [len(made.pretrain(text, rng).asks[0].label) for _ in range(4000)]
    assert set(counts) == {2, 3} and np.mean(counts) == pytest.approx(2.7, abs=0.03)


def test_hidden_tokens_read_80_10_10(toy_vocab, some_text):
    made, rng = task(toy_vocab), np.random.default_rng(0)
    seen = []
    for _ in range(300):
        text = some_text(toy_vocab, 510, rng)
        example = made.pretrain(text, rng)
        ask, token = example.asks[0], example.towers["x"].token
        read = token[ask.rows[:, 0]]
        seen.append(np.where(read == toy_vocab.mask, 0, np.where(read == ask.label, 1, 2)))
        rest = np.delete(np.arange(512), ask.rows[:, 0])
        framed_text = np.concatenate([[toy_vocab.cls], text.ids, [toy_vocab.sep]])
        assert (token[rest] == framed_text[rest]).all()
        assert not np.isin(read[read != toy_vocab.mask], list(toy_vocab.symbols.values())).any()
    share = np.bincount(np.concatenate(seen)) / (300 * 77)
    by_chance = 0.1 / len(made.words)  # a random word that happens to be the token
    assert share == pytest.approx([0.8, 0.1 + by_chance, 0.1 - by_chance], abs=0.01)


def test_every_place_is_hidden_equally_often_and_symbols_never(toy_vocab, some_text):
    made, rng = task(toy_vocab), np.random.default_rng(0)
    text = some_text(toy_vocab, 30, rng)
    text.ids[12] = toy_vocab.sep  # between documents of a block
    often = np.zeros(32)
    for _ in range(6000):
        often[made.pretrain(text, rng).asks[0].rows[:, 0]] += 1
    assert often[[0, 13, 31]].tolist() == [0, 0, 0]
    rest = np.delete(often, [0, 13, 31])
    assert rest / 6000 == pytest.approx(np.full(29, 5 / 29), abs=0.02)


def hide(made, text, rng):
    """Which tokens of a text are hidden in one layout of it."""
    rows = made.pretrain(Text([text], np.zeros(1, int)), rng).asks[0].rows[:, 0] - 1
    return np.isin(np.arange(len(text)), rows)


def test_whole_words_are_hidden_or_shown(toy_vocab):
    made, rng = task(toy_vocab, whole_words=True), np.random.default_rng(0)
    text = np.array(toy_vocab.encode("The baba kelo mipu sane teri bobo lulu " * 4))
    starts = toy_vocab.starts[text]
    word = np.cumsum(starts)
    assert 1.5 < len(text) / starts.sum(), "words must have several tokens, or nothing is shown"
    sizes = []
    for _ in range(300):
        hidden = hide(made, text, rng)
        assert not set(word[hidden]) & set(word[~hidden])
        sizes.append(hidden.sum())
    assert max(sizes) <= round(0.15 * (len(text) + 2)) and np.mean(sizes) > 0.9 * max(sizes)


def test_runs_share_what_they_read(toy_vocab, some_text):
    """80/10/10 is drawn for each run of 1 to 3 tokens; runs that touch may differ."""
    made, rng, seen = task(toy_vocab, max_span=3), np.random.default_rng(0), []
    for _ in range(200):
        example = made.pretrain(some_text(toy_vocab, 510, rng), rng)
        ask, token = example.asks[0], example.towers["x"].token
        assert 77 <= len(ask.label) <= 79
        read, rows = token[ask.rows[:, 0]], ask.rows[:, 0]
        first = np.append(True, np.diff(rows) > 1)
        alone = np.flatnonzero(first & np.append(first[1:], True))
        changed = np.where(read == toy_vocab.mask, 0, np.where(read == ask.label, 1, 2))
        seen += [changed]
        # neighbours mostly belong to one run: two thirds of the draws would differ otherwise
        pairs = np.flatnonzero(~first)
        assert (changed[pairs] == changed[pairs - 1]).mean() > 0.75
        assert len(alone)
    share = np.bincount(np.concatenate(seen)) / sum(map(len, seen))
    assert share == pytest.approx([0.8, 0.1, 0.1], abs=0.01)


def test_runs_of_whole_words_hide_whole_words(toy_vocab):
    made, rng = task(toy_vocab, whole_words=True, max_span=3), np.random.default_rng(0)
    text = np.array(toy_vocab.encode("The baba kelo mipu sane teri bobo lulu " * 4))
    word = np.cumsum(toy_vocab.starts[text])
    for _ in range(100):
        hidden = hide(made, text, rng)
        assert not set(word[hidden]) & set(word[~hidden])
        assert hidden.sum() >= round(0.15 * (len(text) + 2))


def test_a_long_word_alone_is_hidden_nevertheless(toy_vocab):
    text = np.array(toy_vocab.encode("kelomipu"))
    assert len(text) > 2
    made = task(toy_vocab, whole_words=True)
    example = made.pretrain(Text([text], np.zeros(1, int)), np.random.default_rng(0))
    assert len(example.asks[0].label) >= 1


def test_masks_of_a_prompt_are_asked_for_and_filled(toy_vocab):
    made, v = task(toy_vocab), toy_vocab
    words = np.array(v.encode("The baba kelo"))
    source = [np.insert(words, [1, 2], v.mask)]
    prompt = made.prompt(source)
    assert prompt.asks[0].rows[:, 0].tolist() == [2, 4] and made.protocol is None
    fills = np.array(v.encode("mipu lulu"))[-2:]
    expected = np.insert(words, [1, 2], fills)
    assert made.text(source, fills) == v.decode(expected)
    with pytest.raises(UsageError, match="MASK"):
        made.prompt([words])
    shifted = task(toy_vocab, shift=True).prompt(source)
    assert shifted.asks[0].rows[:, 0].tolist() == [1, 3]
