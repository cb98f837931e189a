"""ERNIE 1.0: the docstring's tables, units of three levels, stages, dialogues."""

import numpy as np
import pytest

from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.tasks.base import frame_parts
from unitk.tasks.ernie import ERNIE, MARKS, begin_units, roles
from unitk.tasks.mlm import layout
from unitk.vocab.train import train_vocab


def task(vocab, **config):
    return ERNIE(ERNIE.Config(**config), vocab)


def annotated(text, *marked):
    """A text of one part with phrases [start, stop) and, after them, entities."""
    notes = np.zeros(len(text), np.uint8)
    for spans, (first, inside) in zip(marked, MARKS[1:], strict=False):
        for start, stop in spans:
            notes[start] |= first
            notes[start + 1 : stop] |= inside
    return Text([text], np.zeros(1, int), notes)


def hidden_in(example):
    """Places of the text, from 0, that are asked for."""
    return example.asks[0].rows[:, 0] - 1


def test_layout_is_the_table(toy_vocab, ids, labels):
    tokens, seg = frame_parts([ids("a b c d e f"), ids("g h")], *ids("C S"))
    example = layout(tokens, seg, np.array([3, 4, 5]), ids("M M M"))
    x = example.towers["x"]
    assert x.token.tolist() == ids("C a b M M M f S g h S").tolist()
    assert x.seg.tolist() == [0] * 8 + [1] * 3 and not x.now.any()
    assert labels(example, "mlm") == [-1, -1, -1, *ids("c d e"), *[-1] * 5]
    # the parts of the task: [2, 5) is a phrase, the only unit that this seed hides
    made = task(toy_vocab, levels=(0, 1, 0), mask_ratio=0.01, mask_keep_random=(1, 0, 0))
    text = annotated(np.flatnonzero(toy_vocab.starts)[:6], [(2, 5)])
    rng = np.random.default_rng(0)
    seen = {tuple(hidden_in(made.pretrain(text, rng))) for _ in range(200)}
    assert seen >= {(0,), (1,), (2, 3, 4), (5,)}
    assert all(len({2, 3, 4} & {*places}) in (0, 3) for places in seen)


def test_the_second_part_that_follows_is_1(toy_vocab):
    made, rng = task(toy_vocab), np.random.default_rng(0)
    for flag in (0, 1):
        text = Text([made.words[:4], made.words[4:9]], np.array([0, 4]), flag=flag)
        ask = made.pretrain(text, rng).asks[1]
        assert (ask.name, ask.head, ask.label.tolist()) == ("nsp", "class:nsp", [1 - flag])
    single = made.pretrain(Text([made.words[:4]], np.zeros(1, int)), rng)
    assert [ask.name for ask in single.asks] == ["mlm"]
    off = task(toy_vocab, nsp=False)
    assert (off.cut, off.heads, off.frame) == (None, (), 2)


def test_units_begin_where_the_annotation_does_and_after_it():
    words = np.array([1, 1, 0, 1, 0, 0, 1], bool)
    notes = np.array([0, 1, 2, 2, 0, 4, 8], np.uint8)
    found = [begin_units(words, notes, marks).astype(int).tolist() for marks in MARKS]
    assert found[0] == words.astype(int).tolist()
    assert found[1] == [1, 1, 0, 0, 1, 0, 1]
    assert found[2] == [1, 1, 0, 1, 0, 1, 0]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_each_unit_is_hidden_whole_by_a_chance_of_its_own(toy_vocab, level):
    weights = tuple(float(one == level) for one in range(3))
    made, rng = task(toy_vocab, levels=weights, nsp=False), np.random.default_rng(level)
    ids = np.tile(np.array(toy_vocab.encode("The baba kelo mipu sane teri lulu")), 10)
    text = annotated(ids, [(5, 9), (30, 33)], [(11, 14), (40, 47)])
    begins = begin_units(toy_vocab.starts[ids], text.notes, MARKS[level])
    unit = begins.cumsum() - 1
    assert np.bincount(unit).max() > 2
    rates, kinds = np.zeros(unit[-1] + 1), []
    for _ in range(1500):
        example = made.pretrain(text, rng)
        places = hidden_in(example)
        hidden = np.isin(np.arange(len(ids)), places)
        assert not set(unit[hidden]) & set(unit[~hidden])
        rates[np.unique(unit[hidden])] += 1 / 1500
        read = example.towers["x"].token[places + 1]
        kinds.append(np.where(read == toy_vocab.mask, 0, np.where(read == ids[places], 1, 2)))
    assert rates == pytest.approx(0.15, abs=0.05) and rates.mean() == pytest.approx(0.15, abs=3e-3)
    kinds = np.concatenate(kinds)
    # a random word is the token itself once in so many
    assert np.bincount(kinds) / len(kinds) == pytest.approx([0.8, 0.1, 0.1], abs=0.01)
    masked = kinds == 0  # neighbours are masked together as often as any two are
    assert (masked[1:] & masked[:-1]).mean() == pytest.approx(0.64, abs=0.02)


