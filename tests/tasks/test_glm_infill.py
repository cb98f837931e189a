"""GLM: the docstring's table, the span modes, fine-tuning, infilling."""

import re

import numpy as np
import pytest

from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.slots import unroll
from unitk.tasks.glm_infill import GLMInfill, layout

LETTERS = {letter: number for number, letter in enumerate("abcdefghijMSE", start=10)}
M, S, E = (LETTERS[letter] for letter in "MSE")


def ids(text):
    return np.array([LETTERS[letter] for letter in text.split()])


def task(vocab, **config):
    return GLMInfill(GLMInfill.Config(**config), vocab)


def some_text(vocab, n, rng):
    """Words other than symbols, all different if they reach."""
    words = np.setdiff1d(np.arange(len(vocab)), list(vocab.symbols.values()))
    words = rng.permutation(words)
    return Text([np.resize(words, n)], np.zeros(1, int))


def test_layout_is_the_table():
    spans = np.array([[4, 6], [2, 3]])
    made = layout(ids("a b c d e f"), spans, mask=M, start=S, end=E, name="lm")
    x = made.towers["x"]
    assert x.token.tolist() == ids("a b M d M S e f S c").tolist()
    assert x.pos.tolist() == [0, 1, 2, 3, 4, 4, 4, 4, 2, 2]
    assert x.pos2.tolist() == [0, 0, 0, 0, 0, 1, 2, 3, 1, 2]
    assert x.now.tolist() == [0, 0, 0, 0, 0, 1, 2, 3, 4, 5]
    assert made.asks[0].rows[:, 0].tolist() == [5, 6, 7, 8, 9]
    assert made.asks[0].label.tolist() == ids("e f E c E").tolist()


def test_layout_equals_unroll_after_its_part_a():
    rng = np.random.default_rng(0)
    text = np.arange(30, 70)
    for _ in range(50):
        cuts = np.sort(rng.choice(40, 6, replace=False)).reshape(3, 2)
        spans = rng.permutation(cuts)
        made = layout(text, spans, mask=M, start=S, end=E, name="lm")
        x = made.towers["x"]
        n = int((x.now == 0).sum())
        first = x.take(np.arange(n + 1))
        homes = np.stack([x.pos[n:][x.token[n:] == S], np.ones(3, int)], axis=1)
        from unitk.slots import Example, Protocol

        glm = Protocol(end=E, dpos=0, dpos2=1, begin=S)
        again = unroll(Example({"x": first}, blanks=homes[1:]), glm, made.asks[0].label)
        assert (again.towers["x"].table == x.table).all()
        assert (again.asks[0].rows == made.asks[0].rows).all()


def rebuild(example, vocab):
    """Put the spans of part B back into part A."""
    x, label = example.towers["x"], example.asks[0].label
    part_a = x.token[x.now == 0].tolist()
    fills = np.split(label, np.flatnonzero(label == vocab.eop) + 1)[:-1]
    homes = x.pos[x.now > 0][x.pos2[x.now > 0] == 1]
    for home, fill in sorted(zip(homes.tolist(), fills, strict=True), key=lambda pair: -pair[0]):
        part_a[home : home + 1] = fill[:-1].tolist()
    return part_a


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("n", [1, 2, 7, 60])
def test_every_mode_restores_the_text_and_names_its_mask(toy_vocab, mode, n):
    made = task(toy_vocab, mixture=tuple(float(mode == m) for m in range(3)))
    mask = (toy_vocab.mask, toy_vocab.smask, toy_vocab.gmask)[mode]
    for seed in range(30):
        rng = np.random.default_rng(seed)
        text = some_text(toy_vocab, n, rng)
        example = made.pretrain(text, rng)
        assert rebuild(example, toy_vocab) == [toy_vocab.cls, *text.ids.tolist(), toy_vocab.sep]
        x = example.towers["x"]
        shown = x.token[x.now == 0]
        assert (shown == mask).sum() == (example.asks[0].label == toy_vocab.eop).sum()
        assert shown[0] == toy_vocab.cls and shown[-1] == toy_vocab.sep
        assert toy_vocab.eop not in x.token, "the end of a piece is never an input"
        if mode == 0:
            assert not ((shown[:-1] == mask) & (shown[1:] == mask)).any()


