"""BART: the docstring's table, laws of spans and sentences, filling, scores of continuations."""

import math

import numpy as np
import pytest

from unitk.data.cuts import Text
from unitk.tasks.bart import BART, infill_spans
from unitk.tasks.seq2seq import Seq2Seq


def task(vocab, **config):
    return BART(BART.Config(**config), vocab)


def test_layout_is_the_table(ids, toy_vocab, labels):
    text, mask = ids("a b c d e f"), ids("M")
    read = infill_spans(text[[3, 4, 5, 0, 1, 2]], np.array([[1, 3]]), mask)
    read = np.insert(read, 3, mask)
    assert read.tolist() == ids("d M a M b c").tolist()
    made, v = task(toy_vocab), toy_vocab
    example = made.finetune([read], text, np.random.default_rng(0))
    enc, dec = example.towers["enc"], example.towers["dec"]
    assert enc.token.tolist() == [v.cls, *read, v.sep]
    assert enc.pos.tolist() == [*range(8)] and not enc.now.any() and enc.cross.all()
    assert dec.token.tolist() == [v.sep, v.cls, *text]
    assert dec.pos.tolist() == dec.now.tolist() == [*range(8)]
    assert labels(example, "lm", "dec") == [-1, *text, v.sep]


def test_spans_that_meet_or_overlap(ids):
    text, masks = ids("a b c d e f"), ids("M M")

    def shown(*spans):
        return infill_spans(text, np.array(spans), masks[: len(spans)]).tolist()

    assert shown((1, 3), (3, 5)) == ids("a M M f").tolist()
    assert shown((1, 4), (3, 5)) == shown((3, 5), (1, 4)) == ids("a M f").tolist()
    assert shown((0, 6)) == ids("M").tolist()
    assert shown((0, 1), (5, 6)) == ids("M b c d e M").tolist()


def test_whole_words_are_hidden_or_shown(toy_vocab):
    """Of words of two tokens each; 0.3 are the budget, and spans that overlap hide fewer."""
    made, rng = task(toy_vocab, permute_sentences=0), np.random.default_rng(0)
    begins = toy_vocab.starts[made.words]
    count = min(begins.sum(), (~begins).sum(), 30)
    assert count >= 20
    words = np.stack([made.words[begins][:count], made.words[~begins][:count]], axis=1)
    for _ in range(300):
        text = Text([words.ravel()], np.zeros(1, int))
        read = made.pretrain(text, rng).towers["enc"].token[1:-1]
        shown = np.isin(words, read)
        assert (shown[:, 0] == shown[:, 1]).all() and 1 <= (~shown[:, 0]).sum() <= math.ceil(
            0.3 * count
        )
        assert read[read != toy_vocab.mask].tolist() == words[shown[:, 0]].ravel().tolist()


def test_what_is_hidden_and_how_many_masks_follow_from_the_law(toy_vocab):
    """600 words of a token, of which 180 are the budget: a place is shown if no span begins so
    many places before it that it reaches it; a span has a MASK if it begins at such a place."""
    made, rng = task(toy_vocab, permute_sentences=0), np.random.default_rng(0)
    law = np.array([math.exp(-3) * 3**k / math.factorial(k) for k in range(30)])
    count = 180 * (1 - law[0]) / 3  # of spans of a word or more
    beyond = 1 - np.cumsum(law)
    reaches = 1 - count / 600 * beyond / (1 - law[0])
    masks, hidden = [], []
    words = made.words[toy_vocab.starts[made.words]]
    for _ in range(400):
        text = Text([rng.choice(words, 600)], np.zeros(1, int))
        read = made.pretrain(text, rng).towers["enc"].token[1:-1]
        masks.append((read == toy_vocab.mask).sum())
        hidden.append(600 - (read != toy_vocab.mask).sum())
    assert np.mean(hidden) == pytest.approx(600 * (1 - reaches.prod()), rel=0.02)
    inserted = count * law[0] / (1 - law[0])
    assert np.mean(masks) == pytest.approx(count * reaches[1:].prod() + inserted, rel=0.02)


