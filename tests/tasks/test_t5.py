"""T5: the docstring's table, laws of spans, sentinels beyond a vocabulary, filling."""

import numpy as np
import pytest

from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.spans import alternating_spans
from unitk.tasks.seq2seq import Seq2Seq
from unitk.tasks.t5 import T5, corrupt_spans


def task(vocab, **config):
    return T5(T5.Config(**config), vocab)


def test_layout_is_the_table(toy_vocab, labels):
    made = task(toy_vocab)
    v, (a, b, c, d, e, f), (x, y) = toy_vocab, made.words[:6], made.sentinels[:2]
    read, written = corrupt_spans(
        np.array([a, b, c, d, e, f]), np.array([[1, 3], [5, 6]]), made.sentinels
    )
    assert read.tolist() == [a, x, d, e, y] and written.tolist() == [x, b, c, y, f]
    example = Seq2Seq.finetune(made, [read], written, np.random.default_rng(0))
    enc, dec = example.towers["enc"], example.towers["dec"]
    assert enc.token.tolist() == [a, x, d, e, y, v.sep]
    assert dec.token.tolist() == [v.pad, x, b, c, y, f]
    assert dec.now.tolist() == dec.pos.tolist() == [*range(6)] and not enc.now.any()
    assert labels(example, "lm", "dec") == [x, b, c, y, f, v.sep]


def test_every_cut_is_as_likely_as_another():
    """5 tokens, of which 3 are hidden in 2 spans: 2 + 1 or 1 + 2, each after one that is shown."""
    rng, seen = np.random.default_rng(0), {}
    for _ in range(4000):
        spans = alternating_spans(6, 3, 2, rng).tolist()
        seen[str(spans)] = seen.get(str(spans), 0) + 1
    # 3 hidden = 2 + 1 or 1 + 2, 3 shown = 2 + 1 or 1 + 2
    expected = ("[[1, 2], [4, 6]]", "[[1, 3], [5, 6]]", "[[2, 3], [4, 6]]", "[[2, 4], [5, 6]]")
    assert set(seen) == set(expected)
    assert np.array([seen[one] for one in expected]) / 4000 == pytest.approx(
        np.full(4, 0.25), abs=0.03
    )


@pytest.mark.parametrize(
    "n, hidden, count",
    [(568, 85, 28), (512, 77, 26), (10, 2, 1), (2, 1, 1), (1, 1, 1), (70, 10, 3)],
)
def test_the_published_numbers_of_tokens_and_spans(toy_vocab, n, hidden, count, some_text):
    """568 tokens become 512 and 114 with the ends (official code); 10.5 tokens are 10."""
    made, rng = task(toy_vocab), np.random.default_rng(0)
    for _ in range(20):
        text = some_text(toy_vocab, n, rng)
        example = made.pretrain(text, rng)
        enc, dec = example.towers["enc"].token, example.asks[0].label
        assert len(enc) == n - hidden + count + 1 and len(dec) == hidden + count + 1
        assert np.isin(enc, made.sentinels).sum() == count
        shown = enc[:-1]
        if n > 1:  # the first token is shown, the last one hidden
            assert shown[0] == text.ids[0] and shown[-1] == made.sentinels[count - 1]
        assert dec[-2] == text.ids[-1] and dec[0] == made.sentinels[0]
    if n == 568:
        assert (len(enc), len(dec)) == (512, 114)


def test_source_and_target_restore_the_text(toy_vocab, some_text):
    made, rng = task(toy_vocab, mask_ratio=0.5), np.random.default_rng(0)
    for n in (2, 9, 60):
        text = some_text(toy_vocab, n, rng)
        example = made.pretrain(text, rng)
        read, label = example.towers["enc"].token[:-1], example.asks[0].label[:-1]
        masked = np.where(np.isin(read, made.sentinels), toy_vocab.mask, read)
        assert made.text([masked], label) == toy_vocab.decode(text.ids)


def test_sentinels_are_beyond_the_vocabulary_and_change_no_hash(toy_vocab, tmp_path):
    vocab = task(toy_vocab).vocab
    size = len(toy_vocab)
    assert len(vocab) == size + 100 and vocab.hash == toy_vocab.hash
    assert vocab.sentinels == [*range(size + 99, size - 1, -1)]
    assert vocab.pieces([size + 99, size]) == ["<extra_id_0>", "<extra_id_99>"]
    assert toy_vocab.sentinels == [] and task(vocab).vocab is vocab
    vocab.save(tmp_path)
    again = type(vocab).load(tmp_path)
    assert again.sentinels == vocab.sentinels and again.hash == vocab.hash
    assert vocab.decode([size + 5, *toy_vocab.encode("the baba")]) == "the baba"
    assert set(task(toy_vocab).words) == set(Seq2Seq(Seq2Seq.Config(), toy_vocab).words)


def test_a_text_with_more_spans_than_sentinels_has_longer_ones(toy_vocab, some_text):
    made, rng = task(toy_vocab, sentinels=2), np.random.default_rng(0)
    example = made.pretrain(some_text(toy_vocab, 200, rng), rng)
    assert np.isin(example.towers["enc"].token, made.sentinels).sum() == 2
    assert len(example.asks[0].label) == 30 + 2 + 1


def test_masks_of_a_prompt_become_sentinels_and_are_filled(toy_vocab):
    made, v = task(toy_vocab), toy_vocab
    words, (x, y) = np.array(v.encode("the baba kelo mipu")), made.sentinels[:2]
    source = [np.insert(words, [1, len(words)], v.mask)]
    enc = made.prompt(source).towers["enc"].token
    assert enc[enc != v.sep].tolist() == np.insert(words, [1, len(words)], [x, y]).tolist()
    one, two = (np.array(v.encode(text)) for text in ("lulu", "sane teri"))
    filled = v.decode(np.concatenate([words[:1], one, words[1:], two]))
    # in whatever order; what is written before the first sentinel, and twice, is left out
    for written in ([x, *one, y, *two, v.sep], [*two, y, *two, x, *one, x, *two, v.sep]):
        assert made.text(source, np.array(written)) == filled
    kept = np.concatenate([words[:1], one, words[1:], [v.mask]])
    assert made.text(source, np.array([x, *one, v.sep])) == v.decode(kept)
    assert made.text([words], np.array([*one, v.sep])) == v.decode(one)
    with pytest.raises(UsageError, match="3 .MASK.s, .*model.* 2 sentinels"):
        task(toy_vocab, sentinels=2).prompt([np.full(3, v.mask)])


def test_a_continuation_is_asked_for_after_a_sentinel(toy_vocab):
    made, v = task(toy_vocab), toy_vocab
    before, text = made.words[:3], made.words[3:6]
    example, x = made.lay_out_continuation(before, text), made.sentinels[0]
    assert example.towers["enc"].token.tolist() == [*before, x, v.sep]
    assert example.towers["dec"].token.tolist() == [v.pad, x, *text[:-1]]
    assert example.asks[0].rows[:, 0].tolist() == [1, 2, 3]


def test_a_text_of_no_sentences_is_laid_out(toy_vocab):
    made = task(toy_vocab)
    example = made.pretrain(Text([made.words[:1]], np.zeros(1, int)), np.random.default_rng(0))
    assert example.towers["enc"].token.tolist() == [made.sentinels[0], toy_vocab.sep]
