"""MASS: the docstring's table, k = 1 and k = m, the start rule, blocks, filling a span."""

import numpy as np
import pytest

from unitk.errors import UsageError
from unitk.tasks.mass import MASS, layout


def task(vocab, **config):
    return MASS(MASS.Config(**config), vocab)


def test_layout_is_the_table(ids, labels):
    example = layout(
        ids("C a b c d e f S"), np.array([3, 4, 5]), ids("M M M"), np.zeros(3, np.int64)
    )
    enc, dec = example.towers["enc"], example.towers["dec"]
    assert enc.token.tolist() == ids("C a b M M M f S").tolist()
    assert enc.pos.tolist() == [0, 1, 2, 3, 4, 5, 6, 7]
    assert enc.cross.tolist() == [1, 1, 1, 0, 0, 0, 1, 1] and not enc.now.any()
    assert dec.token.tolist() == ids("b c d").tolist()
    assert dec.pos.tolist() == [2, 3, 4] and dec.now.tolist() == dec.born.tolist() == [0, 1, 2]
    assert labels(example, "lm", "dec") == ids("c d e").tolist()


def test_half_is_hidden_and_the_rest_is_untouched(toy_vocab, some_text):
    made, rng, v = task(toy_vocab), np.random.default_rng(0), toy_vocab
    for n in (1, 2, 7, 8, 30, 61):
        for _ in range(50):
            text = some_text(v, n, rng)
            example = made.pretrain(text, rng)
            enc, dec, [ask] = example.towers["enc"], example.towers["dec"], example.asks
            tokens = np.concatenate([[v.cls], text.ids, [v.sep]])
            hidden = dec.pos + 1
            assert len(hidden) == round(0.5 * (n + 2)), "both symbols count, as in XLM's code"
            assert (np.diff(hidden) == 1).all() and (ask.label == tokens[hidden]).all()
            assert (dec.token == tokens[hidden - 1]).all()
            rest = np.delete(np.arange(n + 2), hidden)
            assert (enc.token[rest] == tokens[rest]).all() and enc.cross[rest].all()
            assert (enc.cross == (enc.token != v.mask)).all(), "only MASKs are out of sight"
            assert enc.cross[0] and max(len(enc), len(dec)) <= made.slots(np.array(n))


def test_the_start_rule(toy_vocab):
    """As measured in the official code: 20 tokens of which 10 are hidden."""
    made, rng = task(toy_vocab), np.random.default_rng(0)
    starts = np.bincount([made.spans(20, 0.5, rng)[0, 0] for _ in range(30000)]) / 30000
    assert starts[1] == pytest.approx(0.26, abs=0.01)
    assert starts[10] == pytest.approx(0.26, abs=0.01)
    assert starts[2:10] == pytest.approx([0.06] * 8, abs=0.006)


def test_the_encoder_reads_80_10_10(toy_vocab, some_text):
    made, rng, v = task(toy_vocab), np.random.default_rng(0), toy_vocab
    seen = []
    for _ in range(150):
        example = made.pretrain(some_text(v, 200, rng), rng)
        dec, label = example.towers["dec"], example.asks[0].label
        read = example.towers["enc"].token[dec.pos + 1]
        seen.append(np.where(read == v.mask, 0, np.where(read == label, 1, 2)))
    share = np.bincount(np.concatenate(seen)) / (150 * 100)
    assert share == pytest.approx([0.8, 0.1, 0.1], abs=0.01)


def test_one_hidden_token_is_predicted_from_all_others(toy_vocab, some_text):
    """k = 1: the decoder is fed one token, which the encoder shows too."""
    made = task(toy_vocab, mask_ratio=0.01, mask_keep_random=(1.0, 0.0, 0.0))
    rng = np.random.default_rng(0)
    for _ in range(100):
        text = some_text(toy_vocab, 20, rng)
        example = made.pretrain(text, rng)
        enc, dec = example.towers["enc"], example.towers["dec"]
        assert len(dec) == 1
        framed = {toy_vocab.cls, toy_vocab.sep, *text.ids.tolist()}
        assert set(enc.token[enc.cross == 1]) == framed - set(example.asks[0].label)
        assert dec.token[0] in enc.token[enc.cross == 1]


