"""BERT's pair sampler: what a pair is, put-back, shortening, shares, a restatement."""

import numpy as np
import pytest

from unitk.data.corpus.folders import open_corpus
from unitk.data.cuts import SentencePairs, Turns
from unitk.data.texts import Texts


def corpus(rng, documents=40, most=30):
    """Borders of sentences of 1 to 20 tokens, and the first sentence of each document."""
    sizes = rng.integers(1, most, documents)
    lengths = rng.integers(1, 20, sizes.sum())
    return np.append(0, np.cumsum(lengths)), np.append(0, np.cumsum(sizes))


def runs(cut):
    """[(a, b, flag)] as token ranges."""
    first = np.stack([cut.starts, cut.stops], axis=1)
    return list(zip(first.tolist(), cut.seconds.tolist(), cut.flags.tolist(), strict=True))


def test_pairs_are_runs_within_documents_and_fit():
    rng = np.random.default_rng(0)
    for _ in range(30):
        sentences, documents = corpus(rng)
        cut = SentencePairs()(sentences, documents, 64, rng)
        walls = sentences[documents]
        for (a, b), (c, d), flag in runs(cut):
            assert a < b and c < d and (b - a) + (d - c) <= 64
            for start, stop in ((a, b), (c, d)):
                home = np.searchsorted(walls, [start, stop - 1], "right")
                assert home[0] == home[1], "a part lies within one document"
            assert flag or b <= c
            same = np.searchsorted(walls, a, "right") == np.searchsorted(walls, c, "right")
            assert same == (not flag)
        assert (cut.lengths == [b - a + d - c for (a, b), (c, d), _ in runs(cut)]).all()


def test_what_was_replaced_is_put_back():
    """Without shortening, the first parts and the seconds that follow them are the whole corpus."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        sentences, documents = corpus(rng)
        cut = SentencePairs(short=0.0)(sentences, documents, 10**6, rng)
        kept = [ab for ab, _, _ in runs(cut)] + [cd for _, cd, flag in runs(cut) if not flag]
        at = 0
        for start, stop in sorted(kept):
            assert start == at
            at = stop
        assert at == sentences[-1]


def test_parts_may_be_single_sentences():
    """RoBERTa's SENTENCE-PAIR: each part is a sentence, or what is left of a longer one."""
    rng = np.random.default_rng(0)
    sentences, documents = corpus(rng, documents=400)
    cut = SentencePairs(single=True)(sentences, documents, 64, rng)
    whole = {*zip(sentences[:-1].tolist(), sentences[1:].tolist(), strict=True)}
    pairs = runs(cut)
    assert all((*a,) in whole and (*b,) in whole for a, b, _ in pairs)
    assert all(flag or a[1] == b[0] for a, b, flag in pairs)
    assert np.mean(cut.flags) == pytest.approx(0.5, abs=0.05)


def test_half_of_the_pairs_are_strangers_and_a_tenth_is_short():
    rng = np.random.default_rng(0)
    sentences = np.arange(0, 10 * 20001, 10)
    documents = np.arange(0, 20001, 200)
    flags, lengths = [], []
    for _ in range(10):
        cut = SentencePairs()(sentences, documents, 100, rng)
        flags += cut.flags.tolist()
        lengths += cut.lengths.tolist()
    assert np.mean(flags) == pytest.approx(0.5, abs=0.02)
    # short ones have 2 to 100 tokens, in steps of ten; and what is left of a document
    assert np.mean(np.array(lengths) <= 80) == pytest.approx(0.1 * 0.79 + 0.03, abs=0.04)


def test_a_longer_part_gives_way_at_both_ends():
    rng = np.random.default_rng(0)
    sentences, documents = np.array([0, 65, 95]), np.array([0, 2])
    fronts = []
    for _ in range(500):
        cut = SentencePairs(random=0.0, short=0.0)(sentences, documents, 70, rng)
        [((a, b), (c, d), flag)] = runs(cut)
        assert (b - a, d - c, flag) == (40, 30, 0)
        fronts.append(a)
    assert np.mean(fronts) == pytest.approx(12.5, abs=0.5)
    cut = SentencePairs(random=0.0, short=0.0)(np.array([0, 38, 69]), documents, 39, rng)
    [((a, b), (c, d), _)] = runs(cut)
    assert (b - a, d - c) == (20, 19), "then in turns, the second part first"


def test_a_lone_sentence_gets_a_stranger_or_stays_alone():
    rng = np.random.default_rng(0)
    sentences, documents = np.arange(0, 55, 5), np.arange(11)
    bert = SentencePairs()(sentences, documents, 64, rng)
    assert bert.flags.all() and len(bert.flags) == 10
    alone = SentencePairs(1 / 6, complete=False)(sentences, documents, 64, rng)
    assert not alone.flags.any() and (alone.seconds[:, 0] == alone.seconds[:, 1]).all()


def test_empty_sentences_and_documents_are_passed_over():
    rng = np.random.default_rng(0)
    sentences = np.array([0, 0, 4, 4, 9, 9, 12])
    documents = np.array([0, 1, 1, 4, 6, 6])
    for _ in range(100):
        for (a, b), (c, d), _ in runs(SentencePairs()(sentences, documents, 64, rng)):
            assert a < b and c < d
    nothing = SentencePairs()(np.array([0, 0]), np.array([0, 1]), 64, rng)
    assert len(nothing.starts) == len(nothing.lengths) == 0


