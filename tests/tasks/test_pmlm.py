"""UniLMv2: the docstring's tables, the worked example, the official rule, the ablations."""

import numpy as np
import pytest
from mask_tables import UNILM2_MASK, parse_mask

from unitk.data.cuts import Text
from unitk.masks import dense
from unitk.slots import unroll
from unitk.spans import places_in
from unitk.tasks.pmlm import PMLM, layout


def task(vocab, pairs=False, **config):
    return PMLM(PMLM.Config(pairs=pairs, **config), vocab)


def seen_words(example, row):
    """Tokens that a slot sees, MASKs and pseudo tokens left out."""
    x = example.towers["x"]
    return set(x.token[dense(x.table, x.table)[row]].tolist())


def test_layout_is_the_table(ids, labels):
    M, P = ids("M P")
    place, sizes = np.array([4, 5, 2]), np.array([2, 1])
    example = layout(
        ids("C a b c d e f S"), np.zeros(8, int), place, sizes, ids("M M M"), mask=M, pseudo=P
    )
    x = example.towers["x"]
    assert x.token.tolist() == ids("C a b c d e f S M M M P P P").tolist()
    assert x.pos.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 4, 5, 2, 4, 5, 2]
    assert x.now.tolist() == x.born.tolist() == [0, 0, 5, 0, 3, 3, 0, 0, 0, 0, 0, 2, 2, 4]
    assert x.dies[-3:].tolist() == [2, 2, 4], "pseudo tokens are probes"
    d, e, b = ids("d e b")
    assert labels(example, "ae") == [-1] * 8 + [d, e, b] + [-1] * 3
    assert labels(example, "par") == [-1] * 11 + [d, e, b]


def test_what_is_kept_or_random_is_so_at_m_and_p(ids):
    M, P = ids("M P")
    place, sizes = np.array([4, 5, 2]), np.array([2, 1])
    x = layout(
        ids("C a b c d e f S"), np.zeros(8, int), place, sizes, ids("d x M"), mask=M, pseudo=P
    ).towers["x"]
    assert x.token.tolist() == ids("C a b c d e f S d x M d x P").tolist()


def test_the_worked_example_4_5_then_2():
    header, expected = parse_mask(UNILM2_MASK)
    tokens = np.arange(7)  # x0 is where C would; x1..x6
    place, sizes = np.array([4, 5, 2]), np.array([2, 1])
    x = layout(
        tokens, np.zeros(7, int), place, sizes, np.array([99] * 3), mask=99, pseudo=98
    ).towers["x"]
    names = [{99: "M", 98: "P"}.get(t, "x") + str(p) for t, p in zip(x.token, x.pos, strict=True)]
    order = np.array([names.index(name) for name in header])
    picked = x.take(order)
    assert (dense(picked.table, picked.table) == expected).all()
    assert picked.pos.tolist() == [1, 2, 2, 2, 3, 4, 4, 4, 5, 5, 5, 6]


def test_the_mask_is_the_official_rule_on_random_blocks(toy_vocab, some_text):
    """`create_attention_mask`: weights 0, i, -i; a true key k is visible to a true query iff
    w_k <= w_q, to a pseudo query iff w_k < -w_q; a pseudo key iff w_k == w_q."""
    made, rng = task(toy_vocab), np.random.default_rng(0)
    for n in (1, 5, 20, 60, 100):
        for _ in range(10):
            x = made.pretrain(some_text(toy_vocab, n, rng), rng).towers["x"]
            step = x.now // 2
            weight = np.where(x.dies == x.now, -step, step)
            q, k = weight[:, None], weight[None]
            true = np.where(q >= 0, k <= q, k < -q)
            assert (dense(x.table, x.table) == np.where(k >= 0, true, k == q)).all()


def test_budget_and_bound(toy_vocab, some_text):
    made, rng = task(toy_vocab), np.random.default_rng(0)
    most = 0
    for _ in range(2000):
        example = made.pretrain(some_text(toy_vocab, 30, rng), rng)
        count = len(example.asks[0].label)
        assert np.ceil(0.15 * 32) <= count <= np.ceil(0.15 * 32) + 5
        assert len(example.towers["x"]) == 32 + 2 * count
        most = max(most, len(example.towers["x"]))
    assert most == made.slots(np.array(30))


@pytest.mark.parametrize("objective", ["ae", "par", "ae+par"])
@pytest.mark.parametrize("blockwise", [True, False])
def test_the_rows_of_the_ablation(toy_vocab, some_text, objective, blockwise):
    made, rng = task(toy_vocab, objective=objective, blockwise=blockwise), np.random.default_rng(0)
    for _ in range(50):
        text = some_text(toy_vocab, 60, rng)
        example = made.pretrain(text, rng)
        x = example.towers["x"]
        assert [ask.name for ask in example.asks] == objective.split("+")
        if objective == "ae":  # BERT with blocks: n slots, all in sight of each other
            assert len(x) == 62 == made.slots(np.array(60)) and not x.now.any()
            order = np.argsort(x.pos)
            ask = example.asks[0]
            token = x.token.copy()
            token[ask.rows[:, 0]] = ask.label
            assert token[order].tolist() == [toy_vocab.cls, *text.ids, toy_vocab.sep]
        elif not blockwise:
            times = x.now[x.dies == x.now]
            assert len(set(times.tolist())) == len(times), "one token a step"