def test_all_hidden_is_a_language_model(toy_vocab, some_text):
    """k = m: the encoder shows nothing of the text, the decoder is fed everything."""
    made = task(toy_vocab, mask_ratio=1.0, mask_keep_random=(1.0, 0.0, 0.0))
    rng, v = np.random.default_rng(0), toy_vocab
    one, two = (made.pretrain(some_text(v, 20, rng), rng) for _ in range(2))
    assert (one.towers["enc"].table == two.towers["enc"].table).all()
    assert one.towers["enc"].token[one.towers["enc"].cross == 1].tolist() == [v.cls]
    dec, label = one.towers["dec"], one.asks[0].label
    assert dec.token[0] == v.cls and label[-1] == v.sep
    assert (dec.token[1:] == label[:-1]).all() and dec.pos.tolist() == list(range(21))


def test_the_block_variant_hides_a_span_in_every_64_tokens(toy_vocab):
    made = task(toy_vocab, block_size=64, edge_chance=(0.0,))
    rng = np.random.default_rng(0)
    for tokens, count in ((512, 8), (132, 3), (130, 2), (65, 1), (3, 1)):
        starts = []
        for _ in range(300):
            spans = made.spans(tokens, made.config.mask_ratio, rng)
            assert len(spans) == count
            for number, (a, b) in enumerate(spans):
                first = 1 + 64 * number
                block = min(64, tokens - first)
                assert first <= a < b <= first + block and b - a == max(1, int(0.5 * block))
            starts.append(spans[0, 0])
        if tokens == 512:
            assert np.mean(starts) == pytest.approx(17, abs=1.5), "anywhere, no 20/20/60"


def test_beginnings_and_ends_have_chances_of_their_own(toy_vocab):
    """30 % of the spans begin the text, 20 % end it; the others are anywhere, also at an edge."""
    made, rng = task(toy_vocab, edge_chance=(0.3, 0.2)), np.random.default_rng(0)
    starts = np.array([made.spans(41, 0.5, rng)[0, 0] for _ in range(4000)])
    anywhere = 0.5 / 21  # of 21 places
    assert np.mean(starts == 1) == pytest.approx(0.3 + anywhere, abs=0.03)
    assert np.mean(starts == 21) == pytest.approx(0.2 + anywhere, abs=0.03)
    only = task(toy_vocab, edge_chance=(0.0, 1.0))
    assert {only.spans(41, 0.5, rng)[0, 0] for _ in range(20)} == {21}


def test_masks_in_sight_of_the_decoder_are_an_option(toy_vocab, some_text):
    made, rng = task(toy_vocab, cross_masks=True), np.random.default_rng(0)
    assert made.pretrain(some_text(toy_vocab, 30, rng), rng).towers["enc"].cross.all()


def test_a_prompt_with_masks_is_laid_out_as_in_pre_training(toy_vocab):
    v, made = toy_vocab, task(toy_vocab, mask_keep_random=(1.0, 0.0, 0.0))
    words = np.array(v.encode("The baba kelo mipu sane"))
    tokens = np.concatenate([[v.cls], words, [v.sep]])
    masks, none = np.array([v.mask] * 2), np.zeros(2, np.int64)
    trained = layout(tokens, np.array([2, 3]), masks, none).towers
    source = words.copy()
    source[1:3] = v.mask
    prompt = made.prompt([source]).towers
    assert (prompt["enc"].table == trained["enc"].table).all()
    assert (prompt["dec"].table == trained["dec"].table[:, :1]).all()
    assert made.text([source], np.append(words[1:4], v.sep)) == v.decode(words)
    with pytest.raises(UsageError, match="one run"):
        made.prompt([np.array([v.mask, 40, v.mask])])


def test_without_masks_it_is_an_encoder_decoder(toy_vocab):
    from unitk.tasks.seq2seq import Seq2Seq

    made, plain = task(toy_vocab), Seq2Seq(Seq2Seq.Config(), toy_vocab)
    one, two = (
        t.finetune([np.array([40, 41])], np.array([50]), np.random.default_rng(0))
        for t in (made, plain)
    )
    for tower in ("enc", "dec"):
        assert (one.towers[tower].table == two.towers[tower].table).all()
    assert made.text([np.array([40])], np.array([50, toy_vocab.sep])) == toy_vocab.decode([50])


def test_options_are_checked():
    for wrong in ((), (0.6,), (0.6, 0.5)):
        with pytest.raises(UsageError, match="--task.edge-chance"):
            MASS.Config(edge_chance=wrong)
