"""UniLM: the docstring's tables, the four masks of the official code, the shares, fine-tuning."""

import numpy as np
import pytest

from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.masks import dense
from unitk.slots import unroll
from unitk.tasks.base import frame_parts
from unitk.tasks.unilm import BOTH, LEFT, RIGHT, SEQ2SEQ, UniLM, layout


def task(vocab, **config):
    return UniLM(UniLM.Config(**config), vocab)


def kind_of(example):
    return {0: BOTH, 4: SEQ2SEQ, 2: LEFT, 3: RIGHT}[int(example.towers["x"].seg[0])]


def test_layout_of_two_parts_is_the_table(ids, labels):
    tokens, _ = frame_parts([ids("a b"), ids("c d")], *ids("C S"))
    b, d = ids("b d")
    for kind, at, seg in (
        (BOTH, [0, 0, 0, 0, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1]),
        (SEQ2SEQ, [0, 0, 0, 0, 1, 2, 3], [4, 4, 4, 4, 5, 5, 5]),
    ):
        example = layout(kind, tokens, 4, np.array([2, 5]), ids("M M"))
        x = example.towers["x"]
        assert x.token.tolist() == ids("C a M S c M S").tolist()
        assert x.pos.tolist() == [0, 1, 2, 3, 4, 5, 6]
        assert labels(example, "mlm") == [-1, -1, b, -1, -1, d, -1]
        assert x.now.tolist() == x.born.tolist() == at and x.seg.tolist() == seg


def test_layout_of_one_part_is_the_table(ids, labels):
    tokens, _ = frame_parts([ids("a b c d")], *ids("C S"))
    for kind, at, seg in (
        (LEFT, [0, 1, 2, 3, 4, 5], [2] * 6),
        (RIGHT, [0, -1, -2, -3, -4, -5], [3] * 6),
    ):
        example = layout(kind, tokens, 6, np.array([2]), ids("M"))
        x = example.towers["x"]
        assert x.token.tolist() == ids("C a M c d S").tolist()
        assert x.pos.tolist() == [0, 1, 2, 3, 4, 5]
        assert labels(example, "mlm") == [-1, -1, *ids("b"), -1, -1, -1]
        assert x.now.tolist() == x.born.tolist() == at and x.seg.tolist() == seg


@pytest.mark.parametrize("na, nb", [(2, 1), (4, 3), (3, 9)])
def test_the_masks_are_the_official_ones(na, nb):
    """`BertForPreTrainingLossMask.forward`: query i, key j; task_idx 0 to 3."""
    n = na + nb
    i, j = np.arange(n)[:, None], np.arange(n)[None]
    official = {
        BOTH: np.ones((n, n), bool),
        LEFT: j <= i,
        RIGHT: j >= i,
        SEQ2SEQ: (j < na) | (j <= i),
    }
    for kind, expected in official.items():
        x = layout(kind, np.arange(n), na, np.array([1]), np.array([9])).towers["x"]
        assert (dense(x.table, x.table) == expected).all()


def test_the_masks_have_their_shares_and_half_of_the_asked_pairs_are_strangers(toy_vocab):
    made, rng = task(toy_vocab), np.random.default_rng(0)
    strangers = made.cut.random
    words, kinds, verdicts = made.words[:20], [], []
    for _ in range(12000):
        flag = int(rng.random() < strangers)  # as the cut makes them
        example = made.pretrain(Text([words[:8], words[8:]], np.array([0, 8]), flag=flag), rng)
        kinds.append(kind_of(example))
        asked = [int(ask.label[0]) for ask in example.asks if ask.name == "nsp"]
        assert len(asked) == (kinds[-1] == BOTH), "only the bidirectional mask is asked"
        assert not flag or asked == [1], "strangers are seen in both directions only"
        verdicts += asked
    share = np.bincount(kinds) / len(kinds)
    assert share == pytest.approx([1 / 3, 1 / 3, 1 / 6, 1 / 6], abs=0.012)
    assert np.mean(verdicts) == pytest.approx(0.5, abs=0.02)


@pytest.mark.every(2)
@pytest.mark.parametrize("nsp", [True, False])
def test_a_single_part_has_the_same_shares_and_is_split_for_seq2seq(toy_vocab, some_text, nsp):
    made, rng = task(toy_vocab, nsp=nsp), np.random.default_rng(0)
    kinds, text = [], some_text(toy_vocab, 40, rng)
    for _ in range(6000):
        example = made.pretrain(text, rng)
        kinds.append(kind_of(example))
        x = example.towers["x"]
        assert [ask.name for ask in example.asks] == ["mlm"]
        if kinds[-1] == SEQ2SEQ:
            assert (x.seg == 4).sum() - 2 in (10, 20, 30), "at a sentence border"
            assert len(x) == 43 and (x.token == toy_vocab.sep).sum() == 2
        else:
            assert len(x) == 42
    share = np.bincount(kinds) / len(kinds)
    assert share == pytest.approx([1 / 3, 1 / 3, 1 / 6, 1 / 6], abs=0.02)