def test_zeros_are_inserted_with_the_laws_share():
    from unitk.spans import poisson_counts

    rng, zeros, count, total = np.random.default_rng(0), 0, 0, []
    for _ in range(3000):
        lengths, none = poisson_counts(90, 3.0, 100, rng)
        assert lengths.sum() == 90 and lengths.min() > 0
        zeros, count = zeros + none, count + none + len(lengths)
        total.append(lengths[0])
    assert zeros / count == pytest.approx(math.exp(-3), rel=0.1)
    assert np.mean(total) == pytest.approx(3 / (1 - math.exp(-3)), rel=0.03)
    assert max(poisson_counts(30, 0.5, 40, rng)[1] for _ in range(300)) <= 40


def sentences_read(made, text, rng):
    """The sentences in the order in which the encoder reads them."""
    read = made.add_noise(text.ids, text.sentences, 1e-9, rng)
    firsts = text.ids[text.sentences]
    return [int(np.flatnonzero(firsts == one)[0]) for one in read if one in firsts]


@pytest.mark.every(2)
@pytest.mark.parametrize("share, moved", [(0.0, 0), (0.4, 4), (1.0, 10)])
def test_sentences_change_places(toy_vocab, share, moved):
    made, rng = task(toy_vocab, permute_sentences=share), np.random.default_rng(0)
    ids = rng.permutation(made.words)[:70]
    text = Text([ids], np.arange(0, 70, 7))
    seen = np.zeros((10, 10))
    for _ in range(2000):
        order = sentences_read(made, text, rng)
        if len(order) == 10:  # the one word that is hidden is not the first of a sentence
            assert sum(i != place for place, i in enumerate(order)) <= moved
            seen[np.arange(10), order] += 1
    share_of_each = seen / seen.sum(1)
    if moved == 10:
        assert share_of_each == pytest.approx(np.full((10, 10), 0.1), abs=0.03)
    elif moved:
        # a sentence is drawn with 0.4, and one in four comes back to its place
        assert np.diag(share_of_each) == pytest.approx(np.full(10, 0.7), abs=0.05)


def test_random_words_stand_for_spans(toy_vocab):
    made, rng = task(toy_vocab, mask_random=0.25), np.random.default_rng(0)
    masks = others = 0
    for _ in range(200):
        text = Text([made.words[:100]], np.zeros(1, int))
        read = made.add_noise(text.ids, text.sentences, 0.3, rng)
        masks += (read == toy_vocab.mask).sum()
        others += (~np.isin(read, text.ids) & (read != toy_vocab.mask)).sum()
    unseen = 1 - 100 / len(made.words)  # of random words those that the text has not
    assert others / unseen / (others / unseen + masks) == pytest.approx(0.25, abs=0.03)


def test_a_fixed_share_of_the_inserted_masks_is_random(toy_vocab):
    """fairseq rounds their number up: the smallest share is one of them, and no other span."""
    made, rng = task(toy_vocab, mask_random=1e-9, mean_span=0.3), np.random.default_rng(0)
    text, seen = np.full(100, made.words[toy_vocab.starts[made.words]][0]), []
    for _ in range(50):
        read = made.add_noise(text, np.zeros(1, int), 0.3, rng)
        seen.append(int((~np.isin(read, [text[0], toy_vocab.mask])).sum()))
        assert (read == toy_vocab.mask).sum() > 40
    assert max(seen) == 1 and np.mean(seen) > 0.8  # some random words are that of the text


def test_pairs_and_prompts_are_those_of_an_encoder_decoder(toy_vocab):
    made, plain = task(toy_vocab), Seq2Seq(Seq2Seq.Config(opening="both"), toy_vocab)
    source, target, rng = (
        [made.words[:5], made.words[5:9]],
        made.words[9:14],
        np.random.default_rng(0),
    )
    for one, two in (
        (made.finetune(source, target, rng), plain.finetune(source, target, rng)),
        (made.prompt(source), plain.prompt(source)),
    ):
        for name in ("enc", "dec"):
            assert (one.towers[name].table == two.towers[name].table).all()


def test_a_continuation_is_asked_for_after_a_mask(toy_vocab):
    made, v = task(toy_vocab), toy_vocab
    before, text = made.words[:3], made.words[3:7]
    example = made.lay_out_continuation(before, text)
    assert example.towers["enc"].token.tolist() == [v.cls, *before, v.mask, v.sep]
    assert example.towers["dec"].token.tolist() == [v.sep, v.cls, *before, *text[:-1]]
    [ask] = example.asks
    assert ask.label.tolist() == text.tolist() and ask.rows[:, 0].tolist() == [4, 5, 6, 7]
