"""GPT: the docstring's table, and what is weighted how in pairs."""

import numpy as np
import pytest

from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.masks import dense
from unitk.tasks.lm import LM, layout


def task(vocab, **config):
    return LM(LM.Config(**config), vocab)


def test_layout_is_the_table(ids, labels):
    example = layout(ids("C a b c d S"))
    x = example.towers["x"]
    assert x.token.tolist() == ids("C a b c d").tolist()
    assert x.pos.tolist() == x.now.tolist() == x.born.tolist() == [0, 1, 2, 3, 4]
    assert labels(example, "lm") == ids("a b c d S").tolist()
    assert (dense(x.table, x.table) == np.tri(5, dtype=bool)).all()


def test_ends_are_predicted_or_not(toy_vocab):
    words = np.array([40, 41])
    text = Text([words], np.zeros(1, int))
    rng = np.random.default_rng(0)
    made = task(toy_vocab).pretrain(text, rng)
    assert made.asks[0].label.tolist() == [40, 41, toy_vocab.sep]
    assert len(made.towers["x"]) == task(toy_vocab).slots(np.array(2))
    made = task(toy_vocab, ends=False).pretrain(text, rng)
    assert made.asks[0].label.tolist() == [40, 41]
    assert made.towers["x"].token.tolist() == [toy_vocab.cls, 40]


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_pairs_are_the_table_and_the_source_has_its_weight(toy_vocab, weight):
    v, made = toy_vocab, task(toy_vocab, source_weight=weight)
    source, target = [np.array([40, 41])], np.array([50, 51])
    example = made.finetune(source, target, np.random.default_rng(0))
    x = example.towers["x"]
    assert x.token.tolist() == [v.cls, 40, 41, v.sep, 50, 51]
    assert x.pos.tolist() == x.now.tolist() == [0, 1, 2, 3, 4, 5]
    expected = {"lm": ([3, 4, 5], [50, 51, v.sep])}
    if weight:
        expected["source"] = [0, 1, 2], [40, 41, v.sep]
    found = {ask.name: (ask.rows[:, 0].tolist(), ask.label.tolist()) for ask in example.asks}
    assert found == expected
    assert made.asks == {"source": weight}


def test_without_delimiter_a_pair_is_laid_out_as_one_text(toy_vocab):
    made = task(toy_vocab, delimiter="off", source_weight=1.0)
    rng = np.random.default_rng(0)
    pair = made.finetune([np.array([40, 41])], np.array([50]), rng)
    text = made.pretrain(Text([np.array([40, 41, 50])], np.zeros(1, int)), rng)
    assert (pair.towers["x"].table == text.towers["x"].table).all()
    after, before = pair.asks
    assert [*before.label, *after.label] == text.asks[0].label.tolist()
    assert [*before.rows, *after.rows] == text.asks[0].rows.tolist()


def test_a_prompt_is_continued_unless_pairs_taught_to_answer(toy_vocab):
    a, b, cls, sep = 20, 21, toy_vocab.cls, toy_vocab.sep
    source = [np.array([a, b])]

    def prompt(answers, **options):
        made = task(toy_vocab, **options)
        made = made.with_trained(pairs=answers)
        return made.prompt(source).towers["x"].token.tolist()

    assert prompt(True) == [cls, a, b, sep]
    assert prompt(False) == [cls, a, b]
    assert prompt(False, delimiter="always") == [cls, a, b, sep]
    assert prompt(True, delimiter="off") == [cls, a, b]
    assert prompt(False, opening="sep") == [sep, a, b]
    assert prompt(False, opening="none") == [a, b]
    assert prompt(False, opening="gmask") == [toy_vocab.gmask, toy_vocab.sop, a, b]


FIRST = {"cls": ["cls"], "sep": ["sep"], "none": [], "gmask": ["gmask", "sop"]}


