import subprocess
import sys

import pytest

from unitk.data.corpus import Pairs
from unitk.data.folders import corpus_vocab, open_corpus
from unitk.errors import UsageError
from unitk.vocab import open_vocab
from unitk_cli import merge, preprocess


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = ["the cat sat on the mat .", "a dog saw it ."] * 20
    (tmp_path / "x.txt").write_text("\n".join(lines))
    (tmp_path / "y.txt").write_text("\n".join(lines[1:] + lines[:1]))
    return tmp_path


def run(verb, line):
    verb.run(line.split())


def program(line, **how):
    words = [sys.executable, "-m", "unitk_cli", *line.split()]
    return subprocess.run(words, capture_output=True, text=True, **how)


def test_from_text_to_a_corpus_and_back(here, capsys):
    run(preprocess, "--input x.txt --valid y.txt --vocab-size 26 --dest d --documents line")
    corpus, vocab = open_corpus(here / "d"), corpus_vocab(here / "d" / "valid")
    assert vocab.decode(corpus.tokens(0, corpus.sentences[1])) == "the cat sat on the mat ."
    assert corpus.num_documents == 40
    assert "train: 0.0 MB of text" in capsys.readouterr().out


def test_the_vocabulary_first_then_shards_then_all(here):
    run(preprocess, "--input x.txt,y.txt --vocab-size 26 --vocab-only --dest v")
    assert len(open_vocab(here / "v")) == 26
    for i in (0, 1):
        run(preprocess, f"--input x.txt --input y.txt --vocab v --shard {i}/2 --dest s{i}")
    run(preprocess, "--input x.txt --input y.txt --vocab v --dest whole")
    run(merge, "s0 s1 --dest d")
    for name in ("tokens.bin", "sentences.npy", "documents.npy", "manifest.json"):
        whole = (here / "whole" / "train" / name).read_bytes()
        assert (here / "d" / "train" / name).read_bytes() == whole


def test_pairs_are_pairs(here):
    run(preprocess, "--source-file x.txt --target-file y.txt --vocab-size 26 --dest d --workers 1")
    pairs = open_corpus(here / "d")
    assert isinstance(pairs, Pairs) and len(pairs) == 40


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--input x.txt --vocab-size 26", "--dest is needed"),
        ("--input x.txt --dest d --vocab-sice 28", "--vocab-sice: no such option; did you mean"),
        (
            "--input x.txt --dest d --vocab v --vocab-size 9",
            "--vocab-size has no effect with --vocab",
        ),
        ("--input x.txt --dest d --vocab v --seed 3", "--seed has no effect with --vocab v"),
        (
            "--source-file x.txt --target-file y.txt --field a --dest d",
            "--field has no effect on pairs of lines",
        ),
        (
            "--input x.txt --dest d --input-format csv",
            "--input-format must be one of auto, text, jsonl, squad",
        ),
        ("--input x.txt --dest d --vocab-size 26 --field a", "--field has no effect on text"),
        (
            "--input x.txt --dest d --vocab-size 26 --input-format squad --sentences punct",
            "on squad",
        ),
        ("--input x.txt --dest d --vocab-size 26 --window 9", "--window has no effect on text"),
        (
            "--input x.txt --dest d --input-format jsonl --source-field a --target-field b"
            " --field c",
            "--field has no effect on pairs of records",
        ),
        ("--input x.txt --dest d --source-field a --target-field b", "x.txt is text"),
        ("--source-file x.txt --target-file y.txt --dest d --skip-empty", "no effect on pairs of"),
    ],
)
def test_a_line_that_cannot_be_meant(here, line, message):
    with pytest.raises(UsageError, match=message):
        run(preprocess, line)
    assert not (here / "d").exists()


@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (
            "preprocess --input none.txt --vocab-size 26 --dest d",
            3,
            "unitk preprocess: --input none.txt: no such file",
        ),
        (
            "preprocess --input x.txt --vocab-size 999 --dest d",
            2,
            "unitk preprocess: --vocab-size 999 is too large for this text;"
            " the largest possible is 26",
        ),
        (
            "merge x.txt --dest d",
            3,
            "unitk merge: x.txt is no corpus, nor a folder with train/ in it",
        ),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(here, line, code, message):
    done = program(line)
    assert (done.returncode, done.stderr.strip()) == (code, message)
    assert sorted(path.name for path in here.iterdir()) == ["x.txt", "y.txt"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs limits on the size of files")
def test_a_file_that_cannot_grow_leaves_nothing(here):
    import resource

    (here / "big.txt").write_text((here / "x.txt").read_text() * 300)
    run(preprocess, "--input x.txt --vocab-size 26 --vocab-only --dest v")
    limit = (200_000, 200_000)  # bytes; as a full disk, it fails in the middle of tokens.bin
    done = program(
        "preprocess --input big.txt --vocab v --dest a/d",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )
    assert done.returncode == 3, done.stderr
    assert done.stderr.splitlines() == ["unitk preprocess: --dest a/d: File too large"]
    assert not (here / "a").exists()