def test_characters_of_chinese_are_units():
    lines = ["北京大学在北京。", "我在大学学中文。", "他在北京学中文。"] * 20
    vocab = train_vocab(lines, 22)
    made, ids = task(vocab, nsp=False), np.array(vocab.encode(lines[0] * 4))
    assert vocab.starts[ids].sum() > len(ids) / 2
    rng, found = np.random.default_rng(0), set()
    for _ in range(300):
        found |= {len(hidden_in(made.pretrain(Text([ids], np.zeros(1, int)), rng)))}
    assert 1 in found, "a whole sentence would be one unit"


def test_stages_come_one_after_the_other_and_levels_mix_by_their_weights(toy_vocab):
    made, text = task(toy_vocab, levels=(1, 2, 1), stages=True), annotated(np.arange(30, 40), [])
    rng = np.random.default_rng(0)

    def levels(task, when):
        return task.level(Text(text.parts, text.sentences, text.notes, when=when), rng)

    assert [levels(made, (step, 8)) for step in range(1, 9)] == [0, 0, 1, 1, 1, 1, 2, 2]
    assert made.level(text, rng) == 2  # validation reads what training ends with
    with pytest.raises(UsageError, match="stages .*needs.*updates.* --max-st"):
        levels(made, (1, None))
    mixed = task(toy_vocab, levels=(1, 2, 1))
    shares = np.bincount([mixed.level(text, rng) for _ in range(4000)]) / 4000
    assert shares == pytest.approx([0.25, 0.5, 0.25], abs=0.03)


def test_a_dialogue_is_the_table(toy_vocab, labels):
    made, v = task(toy_vocab, dialogue=True, mask_keep_random=(1, 0, 0)), toy_vocab
    a, b, c, d, e = made.words[:5]
    rng = np.random.default_rng(0)
    for notes, expected in (
        (None, [0, 0, 0, 0, 1, 1, 0, 0, 0]),
        ([32, 32, 16, 32, 32], [1, 1, 1, 1, 0, 0, 1, 1, 1]),
        ([16, 16, 16, 32, 32], [0, 0, 0, 0, 0, 0, 1, 1, 1]),
    ):
        notes = None if notes is None else np.array(notes, np.uint8)
        text = Text([made.words[:5]], np.array([0, 2, 3]), notes, flag=1)
        example = made.pretrain(text, rng)
        x = example.towers["x"]
        assert x.seg.tolist() == expected
        whole = np.where(np.array(labels(example, "mlm")) < 0, x.token, labels(example, "mlm"))
        assert whole.tolist() == [v.cls, a, b, v.sep, c, v.sep, d, e, v.sep]
        assert labels(example, "dialogue") == [0, *[-1] * 8]
    assert roles(np.array([16, 16, 48], np.uint8), np.array([0, 2])).tolist() == [0, 1]
    alone = made.pretrain(Text([made.words[:5]], np.zeros(1, int)), rng)
    assert [ask.name for ask in alone.asks] == ["mlm"]


def test_options_are_checked(toy_vocab):
    for wrong, message in (
        ({"stages": True}, "stages on has no effect with one level"),
        ({"dialogue": True, "nsp": False}, "dialogue on needs --task.nsp on"),
    ):
        with pytest.raises(UsageError, match=f"--task.{message}"):
            ERNIE.Config(**wrong)
    made = task(toy_vocab, levels=(0, 1, 0))
    # what is laid out before a run begins
    blank = Text([made.words[:5]], np.zeros(1, int), np.zeros(5, int))
    assert made.pretrain(blank, np.random.default_rng(0)).asks
    with pytest.raises(UsageError, match="levels 0,1,0: --data .*no annotations"):
        made.pretrain(Text([made.words[:5]], np.zeros(1, int)), np.random.default_rng(0))