@pytest.mark.parametrize(("mode", "n"), [(0, 2), (0, 60), (1, 7), (1, 60), (2, 7), (2, 60)])
def test_no_span_goes_beyond_the_second_positions_that_are_declared(toy_vocab, mode, n):
    weights = tuple(float(mode == m) for m in range(3))
    made = task(toy_vocab, mixture=weights, mean_span=6.0, max_span=9, mask_ratio=0.3)
    reached = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        example = made.pretrain(some_text(toy_vocab, n, rng), rng)
        reached = max(reached, int(example.towers["x"].pos2.max()))
    assert reached <= made.last_pos2(n)
    assert mode == 1 or (mode, n) == (0, 2) or reached > made.last_pos2(n) - 3  # no idle limit


def test_token_mode_at_512_has_the_published_statistics(toy_vocab):
    made, rng = task(toy_vocab), np.random.default_rng(0)
    text = some_text(toy_vocab, 510, rng)
    blanks, hidden, slots = [], [], []
    for _ in range(1500):
        example = made.pretrain(text, rng)
        label = example.asks[0].label
        blanks.append((label == toy_vocab.eop).sum())
        hidden.append((label != toy_vocab.eop).sum())
        slots.append(len(example.towers["x"]))
    assert np.mean(blanks) == pytest.approx(24.6, abs=0.3)
    assert np.mean(hidden) / 512 == pytest.approx(0.151, abs=0.001)
    assert min(hidden) >= 76 and np.mean(slots) == pytest.approx(1.096 * 512, rel=0.003)
    assert max(slots) < made.slots(np.array(510)) <= 1.165 * 512


@pytest.mark.parametrize("law", [(3.0, 39), (3.0, 3), (10.0, 3), (10.0, 39), (0.5, 39)])
def test_the_largest_share_can_be_hidden_in_texts_of_any_length(toy_vocab, law):
    """Draws that cannot fit would be repeated for ever."""
    with pytest.raises(UsageError, match="--task.mask-ratio must be") as found:
        GLMInfill.Config(mask_ratio=1.0, mean_span=law[0], max_span=law[1])
    share = float(re.search(r"\(0, ([\d.]+)\]", str(found.value))[1]) - 0.01  # it is rounded
    made = task(toy_vocab, mask_ratio=share, mean_span=law[0], max_span=law[1])
    rng = np.random.default_rng(3)
    for n in (*range(1, 12), 64, 256):
        for _ in range(10):
            example = made.pretrain(some_text(toy_vocab, n, rng), rng)
            hidden = (example.asks[0].label != toy_vocab.eop).sum()
            assert min(int(share * (n + 2)), n) <= hidden <= n


def test_part_b_comes_in_random_order(toy_vocab):
    made, rng = task(toy_vocab), np.random.default_rng(0)
    firsts = []
    for _ in range(400):
        x = made.pretrain(some_text(toy_vocab, 60, rng), rng).towers["x"]
        homes = x.pos[(x.now > 0) & (x.pos2 == 1)]
        if len(homes) == 3:
            firsts.append(int(np.argsort(homes)[0]))
    share = np.bincount(firsts, minlength=3) / len(firsts)
    assert share == pytest.approx([1 / 3] * 3, abs=0.1)


def test_the_mixture_is_drawn_by_its_weights(toy_vocab):
    made, rng = task(toy_vocab, mixture=(2.0, 1.0, 1.0)), np.random.default_rng(0)
    text, seen = some_text(toy_vocab, 20, rng), []
    for _ in range(2000):
        token = made.pretrain(text, rng).towers["x"].token
        symbols = (toy_vocab.mask, toy_vocab.smask, toy_vocab.gmask)
        seen.append(next(m for m, symbol in enumerate(symbols) if symbol in token))
    assert np.bincount(seen) / 2000 == pytest.approx([0.5, 0.25, 0.25], abs=0.03)


def test_every_mode_is_an_ask_that_counts_by_the_mixture(toy_vocab):
    made, rng = task(toy_vocab, mixture=(2.0, 1.0, 1.0)), np.random.default_rng(0)
    assert made.asks == {"lm": 0.5, "sentences": 0.25, "document": 0.25}
    symbols = {"lm": "mask", "sentences": "smask", "document": "gmask"}
    for _ in range(50):
        example = made.pretrain(some_text(toy_vocab, 20, rng), rng)
        [ask] = example.asks
        assert toy_vocab.symbols[symbols[ask.name]] in example.towers["x"].token


def test_all_modes_may_have_one_symbol(toy_vocab):
    rng, text = np.random.default_rng(0), some_text(toy_vocab, 20, np.random.default_rng(1))
    made, names = task(toy_vocab, mixture=(1.0, 1.0, 1.0), mode_symbols=False), set()
    for _ in range(50):
        example = made.pretrain(text, rng)
        names.add(example.asks[0].name)
        assert toy_vocab.mask in example.towers["x"].token
        assert not np.isin(example.towers["x"].token, (toy_vocab.smask, toy_vocab.gmask)).any()
    assert len(names) == 3


