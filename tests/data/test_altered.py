"""A corpus with one bit flipped is refused by the name of a file, or reads as before."""

import json
import shutil

import numpy as np
import pytest

from unitk.data.corpus.corpus import BLOCK, BLOCKS, Pairs
from unitk.data.corpus.folders import corpus_vocab, open_corpus
from unitk.data.corpus.writer import CorpusWriter, close_corpus
from unitk.errors import DataError, UnitkError
from unitk.files import entry


def fill(folder, vocab, kind, count=40, seed=0):
    """A corpus of random tokens, of text or pairs."""
    rng = np.random.default_rng(seed)
    sides = [""] if kind == "text" else ["source", "target"]
    writers = {side: CorpusWriter(folder / side, len(vocab)) for side in sides}
    for writer in writers.values():
        lengths = rng.integers(1, 9, count)
        ids = rng.integers(5, len(vocab), lengths.sum())
        writer.add(ids, lengths, np.ones(count, int))
    close_corpus(folder, writers, vocab, {"sources": ["x.txt"], "source_bytes": 123})
    return folder


def everything(folder):
    """All that a corpus holds, read in pieces."""
    corpus = open_corpus(folder)
    sides = [corpus.source, corpus.target] if isinstance(corpus, Pairs) else [corpus]
    documents = [
        [sentence.tolist() for sentence in side.document(i)]
        for side in sides
        for i in range(len(side))
    ]
    counts = [vars(side.counts) for side in sides]
    return documents, counts, corpus.manifest, corpus_vocab(folder).hash


def flip(path, rng):
    data = bytearray(path.read_bytes())
    data[rng.integers(len(data))] ^= 1 << rng.integers(8)
    path.write_bytes(data)


def trial(folder, whole, copy, seed):
    """Whether a flipped bit was named; where not, nothing else may be read."""
    rng = np.random.default_rng(seed)
    shutil.copytree(folder, copy)
    path = rng.choice(sorted(path for path in copy.rglob("*") if path.is_file()))
    flip(path, rng)
    try:
        assert everything(copy) == whole, f"{path} was read altered"
    except UnitkError as error:
        assert str(copy) in str(error) and "\n" not in str(error)
        return True
    finally:
        shutil.rmtree(copy)
    return False


@pytest.mark.parametrize("kind", ["text", "pairs"])
@pytest.mark.parametrize("trials", [25, pytest.param(300, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_named_or_not_read(tmp_path, toy_vocab, kind, trials):
    folder = fill(tmp_path / "c", toy_vocab, kind)
    whole = everything(folder)
    named = sum(trial(folder, whole, tmp_path / "copy", seed) for seed in range(trials))
    assert named > 0.9 * trials


def test_each_block_is_checked_when_it_is_first_read(tmp_path, toy_vocab):
    half = BLOCK // 4  # of 2 bytes each
    writer = CorpusWriter(tmp_path / "c", len(toy_vocab))
    ids = np.random.default_rng(0).integers(5, len(toy_vocab), 6 * half + 1)
    writer.add(ids, np.array([len(ids)]), np.ones(1, int))
    close_corpus(tmp_path / "c", {"": writer}, toy_vocab, {})
    assert (tmp_path / "c" / BLOCKS).stat().st_size == 4 * 32
    file = tmp_path / "c" / "tokens.bin"
    data = bytearray(file.read_bytes())
    data[BLOCK + 9] ^= 1
    file.write_bytes(data)
    corpus = open_corpus(tmp_path / "c")
    assert corpus.tokens(0, 2 * half).tolist() == ids[: 2 * half].tolist()
    assert corpus.tokens(4 * half, 10**9).tolist() == ids[4 * half :].tolist()
    for start, stop in [(2 * half - 1, 2 * half + 1), (3 * half, 3 * half + 1), (0, 10**9)]:
        with pytest.raises(DataError, match=r"tokens.bin .*altered.*bytes.* 1,048,576 on"):
            corpus.tokens(start, stop)


@pytest.mark.parametrize("name", ["sentences.npy", "documents.npy"])
def test_an_index_out_of_order_is_refused_without_hashes_too(tmp_path, toy_vocab, name):
    folder = fill(tmp_path / "c", toy_vocab, "text")
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["sha256"], manifest["files"][BLOCKS]
    file = folder / name
    for number, wild in [(3, 10**12), (3, -1), (4, 1)]:
        whole = file.read_bytes()
        data = bytearray(whole)
        data[128 + 8 * number : 136 + 8 * number] = np.int64(wild).tobytes()
        file.write_bytes(data)
        listed = manifest["files"] | {name: entry(file)}
        old = manifest | {"format": 1, "files": listed}
        (folder / "manifest.json").write_text(json.dumps(old))
        with pytest.raises(DataError, match=f"{name} .*damaged.*lead.* 0 to"):
            everything(folder)
        file.write_bytes(whole)


def test_a_corpus_of_the_first_format_reads_the_same(tmp_path, toy_vocab):
    folder = fill(tmp_path / "c", toy_vocab, "text")
    documents, counts, manifest, vocab = everything(folder)
    manifest["format"] = 1
    del manifest["files"][BLOCKS]
    fingerprint = open_corpus(folder).fingerprint
    (folder / BLOCKS).unlink()
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert everything(folder)[:2] == (documents, counts)
    assert open_corpus(folder).fingerprint == fingerprint


@pytest.mark.parametrize("seed", range(12))
def test_altered_manifests_are_one_line(tmp_path, toy_vocab, seed):
    folder = fill(tmp_path / "c", toy_vocab, "text")
    good = json.loads((folder / "manifest.json").read_text())
    del good["sha256"]
    wild = [
        good | {"files": []},
        good | {"files": {}},
        good | {"files": good["files"] | {"tokens.bin": {"sha256": "x"}}},
        good | {"files": good["files"] | {"tokens.bin": []}},
        good | {"files": {k: v for k, v in good["files"].items() if k != "sentences.npy"}},
        good | {"files": {k: v for k, v in good["files"].items() if k != "tokens.bin"}},
        good | {"counts": []},
        good | {"counts": good["counts"] | {"tokens": "7"}},
        good | {"dtype": "object"},
        good | {"dtype": []},
        good | {"kind": []},
        good | {"counts": good["counts"] | {"sentences": 10**15}},
    ][seed]
    (folder / "manifest.json").write_text(json.dumps(wild | {"format": 1}))
    with pytest.raises(DataError, match=str(folder)) as caught:
        everything(folder)
    assert "\n" not in str(caught.value)
