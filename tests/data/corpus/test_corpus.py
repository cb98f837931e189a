"""A corpus is read as it was written; a damaged one is named."""

import json
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unitk.data.corpus.columns import SMALL
from unitk.data.corpus.corpus import Corpus, Pairs
from unitk.data.corpus.folders import build_folder, corpus_vocab, open_corpus
from unitk.data.corpus.writer import CorpusWriter, write_manifest
from unitk.errors import DataError, UsageError, amount

DOCUMENTS = st.lists(
    st.lists(st.lists(st.integers(0, 60_000), max_size=4), min_size=1, max_size=4), max_size=6
)


def write(folder, documents, vocab_size=1000, pieces=1, **about):
    """A text corpus of nested lists: documents of sentences of ids."""
    writer = CorpusWriter(folder, vocab_size)
    for one in np.array_split(np.array(documents, object), pieces):
        sentences = [sentence for document in one for sentence in document]
        writer.add(
            np.array([i for sentence in sentences for i in sentence], np.int32),
            np.array([len(sentence) for sentence in sentences], np.int64),
            np.array([len(document) for document in one], np.int64),
        )
    writer.close({"vocab": "abc", **about})
    return Corpus(folder)


@given(documents=DOCUMENTS, vocab_size=st.sampled_from([60_001, SMALL - 1, SMALL, 200_000]))
@settings(max_examples=30)
def test_what_was_written_is_read(tmp_path_factory, documents, vocab_size):
    corpus = write(tmp_path_factory.mktemp("x") / "c", documents, vocab_size)
    assert [[s.tolist() for s in corpus.document(i)] for i in range(len(documents))] == documents
    assert corpus.dtype == (np.uint16 if vocab_size < SMALL else np.int32)
    assert corpus.counts.documents == len(documents) == len(corpus.documents) - 1
    assert corpus.counts.sentences == sum(map(len, documents)) == len(corpus.sentences) - 1
    assert corpus.counts.tokens == sum(len(s) for d in documents for s in d)
    everything = [i for document in documents for s in document for i in s]
    assert corpus.tokens(1, corpus.counts.tokens).tolist() == everything[1:]
    assert corpus.document_lengths().tolist() == [sum(map(len, d)) for d in documents]
    for name in ("sentences", "documents"):
        assert np.load(corpus.path / f"{name}.npy").tolist() == getattr(corpus, name).tolist()
    corpus.verify()


def some(seed, count=50):
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(0, 1000, rng.integers(1, 9)).tolist() for _ in range(rng.integers(1, 5))]
        for _ in range(count)
    ]


def test_the_number_of_writes_changes_nothing(tmp_path):
    once, often = (write(tmp_path / f"{n}", some(0), pieces=n) for n in (1, 7))
    assert once.fingerprint == often.fingerprint
    for file in (tmp_path / "1").iterdir():
        assert file.read_bytes() == (tmp_path / "7" / file.name).read_bytes()
    assert write(tmp_path / "other", some(1)).fingerprint != once.fingerprint


def test_a_document_may_go_on_in_the_next_write(tmp_path):
    writer = CorpusWriter(tmp_path / "c", 10)
    ones = np.ones

    def add(sizes, goes_on):
        writer.add(ones(sum(sizes)), ones(sum(sizes), np.int64), np.array(sizes), goes_on)

    add([0], False)  # a document whose sentences all vanished ...
    add([2, 1], True)  # ... so this is where it begins
    add([1], True)
    add([0], True)
    add([3, 0, 2], True)
    add([], True)
    add([1], False)
    writer.close({"vocab": "abc"})
    assert np.array(Corpus(tmp_path / "c").documents).tolist() == [0, 2, 7, 9, 10]


def test_an_empty_corpus_can_be_opened(tmp_path):
    corpus = write(tmp_path / "c", [])
    assert (corpus.counts.documents, corpus.counts.tokens) == (0, 0)
    assert len(corpus.tokens(0, 0)) == 0


def test_opening_takes_milliseconds_whatever_the_size(tmp_path):
    writer, million = CorpusWriter(tmp_path / "c", 1000), np.ones(1_000_000, np.int64)
    for _ in range(5):
        writer.add(million, million, million)
    writer.close({"vocab": "abc"})
    start = time.perf_counter()
    corpus = open_corpus(tmp_path / "c")
    assert time.perf_counter() - start < 0.05
    assert corpus.counts.tokens == 5_000_000


def write_pairs(folder, sources, targets):
    for side, documents in (("source", sources), ("target", targets)):
        write(folder / side, documents)
    write_manifest(folder, {"kind": "pairs", "vocab": "abc"})
    return folder


def test_pairs_keep_the_parts_of_a_source(tmp_path):
    pairs = open_corpus(write_pairs(tmp_path / "p", [[[1], [2, 3]], [[4, 5]]], [[[6]], [[7], [8]]]))
    assert isinstance(pairs, Pairs) and len(pairs) == 2
    parts, target = pairs.record(0)
    assert [part.tolist() for part in parts] == [[1], [2, 3]] and target.tolist() == [6]
    assert pairs.record(1)[1].tolist() == [7, 8]
    assert pairs.source_lengths.tolist() == [3, 2] and pairs.target_lengths.tolist() == [1, 2]
    pairs.verify()


