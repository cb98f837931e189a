"""Optimus: the docstring's table, dropped words by frequency, an encoder's own vocabulary."""

import re

import numpy as np
import pytest

from unitk.data.batching import draw_all
from unitk.errors import UsageError
from unitk.families.latent.task import Optimus
from unitk.training.start import parse_train, prepare
from unitk.vocab.train import train_vocab


def task(vocab, **config):
    return Optimus(Optimus.Config(**config), vocab)


def test_layout_is_the_table(toy_vocab, labels):
    v = toy_vocab
    example = task(v).finetune([np.array([31, 32, 33])], np.array([31, 32, 33]), None)
    enc, dec = example.towers["enc"], example.towers["dec"]
    assert enc.token.tolist() == [v.cls, 31, 32, 33, v.sep]
    assert enc.pos.tolist() == [0, 1, 2, 3, 4] and not enc.now.any() and not enc.cross.any()
    assert dec.token.tolist() == [v.cls, 31, 32, 33]
    assert dec.pos.tolist() == dec.now.tolist() == [0, 1, 2, 3]
    assert labels(example, "lm", "dec") == [31, 32, 33, v.sep]


def test_a_pair_encodes_the_source_and_writes_the_target(toy_vocab, labels):
    v = toy_vocab
    example = task(v).finetune([np.array([31]), np.array([32])], np.array([40]), None)
    assert example.towers["enc"].token.tolist() == [v.cls, 31, v.sep, 32, v.sep]
    assert labels(example, "lm", "dec") == [40, v.sep]


def test_the_encoder_misses_words_as_often_as_asked(toy_vocab, some_text):
    rng, kept, n = np.random.default_rng(0), 0, 50
    for _ in range(200):
        text = some_text(toy_vocab, n, rng)
        example = task(toy_vocab, encoder_drop=0.3).pretrain(text, rng)
        enc = example.towers["enc"]
        assert enc.pos.tolist() == list(range(len(enc)))
        assert enc.token[0] == toy_vocab.cls and enc.token[-1] == toy_vocab.sep
        words = enc.token[1:-1].tolist()
        order = iter(text.ids.tolist())
        assert all(word in order for word in words)  # in their order
        assert (example.asks[0].label[:-1] == text.ids).all()
        kept += len(words)
    assert kept / (200 * n) == pytest.approx(0.7, abs=0.01)


def test_the_decoder_reads_unknown_words_as_often_as_asked(toy_vocab, some_text):
    rng, unknown, n = np.random.default_rng(0), 0, 50
    for _ in range(200):
        text = some_text(toy_vocab, n, rng)
        example = task(toy_vocab, decoder_drop=0.4).pretrain(text, rng)
        read = example.towers["dec"].token
        assert read[0] == toy_vocab.cls
        dropped = read[1:] == toy_vocab.unk
        assert (read[1:][~dropped] == text.ids[~dropped]).all()
        assert (example.asks[0].label[:-1] == text.ids).all()
        unknown += dropped.sum()
    assert unknown / (200 * n) == pytest.approx(0.4, abs=0.01)


def test_an_encoder_with_its_own_vocabulary_reads_the_same_words(toy_vocab, tmp_path):
    lines = ["the cat sat on the mat", "a dog ate the cat", "the mat is red"] * 20
    train_vocab(iter(lines), size=40, kind="bpe").save(tmp_path / "other")
    made = task(toy_vocab, source_vocab=tmp_path / "other")
    other, words = made.source_vocab, np.array(toy_vocab.encode("the cat"))
    example = made.finetune([words], words, None)
    read = example.towers["enc"].token
    assert other.hash != toy_vocab.hash
    assert other.decode(read).split() == toy_vocab.decode(words).split()
    assert read[0] == other.cls and read[-1] == other.sep
    assert example.towers["dec"].token[1:].tolist() == words.tolist()
    n = np.array(len(words))
    assert len(read) <= made.slots(n)


@pytest.mark.parametrize("kind", ["text", "pairs"])
def test_texts_that_are_too_long_in_the_encoders_vocabulary_are_counted(toy_data, tmp_path, kind):
    """Known before the run, by both vocabularies; no example is beyond the positions."""
    letters = "abdefgiklmnoprstuhABDEFGIKLMNOPRSTUH. "
    train_vocab(iter([letters] * 9), size=52, kind="bpe").save(tmp_path / "letters")
    length = "--block-size 60" if kind == "text" else ""
    words = f"--task optimus --task.source-vocab {tmp_path / 'letters'} --arch optimus_tiny"
    words += f" --arch.max-positions 64 --blocks full {length} --data {toy_data / kind / 'train'}"
    start = prepare(parse_train(f"{words} --save-dir {tmp_path / 'a'} --max-steps 1".split()))
    source, made = start.data.train, start.data.task
    drawn = draw_all(source, 0, 0, np.arange(len(source.items.lengths)))
    own = made.source_vocab
    cut = 0
    for example in drawn:
        text = made.vocab.decode(example.asks[0].label) if kind == "text" else ""
        read = example.towers["enc"].token[1:-1]
        assert len(read) <= 62
        cut += len(own.encode(text)) > len(read)
    found = int(
        re.search(r"beginnings of (\d+) of (\d+) texts.*--task.source-vocab", source.shortened)[1]
    )
    assert found > 10
    if kind == "text":
        assert cut == found
    near = made.reading([np.array([30, made.vocab.sep, 31])]).token.tolist()
    assert own.sep in near[1:-1], "documents are kept apart"


@pytest.mark.parametrize("name", ["encoder_drop", "decoder_drop"])
def test_what_is_no_probability_is_refused(name):
    with pytest.raises(UsageError, match=name.replace("_", "-") + r" must be.* \[0, 1\], got 2"):
        Optimus.Config(**{name: 2.0})