def test_ae_alone_is_the_ae_of_both(toy_vocab, some_text):
    """What M sees does not depend on P and the hidden originals being there."""
    text = some_text(toy_vocab, 60, np.random.default_rng(0))
    both = task(toy_vocab).pretrain(text, np.random.default_rng(1))
    alone = task(toy_vocab, objective="ae").pretrain(text, np.random.default_rng(1))
    x, y = both.towers["x"], alone.towers["x"]
    rows = both.asks[0].rows[:, 0]
    seen = dense(x.table, x.table)[rows]
    assert (seen == (x.now == 0)).all()
    assert (x.table[:, seen[0]] == y.table).all()
    assert both.asks[0].label.tolist() == alone.asks[0].label.tolist()


def test_par_of_one_token_blocks_left_to_right_sees_what_a_causal_model_sees():
    tokens = np.arange(20, 29)
    place, ones = np.arange(1, 9), np.ones(8, int)
    example = layout(tokens, 0 * tokens, place, ones, np.full(8, 99), mask=99, pseudo=98)
    par = example.asks[1]
    for row, label in zip(par.rows[:, 0], par.label, strict=True):
        assert seen_words(example, row) - {98, 99} == set(range(20, label))


def test_fine_tuning_is_the_table_and_unrolled(toy_vocab):
    made = task(toy_vocab, mask_keep_random=(1.0, 0.0, 0.0), word_drop=0.0)
    v, P = toy_vocab, len(toy_vocab)
    source, target = [np.array([40, 41])], np.array([50, 51])
    example = made.finetune(source, target, np.random.default_rng(0))
    x, [ask] = example.towers["x"], example.asks
    assert x.token.tolist() == [v.cls, 40, 41, v.sep, P, 50, P, 51, P]
    assert x.pos.tolist() == [0, 1, 2, 3, 4, 4, 5, 5, 6]
    assert x.now.tolist() == [0, 0, 0, 0, 2, 3, 4, 5, 6]
    assert x.seg.tolist() == [0] * 4 + [1] * 5
    assert ask.rows[:, 0].tolist() == [4, 6, 8] and ask.label.tolist() == [50, 51, v.sep]
    again = unroll(made.prompt(source), made.protocol, np.append(target, v.sep))
    assert (again.towers["x"].table == x.table).all()
    for row, before in zip((4, 6, 8), ([], [50], [50, 51]), strict=True):
        assert seen_words(example, row) == {v.cls, 40, 41, v.sep, P, *before}


def test_word_drop_hides_half_of_the_words_that_are_seen(toy_vocab, some_text):
    made, rng, v = task(toy_vocab), np.random.default_rng(0), toy_vocab
    P, shown, asked = len(toy_vocab), [], []
    for _ in range(200):
        target = some_text(v, 100, rng).ids
        example = made.finetune([np.array([40])], target, rng)
        x, rows = example.towers["x"], example.asks[0].rows[:, 0]
        words, pseudo = x.token[rows[1:] - 1], x.token[rows]
        same = np.where(pseudo == P, v.mask, pseudo)[:-1] == words
        assert ((words == target) | same).all(), "a dropped word reads what P drew"
        shown.append(words != target)
        kept = np.append(target, v.sep) == pseudo
        asked.append(np.where(pseudo == P, 0, np.where(kept, 1, 2)))
    share = np.bincount(np.concatenate(asked)) / 20200
    assert share == pytest.approx([0.8, 0.1, 0.1], abs=0.01)
    assert np.mean(shown) == pytest.approx(0.45, abs=0.01)


def test_the_pseudo_token_has_its_own_row_or_that_of_mask(toy_vocab):
    own, shared = task(toy_vocab), task(toy_vocab, pseudo="mask")
    assert own.virtual == ("[P]",) and own.protocol.probe == len(toy_vocab)
    assert shared.virtual == () and shared.protocol.probe == toy_vocab.mask
    text = Text([own.words[:40]], np.zeros(1, int))
    one, two = (made.pretrain(text, np.random.default_rng(0)).towers["x"] for made in (own, shared))
    assert (np.where(one.token == len(toy_vocab), toy_vocab.mask, one.token) == two.token).all()


def test_separators_inside_a_text_stay(toy_vocab, some_text):
    made, rng = task(toy_vocab), np.random.default_rng(0)
    for _ in range(200):
        text = some_text(toy_vocab, 20, rng)
        text.ids[[5, 9]] = toy_vocab.sep
        assert toy_vocab.sep not in made.pretrain(text, rng).asks[0].label


def test_places_follow_the_spans():
    assert places_in(np.array([[4, 6], [2, 3], [7, 10]])).tolist() == [4, 5, 2, 7, 8, 9]


def test_two_parts_have_a_segment_each(toy_vocab, some_text):
    """[SOS] S1 [EOS] S2 [EOS]; M and P have the segment of the token that they stand for."""
    made, rng = task(toy_vocab, pairs=True), np.random.default_rng(0)
    first, second = (some_text(toy_vocab, n, rng).ids for n in (20, 12))
    for _ in range(20):
        example = made.pretrain(Text([first, second], np.array([0, 20])), rng)
        x, v = example.towers["x"], toy_vocab
        assert x.token[:35].tolist() == [v.cls, *first, v.sep, *second, v.sep]
        assert x.seg[:35].tolist() == [0] * 22 + [1] * 13
        assert (x.seg == (x.pos >= 22)).all() and len(x) <= made.slots(np.array(32))


def test_pairs_are_neighbours(toy_vocab):
    """The cut is unilm's, without parts from elsewhere."""
    sentences, documents = np.arange(0, 401, 4), np.array([0, 50, 100])
    cut = task(toy_vocab, pairs=True).cut(sentences, documents, 40, np.random.default_rng(0))
    two = cut.seconds[:, 1] > cut.seconds[:, 0]
    assert two.sum() > 5 and not cut.flags.any()
    assert (cut.stops == cut.seconds[:, 0])[two].all()
    assert (np.unique(cut.starts // 200) == [0, 1]).all()
