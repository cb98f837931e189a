"""ERNIE 2.0: the docstrings' tables, stages, each objective, texts that lack what is asked."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest

from unitk.data.cuts import AT_THE_END, Text
from unitk.errors import UsageError
from unitk.families.ernie2.sentences import find_connectives, layout, num_orders, shuffle_segments
from unitk.families.ernie2.task import CONNECTIVES, ERNIE2, OBJECTIVES, shares
from unitk.families.ernie2.words import capital, document, lower_case
from unitk.tasks.base import frame_parts
from unitk.vocab.train import train_vocab
from unitk.vocab.words import word_vocab

from ..conftest import toy_lines


def task(vocab, *objectives, **config):
    more = {"objectives": objectives} if objectives else {}
    return ERNIE2(ERNIE2.Config(learning="multitask", **more, **config), vocab)


def example_of(made, text, seed=0):
    return made.pretrain(text, np.random.default_rng(seed))


@pytest.fixture(scope="module")
def cased():
    """Words with a capital and without; `only` has one form."""
    return word_vocab("the The cat Cat sat Sat only However But . , a b c")


def test_stages_are_those_of_the_paper():
    """Table 6 of the paper: thousands of updates of four objectives in four stages."""
    found = np.zeros((4, 4))
    stage = [0, 20, 60, 120, 200]
    for step in range(1, 201):
        column = int(np.searchsorted(stage, step)) - 1
        found[:, column] += shares(4, "sequential", (step, 200))
    expected = [[20, 10, 10, 10], [0, 30, 10, 10], [0, 0, 40, 10], [0, 0, 0, 50]]
    assert found == pytest.approx(np.array(expected))
    alone = np.array([shares(4, "continual", (step, 200)) for step in range(1, 201)])
    assert (alone == np.repeat(np.eye(4), 50, axis=0)).all()
    for learning, when in (("multitask", (3, 200)), ("sequential", AT_THE_END)):
        assert shares(4, learning, when) == (0.25,) * 4
    with pytest.raises(UsageError, match="learning sequential.*updates"):
        shares(4, "sequential", (1, None))


def test_texts_are_shared_out_by_the_stage_and_numbered(toy_vocab, some_text):
    made, rng = task(toy_vocab, "knowledge", "document", "order"), np.random.default_rng(0)
    text = some_text(toy_vocab, 30, rng)
    text = Text(np.split(text.ids, [20]), np.array([0, 10, 20]))
    staged = ERNIE2(ERNIE2.Config(objectives=made.config.objectives), toy_vocab)

    def numbers(task, when):
        texts = Text(text.parts, text.sentences, when=when)
        found = [int(task.pretrain(texts, rng).inputs["task"][0]) for _ in range(600)]
        return np.bincount(found, minlength=4) / len(found)

    assert numbers(made, (1, 9)) == pytest.approx([1 / 3, 0, 1 / 3, 1 / 3], abs=0.07)
    assert numbers(staged, (1, 60)) == pytest.approx([1, 0, 0, 0])
    assert numbers(staged, (60, 60)) == pytest.approx([1 / 6, 0, 1 / 6, 2 / 3], abs=0.07)
    assert made.heads == ("tag:document:2", "class:order:9")
    names = [made.lay_out_for(name, text, rng).asks[0].name for name in OBJECTIVES[2:5]]
    assert names == ["document", "order", "distance"]


def test_capitals_are_the_table(cased, labels):
    def ids(words):
        return np.array(cased.encode(words))

    lower, both = lower_case(cased)
    assert lower[ids("The Cat the only")].tolist() == ids("the cat the only").tolist()
    assert both[ids("the Sat only .")].tolist() == [True, True, False, False]
    tokens, seg = frame_parts([ids("The only cat")], cased.cls, cased.sep)
    example = capital(tokens, seg, lower, both)
    read = example.towers["x"].token.tolist()
    assert read == [cased.cls, *ids("the only cat").tolist(), cased.sep]
    assert labels(example, "capital") == [-1, 1, -1, 0, -1]
    assert example.asks[0].head == "tag:capital"
    assert capital(*frame_parts([ids("only .")], cased.cls, cased.sep), lower, both) is None


def test_pieces_that_begin_words_differ_from_those_inside():
    """A capital inside a word is not made the beginning of a word."""
    lines = [line if i % 2 else line.title() for i, line in enumerate(toy_lines(200))]
    vocab = train_vocab(lines, 300)
    lower, both = lower_case(vocab)
    for index in np.flatnonzero(both & (lower != np.arange(len(vocab)))):
        one, other = (vocab.model.text(int(i)) for i in (index, lower[index]))
        assert one != other == one.lower() and vocab.starts[index] == vocab.starts[lower[index]]
    assert both.any() and not both[list(vocab.symbols.values())].any()


def test_words_of_another_part_are_the_table(toy_vocab, ids, labels):
    example = document(ids("a b c d"), ids("e c a"), *ids("C S"))
    assert example.towers["x"].token.tolist() == ids("C a b c d S").tolist()
    assert labels(example, "document") == [-1, 1, 0, 1, 0, -1]


def test_orders_are_the_table(ids, labels):
    text, borders = ids("a b c d e f"), np.array([2, 5])
    rng, seen = np.random.default_rng(0), Counter()
    for _ in range(3000):
        parts, label = shuffle_segments(text, borders, 3, rng)
        seen[label] += 1
        if label == 7:
            example = layout("order", parts, label, *ids("C S"))
    assert example.towers["x"].token.tolist() == ids("C f S a b S c d e S").tolist()
    assert example.towers["x"].seg.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 2]
    assert labels(example, "order") == [7, *[-1] * 9]
    # a third each for 1, 2 and 3 segments, whose orders are alike frequent
    rates = np.array([seen[label] for label in range(9)]) / 3000
    assert rates == pytest.approx([1 / 3, *[1 / 6] * 2, *[1 / 18] * 6], abs=0.03)


@pytest.mark.parametrize("most", [2, 3, 4])
def test_the_class_of_an_order_restores_the_text(most):
    text, rng, seen = np.arange(20), np.random.default_rng(0), {}
    orders = [order for n in range(1, most + 1) for order in permutations(range(n))]
    assert len(orders) == num_orders(most)
    for _ in range(2000):
        parts, label = shuffle_segments(text, np.array([3, 4, 9, 15]), most, rng)
        back = [parts[place] for place in np.argsort(orders[label])]
        assert np.concatenate(back).tolist() == text.tolist()
        seen[label] = True
        assert {int(part[0]) for part in parts} <= {0, 3, 4, 9, 15}
    assert len(seen) == len(orders)
    assert shuffle_segments(text, np.array([], int), most, rng)[1] == 0  # a single sentence


def test_connectives_are_left_out(cased, labels):
    def ids(words):
        return np.array(cased.encode(words))

    made = task(cased, "discourse", connectives=("But", "However"))
    text = Text([ids("a b . However , c . But the only . a")], np.array([0, 3, 7, 11]))
    seen = set()
    for seed in range(40):
        example = example_of(made, text, seed)
        token, label = example.towers["x"].token, labels(example, "discourse")[0]
        expected = {1: ("a b .", "c ."), 0: ("However , c .", "the only .")}[label]
        one, two = map(ids, expected)
        if label == 1:  # words are spelt apart here: the comma is another word
            two = ids(", c .")
        assert token.tolist() == [cased.cls, *one, cased.sep, *two, cased.sep]
        assert example.inputs["task"].tolist() == [OBJECTIVES.index("discourse")]
        seen.add(label)
    assert seen == {0, 1}
    without = example_of(made, Text([ids("But a . b")], np.array([0, 3])))
    assert [ask.name for ask in without.asks] == ["mlm"]  # the first sentence has none before it
    assert without.inputs["task"].tolist() == [0]


def test_a_comma_goes_with_its_connective_and_a_longer_word_is_none():
    text, markers = np.array([1, 2, 7, 8, 3, 7, 9, 4, 7, 5, 3]), {(7,): 0, (7, 8): 1}
    starts = np.array([0, 2, 5, 8])
    words = np.array([1, 1, 1, 0, 1, 1, 0, 1, 1, 1, 1], bool)
    # 7 8 is the longer connective; 7 goes on as 7 9; 7 is one by itself
    assert find_connectives(text, starts, words, markers) == [(1, 2, 1), (3, 1, 0)]


def test_distance_and_relevance_ask_for_the_flag_of_the_cut(toy_vocab, labels):
    v = toy_vocab
    for name in ("distance", "relevance"):
        made = task(v, name)
        a, b = made.words[:3], made.words[3:5]
        for flag in range(3):
            example = example_of(made, Text([a, b], np.array([0, 3]), flag=flag))
            token = [v.cls, *a, v.sep, *b, v.sep]
            assert example.towers["x"].token.tolist() == token
            assert example.towers["x"].seg.tolist() == [0] * 5 + [1] * 3
            assert labels(example, name) == [flag, *[-1] * 7]
            assert example.inputs["task"].tolist() == [OBJECTIVES.index(name)]
        single = example_of(made, Text([a], np.zeros(1, int)))
        assert [ask.name for ask in single.asks] == ["mlm"]


def test_parts_of_two_documents_are_no_paragraph(toy_vocab):
    made, rng = task(toy_vocab), np.random.default_rng(0)
    a, b = made.words[:6], made.words[6:10]
    for flag, whole in ((0, 10), (1, 6), (2, 6)):
        text = Text([a, b], np.array([0, 3, 6, 8]), flag=flag)
        for _ in range(20):
            x = made.lay_out_for("order", text, rng).towers["x"]
            assert np.isin(x.token, made.words).sum() == whole
        other = made.lay_out_for("document", text, rng)
        assert (other is None) == (flag == 2)


def test_options_are_checked():
    assert len({*CONNECTIVES}) == 16
    for wrong, message in (
        ({"objectives": ()}, "objectives must be some of knowledge, .*, relevance, got none"),
        ({"objectives": ("order", "order")}, "objectives must be some of .* got order,order"),
        ({"objectives": ("sorting",)}, "got sorting"),
        ({"objectives": ("order", "relevance")}, "objectives: relevance reads other texts"),
        ({"max_segments": 5}, "max-segments must be 2 to 4, got 5"),
        ({"connectives": ("But", "But")}, "connectives must be two or more"),
    ):
        with pytest.raises(UsageError, match=f"--task.{message}|{message}"):
            ERNIE2.Config(**wrong)