@pytest.mark.parametrize("opening, first", FIRST.items())
def test_what_a_text_begins_with(toy_vocab, opening, first):
    made = task(toy_vocab, opening=opening)
    text, one = (Text([np.arange(20, end)], np.zeros(1, int)) for end in (23, 21))
    rng = np.random.default_rng(0)
    example = made.pretrain(text, rng)
    before = [toy_vocab.symbols[name] for name in first]
    assert example.towers["x"].token.tolist() == [*before, 20, 21, 22]
    asked = min(len(first), 1)  # symbols of an opening are no labels
    assert example.asks[0].label.tolist() == [20, 21, 22, toy_vocab.sep][1 - asked :]
    assert (np.diff([len(first) - 1, *example.asks[0].rows[:, 0]])[asked == 0 :] >= 0).all()
    assert len(example.towers["x"]) <= made.slots(np.array(3))
    alone = task(toy_vocab, opening=opening, ends=False).pretrain(one, rng)
    assert len(alone.towers["x"]) == max(len(first), 1) and len(alone.asks[0].label) == asked


def test_a_backward_model_reads_the_text_turned_round(toy_vocab):
    forward, made = task(toy_vocab), task(toy_vocab, backward=True)
    words, rng = np.array([40, 41, 42, 43]), np.random.default_rng(0)
    text, turned = (Text([one], np.zeros(1, int)) for one in (words, words[::-1]))
    one, other = made.pretrain(text, rng), forward.pretrain(turned, rng)
    assert (one.towers["x"].table == other.towers["x"].table).all()
    assert one.asks[0].label.tolist() == [43, 42, 41, 40, toy_vocab.sep]
    # tokens of a text are where the text says, and what was written is read from its end
    encoded = made.lay_out_parts([words[:1], words[1:]])
    token = encoded.example.towers["x"].token
    assert [token[own].tolist() for own in encoded.parts] == [[40], [41, 42, 43]]
    made = made.with_trained(pairs=False)
    assert made.prompt([words]).towers["x"].token.tolist() == [toy_vocab.cls, 43, 42, 41, 40]
    assert made.text([words], words[::-1]) == toy_vocab.decode(words)


def test_a_backward_model_gives_tokens_their_probabilities_after_the_rest(toy_vocab):
    words, nothing = np.array([40, 41, 42]), np.zeros(0, int)
    made = task(toy_vocab, backward=True)
    made = made.with_trained(pairs=False)
    example = made.likelihood(nothing, words)
    [ask], token = example.asks, example.towers["x"].token
    assert ask.label.tolist() == [40, 41, 42]
    assert [token[: row + 1].tolist() for row in ask.first] == [
        [toy_vocab.cls, 42, 41],
        [toy_vocab.cls, 42],
        [toy_vocab.cls],
    ]
    with pytest.raises(UsageError, match="--task.backward: .*text.*after"):
        made.likelihood(words, words)
    with pytest.raises(UsageError, match="--task.backward .*texts"):
        made.finetune([words], words, np.random.default_rng(0))


def test_an_end_is_where_a_document_ends(toy_vocab):
    """Not where a block cuts it; of a backward model the end is the beginning of the document."""
    v, rng, ids = toy_vocab, np.random.default_rng(0), np.arange(40, 44)
    for edges in ((True, True), (True, False), (False, True), (False, False)):
        text = Text([ids], np.zeros(1, int), begins=edges[0], ends=edges[1])
        for backward in (False, True):
            words = ids[::-1] if backward else ids
            end = [v.sep] * edges[1 - backward]
            example = task(v, backward=backward).pretrain(text, rng)
            assert example.asks[0].label.tolist() == [*words, *end]
            assert example.towers["x"].token.tolist() == [v.cls, *words, *end][:-1]
            whole = task(v, backward=backward, cut_ends=True).pretrain(text, rng)
            assert whole.asks[0].label.tolist() == [*words, v.sep]
            none = task(v, backward=backward, ends=False).pretrain(text, rng)
            assert none.asks[0].label.tolist() == [*words]
