"""Corpora that stay in a store: equal to the same corpus on this machine, whatever happens."""

from __future__ import annotations

import numpy as np
import pytest

from unitk.data.corpus.corpus import Corpus
from unitk.data.corpus.folders import corpus_vocab, is_corpus, open_corpus, parts
from unitk.data.corpus.writer import CorpusWriter
from unitk.errors import DataError
from unitk.remote import blocks, copies


@pytest.fixture
def corpus(bucket, toy_vocab):
    """A corpus of five blocks in a store: its path there, and the folder."""
    path, folder = bucket
    lengths = np.full(1500, 1500)
    writer = CorpusWriter(folder / "data" / "train", len(toy_vocab))
    toy_vocab.save(folder / "data" / "train" / "vocab")
    writer.add(np.random.default_rng(3).integers(0, 40, lengths.sum()), lengths, np.full(300, 5))
    writer.close({"vocab": toy_vocab.hash})
    return path / "data", folder / "data" / "train"


def test_every_text_is_that_of_the_corpus(corpus, tmp_path):
    path, folder = corpus
    here, there = Corpus(folder), open_corpus(path)
    assert is_corpus(path / "train") and parts(path) == ["train"]
    assert there.fingerprint == here.fingerprint and corpus_vocab(path).hash == here.vocab_hash
    assert not [*tmp_path.glob("here/blocks/*/*")]  # nothing is read before it is used
    total = here.counts.tokens
    assert there.tokens(3, 9).tolist() == here.tokens(3, 9).tolist()
    assert len([*tmp_path.glob("here/blocks/*/*")]) == 1
    for start, stop in [(0, total), (524_000, 525_000), (total - 1, total), (7, 7), (0, 1)]:
        assert (there.tokens(start, stop) == here.tokens(start, stop)).all()
    assert there.first_beyond(40) == here.first_beyond(40) == ""
    there.verify()


def test_blocks_are_shared_and_a_damaged_one_is_fetched_again(corpus, machine, tmp_path):
    path, folder = corpus
    here = Corpus(folder)
    there = open_corpus(path)
    assert (there.tokens(0, 9) == here.tokens(0, 9)).all()
    [block] = tmp_path.glob("here/blocks/*/*")
    for damage in (b"", b"x" * (1 << 20)):
        machine("here")
        block.write_bytes(damage)
        assert (open_corpus(path).tokens(0, 9) == here.tokens(0, 9)).all()
    machine("here")
    inode = block.stat().st_ino
    open_corpus(path).tokens(0, 9)
    assert block.stat().st_ino == inode  # as another process found it


def test_what_was_altered_in_the_store_is_named(corpus):
    path, folder = corpus
    there = open_corpus(path)
    data = bytearray((folder / "tokens.bin").read_bytes())
    data[1 << 20] ^= 1
    (folder / "tokens.bin").write_bytes(data)
    there.tokens(0, 9)
    with pytest.raises(DataError, match="file:.*train/tokens.bin.*1,048,576"):
        there.tokens(600_000, 600_009)


def test_reading_goes_on_in_a_cache_that_is_too_small(corpus, monkeypatch, tmp_path):
    path, folder = corpus
    monkeypatch.setenv("UNITK_CACHE_SIZE", "3M")
    monkeypatch.setattr(blocks, "MAPPED", 1)
    here, there = Corpus(folder), open_corpus(path)
    for start in np.random.default_rng(1).integers(0, here.counts.tokens - 9, 40):
        assert (there.tokens(start, start + 9) == here.tokens(start, start + 9)).all()
    kept = sum(one.stat().st_size for one in copies.cache_dir("blocks").glob("*/*"))
    assert kept <= 3e6 + (1 << 20)