def test_the_draws_are_those_of_a_plain_restatement():
    """Shares, numbers and lengths of pairs against the original's loop over sentences."""
    rng = np.random.default_rng(0)
    sentences, documents = corpus(rng, documents=300)
    ours, theirs = [], []
    for _ in range(20):
        cut = SentencePairs()(sentences, documents, 64, rng)
        ours += [(flag, b - a, d - c) for (a, b), (c, d), flag in runs(cut)]
        theirs += official(np.diff(sentences), documents, 64, rng)
    assert len(ours) == pytest.approx(len(theirs), rel=0.02)
    assert np.mean(ours, axis=0) == pytest.approx(np.mean(theirs, axis=0), rel=0.03)
    assert np.std(ours, axis=0) == pytest.approx(np.std(theirs, axis=0), rel=0.05)


def official(lengths, documents, size, rng):
    """`create_instances_from_document`, on lengths, with a target drawn for each block."""
    found = []
    for number, (first, last) in enumerate(zip(documents, documents[1:], strict=False)):
        i, chunk = first, []
        target = rng.integers(2, size + 1) if rng.random() < 0.1 else size
        while i < last:
            chunk.append(lengths[i])
            if i == last - 1 or sum(chunk) >= target:
                end = rng.integers(1, len(chunk)) if len(chunk) > 1 else 1
                a, b = sum(chunk[:end]), sum(chunk[end:])
                far = len(chunk) == 1 or rng.random() < 0.5
                if far:
                    other = number
                    while other == number:
                        other = rng.integers(len(documents) - 1)
                    j, b = rng.integers(documents[other], documents[other + 1]), 0
                    while j < documents[other + 1]:
                        b += lengths[j]
                        if b >= target - a:
                            break
                        j += 1
                    i -= len(chunk) - end
                while a + b > size:
                    a, b = (a - 1, b) if a > b else (a, b - 1)
                found.append((far, a, b))
                chunk = []
                target = rng.integers(2, size + 1) if rng.random() < 0.1 else size
            i += 1
    return found


def test_texts_have_two_parts(toy_data, toy_vocab):
    opened = open_corpus(toy_data / "text" / "train")
    texts = Texts([opened], blocks=SentencePairs(), size=60, separator=toy_vocab.sep, seed=1)
    texts.begin(0)
    seen = set()
    for i, length in enumerate(texts.lengths):
        text = texts.text(i)
        seen.add((len(text.parts), text.flag))
        assert len(text.ids) == length <= 60
        borders = text.sentences
        assert borders[0] == 0 and (np.diff(borders) > 0).all() and borders[-1] < length
        if len(text.parts) == 2:
            assert len(text.parts[0]) in borders, "a second part begins a sentence"
    assert seen == {(2, 0), (2, 1)}
    again = Texts([opened], blocks=SentencePairs(), size=60, separator=toy_vocab.sep, seed=1)
    again.begin(0)
    assert all((again.text(i).ids == texts.text(i).ids).all() for i in range(len(texts.lengths)))


def test_turns_are_runs_of_three_of_which_half_have_one_of_another_dialogue():
    rng, replaced = np.random.default_rng(0), []
    sentences, documents = corpus(rng, documents=600, most=9)
    walls = sentences[documents]
    turn = dict(zip(sentences[:-1].tolist(), sentences[1:].tolist(), strict=True))

    def turns(start, stop):
        found = []
        while start < stop:
            found.append((start, turn[start]))
            start = turn[start]
        assert start == stop
        return found

    kept, several = [], 0
    for (a, b), (c, d), flag in runs(Turns()(sentences, documents, 10**6, rng)):
        one, two = turns(a, b), turns(c, d)
        assert 1 <= len(one + two) <= 3 and bool(two) == bool(flag)
        homes = [np.searchsorted(walls, start, "right") for start, _ in one + two]
        several += len(one + two) > 1
        if flag:
            first, last = (len({*some}) == 1 for some in (homes[1:], homes[:-1]))
            assert len({*homes}) == 2 and (first and len(one) == 1 or last and len(two) == 1)
            replaced.append(len(one) == 1 if len(homes) == 3 else None)
        else:
            assert len({*homes}) == 1
            kept += one
    assert len({*kept}) == len(kept)
    assert len(replaced) / several == pytest.approx(0.5, abs=0.05)
    assert np.mean([one for one in replaced if one is not None]) == pytest.approx(0.5, abs=0.06)
    short = Turns()(sentences, documents, 12, rng)
    assert short.lengths.max() == 12
    whole = Turns(random=0.0)(sentences, documents, 10**6, rng)
    assert whole.starts.tolist() == [0, *whole.stops[:-1].tolist()]  # all of the corpus, in order


def test_the_second_part_may_be_of_the_same_document():
    """Flag 0: next to the first, 1: elsewhere in its document, 2: in another one."""
    rng = np.random.default_rng(0)
    sentences, documents = corpus(rng, documents=300)
    cut = SentencePairs(random=1 / 3, same=1 / 3, short=0.0)(sentences, documents, 60, rng)
    walls, flags = sentences[documents], []
    for (a, b), (c, d), flag in runs(cut):
        homes = [np.searchsorted(walls, at, "right") for at in (a, b - 1, c, d - 1)]
        assert homes[0] == homes[1] and homes[2] == homes[3] and a < b and c < d
        assert (homes[0] == homes[2]) == (flag < 2)
        if b - a + d - c < 60 and flag < 2:  # nothing was cut off
            assert (c == b) == (flag == 0) and (flag == 0 or d < a or b < c)
        flags.append(flag)
    rates = np.bincount(flags) / len(flags)
    assert rates == pytest.approx([1 / 3] * 3, abs=0.06)