def test_both_parts_of_a_seq2seq_text_are_hidden(toy_vocab):
    made, rng = task(toy_vocab, shares=(0.0, 1.0, 0.0, 0.0)), np.random.default_rng(0)
    words, sides = made.words[:60], []
    for _ in range(200):
        example = made.pretrain(Text([words[:30], words[30:]], np.array([0, 30])), rng)
        sides += example.towers["x"].seg[example.asks[0].rows[:, 0]].tolist()
        assert len(example.asks[0].label) == round(0.15 * 63)
    assert np.mean(np.array(sides) == 4) == pytest.approx(0.5, abs=0.03)


@pytest.mark.parametrize("length", [1, 2, 7, 20])
def test_fine_tuning_hides_the_target_and_its_end(toy_vocab, length):
    made, rng, v = task(toy_vocab), np.random.default_rng(0), toy_vocab
    source, target = made.words[:10], made.words[10 : 10 + length]
    count, ends = max(1, round(0.7 * length)), 0
    for _ in range(2000):
        example = made.finetune([source], target, rng)
        x, [ask] = example.towers["x"], example.asks
        rows = ask.rows[:, 0]
        assert len(rows) == count and rows.min() >= 12
        assert x.token[:12].tolist() == [v.cls, *source.tolist(), v.sep]
        assert (np.append(target, v.sep)[rows - 12] == ask.label).all()
        ends += v.sep in ask.label
    assert x.now.tolist() == [0] * 12 + list(range(1, length + 2))
    assert x.seg.tolist() == [4] * 12 + [5] * (length + 1)
    assert ends / 2000 == pytest.approx(count / (length + 1), abs=0.035)


def test_a_prompt_ends_with_a_mask_that_leaves_no_trace(toy_vocab):
    made, v = task(toy_vocab), toy_vocab
    x = made.prompt([np.array([40, 41])]).towers["x"]
    assert x.token.tolist() == [v.cls, 40, 41, v.sep, v.mask]
    assert x.pos.tolist() == [0, 1, 2, 3, 4] and x.seg.tolist() == [4, 4, 4, 4, 5]
    assert x.now.tolist() == [0, 0, 0, 0, 1] and x.dies[-1] == 1
    assert v.mask in made.protocol.banned and made.protocol.probe == v.mask


def test_with_a_position_shift_words_are_asked_at_the_one_before(toy_vocab):
    """s2s-ft, mask_way v0: [CLS] source | [SEP] target, next tokens as labels."""
    v, rng, source, target = toy_vocab, np.random.default_rng(0), [np.array([40, 41])], [50, 51]
    made = task(v, position_shift=True, target_mask_ratio=0.0)
    example = made.finetune(source, np.array(target), rng)
    x, [ask] = example.towers["x"], example.asks
    assert x.token.tolist() == [v.cls, 40, 41, v.sep, 50, 51]
    assert x.pos.tolist() == [0, 1, 2, 3, 4, 5] and x.seg.tolist() == [4, 4, 4, 5, 5, 5]
    assert x.now.tolist() == x.born.tolist() == [0, 0, 0, 1, 2, 3]
    assert ask.rows[:, 0].tolist() == [3, 4, 5] and ask.label.tolist() == [50, 51, v.sep]
    seen = np.tri(6, dtype=bool)
    seen[:, :3] = True
    assert (dense(x.table, x.table) == seen).all()
    again = unroll(made.prompt(source), made.protocol, [*target, v.sep])
    assert (again.towers["x"].table == x.table).all() and not made.prompt(source).asks
    hiding = task(v, position_shift=True, target_mask_ratio=0.5, mask_keep_random=(1.0, 0.0, 0.0))
    for _ in range(20):
        hidden = hiding.finetune(source, np.array(target), rng)
        assert (hidden.towers["x"].token == v.mask).sum() == 1
        assert hidden.towers["x"].token[3] == v.sep
        assert hidden.asks[0].label.tolist() == [50, 51, v.sep]


def test_options_are_checked():
    with pytest.raises(UsageError, match="--task.target-mask-ratio"):
        UniLM.Config(target_mask_ratio=0.0)
