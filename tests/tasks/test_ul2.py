"""UL2: the docstring's tables, the mixture by frequency, modes, one tower as two."""

import numpy as np
import pytest

from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.slots import unroll
from unitk.tasks.t5 import T5
from unitk.tasks.ul2 import UL2, S


def task(vocab, **config):
    return UL2(UL2.Config(**config), vocab)


def test_layout_is_the_table(toy_vocab, labels):
    """The last 2 of 6 tokens, as 0.25 * 6 is rounded to an even number."""
    v, two, one = toy_vocab, *(task(toy_vocab, mixture=(0, 1, 0), towers=n) for n in ("two", "one"))
    text = two.words[:6]
    a, b, c, d, e, f = text
    x, (m,) = two.sentinels[0], two.modes[S]
    example = two.pretrain(Text([text], np.zeros(1, int)), np.random.default_rng(0))
    enc, dec = example.towers["enc"], example.towers["dec"]
    assert enc.token.tolist() == [m, a, b, c, d, x, v.sep] and not enc.now.any()
    assert dec.token.tolist() == [v.pad, x, e, f] and dec.now.tolist() == [0, 1, 2, 3]
    assert labels(example, "lm", "dec") == [x, e, f, v.sep]
    example = one.pretrain(Text([text], np.zeros(1, int)), np.random.default_rng(0))
    slots = example.towers["x"]
    assert slots.token.tolist() == [*enc.token, *dec.token]
    assert slots.pos.tolist() == [*range(11)]
    assert slots.now.tolist() == slots.born.tolist() == [*[0] * 7, 1, 2, 3, 4]
    assert labels(example, "lm") == [*[-1] * 7, x, e, f, v.sep]


def test_the_mixture_is_of_seven_denoisers(toy_vocab, some_text):
    """Of 400 tokens: hidden ones, and spans; all denoisers alike (table 1)."""
    made, rng, seen = task(toy_vocab), np.random.default_rng(0), {}
    modes = {int(mode[0]): name for mode, name in zip(made.modes, "RSX", strict=True)}
    text = some_text(toy_vocab, 400, rng)
    for _ in range(3500):
        example = made.pretrain(text, rng)
        label = example.asks[0].label[:-1]
        marks = np.isin(label, made.sentinels)
        key = modes[int(example.towers["enc"].token[0])], int((~marks).sum()), int(marks.sum())
        seen[key] = seen.get(key, 0) + 1
    expected = [("R", 60, 20), ("R", 60, 8), ("S", 100, 1)]
    expected += [("X", 200, 67), ("X", 200, 25), ("X", 60, 1), ("X", 200, 3)]
    assert seen.keys() == {*expected}
    shares = [seen[key] / 3500 for key in expected]
    assert shares == pytest.approx([1 / 7] * 7, abs=0.03)


def test_modes_are_the_last_sentinels_or_texts(toy_vocab):
    made, t5 = task(toy_vocab), T5(T5.Config(), toy_vocab)
    assert [*made.sentinels, *np.concatenate(made.modes)] == t5.sentinels.tolist()
    texts = task(toy_vocab, modes=("the baba", "kelo", "mipu"))
    assert [mode.tolist() for mode in texts.modes] == [*map(toy_vocab.encode, texts.config.modes)]
    assert len(texts.sentinels) == 100
    assert texts.frame == 2 + max(map(len, texts.modes))


@pytest.mark.parametrize("towers", ["one", "two"])
def test_prompts_have_mode_s_and_blanks_mode_r(toy_vocab, towers):
    made, v = task(toy_vocab, towers=towers), toy_vocab
    words = made.words[:4]
    (r,), (s,), _ = made.modes
    first = [made.prompt([source]).towers["enc" if towers == "two" else "x"].token[:5]
             for source in (words, np.insert(words, 2, v.mask))]  # fmt: skip
    assert first[0].tolist() == [s, *words]
    assert first[1].tolist() == [r, *words[:2], made.sentinels[0], *words[2:3], *words[3:]][:5]
    pair = made.finetune([words], made.words[5:8], np.random.default_rng(0))
    written = np.append(made.words[5:8], v.sep)
    again = unroll(made.prompt([words]), made.protocol, written)
    for name, slots in pair.towers.items():
        assert (slots.table == again.towers[name].table).all()


def test_continuations_and_texts_that_are_understood(toy_vocab):
    one = task(toy_vocab, towers="one")
    before, text = one.words[:3], one.words[3:6]
    example, x = one.lay_out_continuation(before, text), one.sentinels[0]
    (s,) = one.modes[S]
    v = toy_vocab
    assert example.towers["x"].token.tolist() == [s, *before, x, v.sep, v.pad, x, *text[:-1]]
    assert example.asks[0].label.tolist() == text.tolist()
    encoded = one.lay_out_parts([before, text])
    token = encoded.example.towers["x"].token
    assert [token[places].tolist() for places in encoded.parts] == [before.tolist(), text.tolist()]
    assert token[encoded.whole] == v.pad


def test_options_are_checked():
    for wrong in ({"modes": ("a", "b")}, {"sentinels": 3}):
        with pytest.raises(UsageError, match="--task."):
            UL2.Config(**wrong)


def test_the_architecture_follows_the_towers():
    for towers, arch in (("one", "qwen3_mini"), ("two", "t5gemma_mini")):
        assert UL2.component("arch", UL2.Config(towers=towers)) == arch