def test_pairs_of_unequal_length_are_refused(tmp_path):
    with pytest.raises(DataError, match="1 sources, but 2 targets"):
        open_corpus(write_pairs(tmp_path / "p", [[[1]]], [[[2]], [[3]]]))


@pytest.mark.parametrize("name", ["tokens.bin", "sentences.npy", "documents.npy"])
def test_every_damaged_file_is_named(tmp_path, name):
    write_pairs(tmp_path / "p", some(1), some(2))
    file = tmp_path / "p" / "source" / name
    whole = file.read_bytes()
    file.write_bytes(whole[:-1])
    with pytest.raises(DataError, match=f"source/{name} has .*bytes"):
        open_corpus(tmp_path / "p")
    file.unlink()
    with pytest.raises(DataError, match=f"source/{name} of manifest.json is missing"):
        open_corpus(tmp_path / "p")
    rng = np.random.default_rng(0)
    for place in rng.integers(0, len(whole), 40):
        flipped = bytearray(whole)
        flipped[place] ^= 1 << rng.integers(8)
        file.write_bytes(flipped)
        with pytest.raises(DataError, match=f"source/{name}"):
            open_corpus(tmp_path / "p").verify()
    file.write_bytes(whole)
    open_corpus(tmp_path / "p").verify()


def test_what_is_no_corpus_is_told_in_one_line(tmp_path, toy_vocab):
    with pytest.raises(DataError, match="is .*corpus.* manifest.json"):
        open_corpus(tmp_path)
    (tmp_path / "text").touch()
    with pytest.raises(DataError, match="text .*corpus.*file.* `unitk prep"):
        open_corpus(tmp_path / "text")
    with pytest.raises(DataError, match="none .*corpus: not found"):
        open_corpus(tmp_path / "none")
    write(tmp_path / "c", some(0))
    manifest = tmp_path / "c" / "manifest.json"
    about = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**about, "format": 9}))
    with pytest.raises(DataError, match="has format 9, .*unitk.*formats 1 and 2"):
        open_corpus(tmp_path / "c")
    manifest.write_text(json.dumps({**about, "counts": {}, "dtype": "uint16"})[:-9])
    with pytest.raises(DataError, match="manifest.json: not JSON"):
        open_corpus(tmp_path / "c")
    manifest.write_text(json.dumps(about))
    toy_vocab.save(tmp_path / "c" / "vocab")
    with pytest.raises(DataError, match="not .*vocabulary.*made"):
        corpus_vocab(tmp_path / "c")


def test_the_vocabulary_and_the_train_folder_are_found(tmp_path, toy_vocab):
    toy_vocab.save(tmp_path / "data" / "train" / "vocab")
    (tmp_path / "kept").mkdir()
    corpus = write(tmp_path / "kept" / "train", some(0), vocab=toy_vocab.hash)
    for file in corpus.path.iterdir():
        file.rename(tmp_path / "data" / "train" / file.name)
    assert open_corpus(tmp_path / "data").path.name == "train"
    assert corpus_vocab(tmp_path / "data").hash == toy_vocab.hash


def test_building_is_all_or_nothing(tmp_path):
    dest = tmp_path / "a" / "b" / "corpus"
    for error, shown in [(OSError(28, "No space left on device"), DataError), (KeyError, KeyError)]:
        with pytest.raises(shown), build_folder(dest) as folder:
            (folder / "half").write_text("x")
            raise error
        assert list(tmp_path.iterdir()) == []
    with build_folder(dest) as folder:
        (folder / "manifest.json").write_text("1")
    assert [path.name for path in dest.parent.iterdir()] == ["corpus"]
    with pytest.raises(UsageError, match="--overwrite replaces it"), build_folder(dest):
        pass
    (dest.parent / ".tmp-77-corpus").mkdir()  # as a killed run leaves it
    with build_folder(dest, overwrite=True) as folder:
        (folder / "manifest.json").write_text("2")
    assert [path.name for path in dest.parent.iterdir()] == ["corpus"]
    assert (dest / "manifest.json").read_text() == "2"


def test_only_a_corpus_is_ever_replaced(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(UsageError, match="is .*corpus.*replaced"):
        with build_folder(tmp_path / "mine", overwrite=True):
            pass
    assert (tmp_path / "mine" / "thesis.tex").exists()
    for name in ("vocab.json", "train", ".DS_Store"):
        (tmp_path / "mine" / name).touch()
    with pytest.raises(UsageError, match="mine also holds thesis.tex, which --overwrite would rem"):
        with build_folder(tmp_path / "mine", overwrite=True):
            pass
    (tmp_path / "mine" / "thesis.tex").unlink()
    with build_folder(tmp_path / "mine", overwrite=True) as folder:
        (folder / "vocab.json").touch()


def test_one_thing_is_no_plural():
    assert [amount(n, "labelled texts") for n in (0, 1, 2000)] == [
        "0 labelled texts", "1 labelled text", "2,000 labelled texts"
    ]  # fmt: skip