def test_a_document_has_half_of_all_its_tokens_hidden_or_more(toy_vocab):
    """Symbols count, as in the official code: of 20 words and two symbols 11 are the least."""
    made, rng = task(toy_vocab, mixture=(0.0, 0.0, 1.0)), np.random.default_rng(0)
    for n in (1, 2, 19, 20):
        text = some_text(toy_vocab, n, rng)
        hidden = {len(made.pretrain(text, rng).asks[0].label) - 1 for _ in range(400)}
        assert hidden == {*range(min((n + 2) // 2, n), n + 1)}


def test_several_documents_are_a_prefix_and_the_rest(toy_vocab):
    """The official code's document mode: [CLS] prefix [gMASK] | [sop] rest, and no end of piece."""
    v, rng = toy_vocab, np.random.default_rng(0)
    made = task(v, mixture=(0.0, 0.0, 1.0))
    words = some_text(v, 20, rng).ids
    words[8] = v.sep
    seen = set()
    for _ in range(200):
        example = made.pretrain(Text([words], np.zeros(1, int)), rng)
        x, [ask] = example.towers["x"], example.asks
        seen.add(size := int((x.now > 0).sum()))
        assert len(x) == 20 + 3
        before = 20 + 1 - size
        assert x.token[x.now == 0].tolist() == [v.cls, *words[:before], v.gmask]
        assert ask.label.tolist() == [*words[before:], v.sep]
        assert x.token[x.now > 0].tolist() == [v.sop, *words[before:]]
        assert (x.pos[x.now > 0] == before + 1).all()
    assert seen == {*range(11, 21)}, "the end of the text is one of the hidden ones"


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("symbol", ["mask", "gmask"])
def test_finetune_is_the_prompt_unrolled(toy_vocab, place, symbol):
    made = task(toy_vocab, mask_place=place, mask_symbol=symbol)
    v, blank = toy_vocab, toy_vocab.symbols[symbol]
    a, b, target = np.array([30, 31]), np.array([40]), np.array([50, 51])
    example = made.finetune([a, b], target, np.random.default_rng(0))
    x = example.towers["x"]
    body = [blank, 30, 31, v.sep, 40] if place == "first" else [30, 31, v.sep, 40, blank]
    assert x.token.tolist() == [v.cls, *body, v.sep, v.sop, 50, 51]
    home = 1 if place == "first" else 5
    assert x.pos.tolist() == [0, 1, 2, 3, 4, 5, 6, home, home, home]
    assert x.pos2.tolist() == [0] * 7 + [1, 2, 3]
    assert example.asks[0].label.tolist() == [50, 51, v.eop]
    assert example.asks[0].rows[:, 0].tolist() == [7, 8, 9]
    prompt = made.prompt([a, b])
    assert len(prompt.towers["x"]) == 8 and not prompt.asks and len(prompt.blanks) == 0


def test_a_source_with_blanks_is_filled_in_order(toy_vocab):
    made, v = task(toy_vocab), toy_vocab
    source = [np.array([30, v.mask, 31, v.mask])]
    prompt = made.prompt(source)
    x = prompt.towers["x"]
    assert x.token.tolist() == [v.cls, 30, v.mask, 31, v.mask, v.sep, v.sop]
    assert (x.pos[-1], x.pos2[-1], x.now[-1]) == (2, 1, 1)
    assert prompt.blanks.tolist() == [[4, 1]]
    words = v.encode("The baba kelo")
    written = np.array([*words[:2], v.eop, *words[2:], v.eop])
    filled = np.array([30, *words[:2], 31, *words[2:]])
    assert made.text(source, written) == v.decode(filled)
    assert made.text([np.array([30])], written[: 2 + 1]) == v.decode(written[:2])


def test_part_a_without_its_first_symbol(toy_vocab):
    v, source = toy_vocab, [np.array([40, toy_vocab.mask, 41, toy_vocab.mask])]
    plain, bare = (task(v, opened=opened).prompt(source) for opened in (True, False))
    assert bare.towers["x"].token.tolist() == [40, v.mask, 41, v.mask, v.sep, v.sop]
    assert plain.towers["x"].token.tolist() == [v.cls, *bare.towers["x"].token]
    assert bare.towers["x"].pos.tolist() == [0, 1, 2, 3, 4, 1]
    assert bare.blanks.tolist() == [[3, 1]] and plain.blanks.tolist() == [[4, 1]]
