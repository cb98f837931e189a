"""SpanBERT: the docstring's table, what spans read, how many tokens are hidden, what is asked."""

import math

import numpy as np
import pytest

from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.slots import Example
from unitk.tasks.base import frame_parts
from unitk.tasks.ernie import MARKS
from unitk.tasks.mlm import layout
from unitk.tasks.spanbert import SpanBERT, borders


def task(vocab, **config):
    return SpanBERT(SpanBERT.Config(**config), vocab)


def test_layout_is_the_table(ids, labels):
    tokens, seg = frame_parts([ids("a b c d e f")], *ids("C S"))
    hidden = np.array([2, 3, 4, 6])
    example = layout(tokens, seg, hidden, ids("M M M x"))
    ask = borders(hidden, tokens[hidden], np.array([0, 0, 0, 1]))
    x = example.towers["x"]
    assert x.token.tolist() == ids("C a M M M e x S").tolist()
    assert x.pos.tolist() == [0, 1, 2, 3, 4, 5, 6, 7] and not x.now.any()
    b, c, d, f = ids("b c d f")
    assert labels(example, "mlm") == [-1, -1, b, c, d, -1, f, -1]
    assert (ask.label == example.asks[0].label).all()
    assert ask.rows.tolist() == [[1, 5, 2], [1, 5, 3], [1, 5, 4], [5, 7, 6]]
    assert labels(Example(example.towers, [ask]), "sbo")[5] == f


@pytest.mark.parametrize("n", [1, 2, 7, 60, 510])
def test_the_share_is_rounded_up_without_symbols(toy_vocab, some_text, n):
    rng = np.random.default_rng(0)
    for _ in range(10):
        text = some_text(toy_vocab, n, rng)
        mlm, sbo = task(toy_vocab).pretrain(text, rng).asks
        assert len(mlm.label) == len(sbo.label) == math.ceil(0.15 * n)


def test_what_is_asked_is_hidden_and_borders_are_not(toy_vocab, some_text):
    made, rng = task(toy_vocab), np.random.default_rng(0)
    for n in (2, 3, 9, 80):
        for _ in range(50):
            text = some_text(toy_vocab, n, rng)
            text.ids[n // 2 :: 7] = toy_vocab.sep  # between documents: a border, and never hidden
            mlm, sbo = made.pretrain(text, rng).asks
            hidden = mlm.rows[:, 0]
            framed_text = np.concatenate([[toy_vocab.cls], text.ids, [toy_vocab.sep]])
            assert (framed_text[hidden] == mlm.label).all()
            assert toy_vocab.sep not in mlm.label
            left, right, own = sbo.rows.T
            assert (own == hidden).all() and (sbo.label == mlm.label).all()
            assert not set(left) & set(hidden) and not set(right) & set(hidden)
            for a, b, i in sbo.rows:
                assert set(range(a + 1, b)) <= set(hidden) and a < i < b


def test_a_span_reads_masks_or_itself_or_other_words(toy_vocab, some_text):
    """80/10/10 is drawn for each span: within one all tokens are of a kind."""
    made, rng, kinds = task(toy_vocab), np.random.default_rng(0), []
    for _ in range(400):
        example = made.pretrain(some_text(toy_vocab, 510, rng), rng)
        mlm, sbo = example.asks
        read = example.towers["x"].token[mlm.rows[:, 0]]
        kind = np.where(read == toy_vocab.mask, 0, np.where(read == mlm.label, 1, 2))
        for left in np.unique(sbo.rows[:, 0]):
            own = kind[sbo.rows[:, 0] == left]
            if 0 in own or 2 not in own:
                assert len(set(own)) == 1
            kinds.append(own.max())  # a random word may be the word itself
    share = np.bincount(kinds) / len(kinds)
    assert share == pytest.approx([0.8, 0.1, 0.1], abs=0.02)


def test_spans_begin_with_words(toy_vocab):
    made, rng = task(toy_vocab, mask_ratio=0.3), np.random.default_rng(0)
    text = np.array(toy_vocab.encode("The baba kelo mipu sane teri bobo lulu " * 4))
    starts = toy_vocab.starts[text]
    ends = np.append(starts[1:], True)
    cut = 0
    for _ in range(300):
        mlm, sbo = made.pretrain(Text([text], np.zeros(1, int)), rng).asks
        assert starts[np.unique(sbo.rows[:, 0])].all()  # slot left + 1 is place left of the text
        cut += (~ends[np.unique(sbo.rows[:, 1]) - 2]).sum()
    assert 0 < cut <= 300  # the last span alone may stop inside a word


def marked(words, *phrases, marks=MARKS[1]):
    """A text of one part with phrases [start, stop)."""
    notes = np.zeros(len(words), np.uint8)
    for start, stop in phrases:
        notes[start], notes[start + 1 : stop] = marks
    return Text([words], np.zeros(1, int), notes)


def hidden_sets(made, text, draws):
    rng = np.random.default_rng(0)
    each = (made.pretrain(text, rng).asks[0].rows[:, 0] - 1 for _ in range(draws))
    return [tuple(places.tolist()) for places in each]


@pytest.mark.parametrize("units", ["phrases", "entities"])
def test_a_phrase_is_a_word_of_a_span(toy_vocab, units):
    """Spans of one unit: a phrase of 3 of the 6 places is begun at in half of the draws."""
    words = np.flatnonzero(toy_vocab.starts)[:6]
    text = marked(words, (2, 5), marks=MARKS[1 + (units == "entities")])
    found = hidden_sets(task(toy_vocab, units=units, max_span=1, mask_ratio=0.01), text, 600)
    assert {*found} == {(0,), (1,), (2, 3, 4), (5,)}
    assert found.count((2, 3, 4)) / len(found) == pytest.approx(0.5, abs=0.07)
    alone = {*hidden_sets(task(toy_vocab, max_span=1, mask_ratio=0.01), text, 100)}
    assert alone == {(i,) for i in range(6)}  # words do not know of it
    other = {"phrases": "entities", "entities": "phrases"}[units]
    assert {
        *hidden_sets(task(toy_vocab, units=other, max_span=1, mask_ratio=0.01), text, 100)
    } == alone


def test_spans_hide_no_phrase_in_part(toy_vocab):
    """Pairs of words are phrases. The span that reaches the budget ends with a whole one."""
    words = np.resize(np.flatnonzero(toy_vocab.starts), 400)
    text = marked(words, *((i, i + 2) for i in range(0, 400, 2)))
    made = task(toy_vocab, units="phrases", mask_ratio=1 / 400, stop_chance=0.5, max_span=3)
    found = hidden_sets(made, text, 2000)
    # the budget of one place is reached by the first phrase, whatever is drawn
    assert {len(places) for places in found} == {2}
    wide = task(toy_vocab, units="phrases", mask_ratio=0.1, stop_chance=0.5, max_span=3)
    for places in hidden_sets(wide, text, 50):
        assert len(places) in (40, 42) and all(p ^ 1 in places for p in places)


def test_phrases_need_annotations(toy_vocab, some_text):
    text = some_text(toy_vocab, 9, np.random.default_rng(0))
    with pytest.raises(UsageError, match="--task.units phrases: --data .*--annotate"):
        task(toy_vocab, units="phrases").pretrain(text, np.random.default_rng(0))


def test_sbo_may_count_less(toy_vocab):
    assert task(toy_vocab, sbo_weight=0.5).asks == {"sbo": 0.5}
