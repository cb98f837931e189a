"""A corpus does not depend on workers, shards or the size of blocks."""

import dataclasses
import errno
import gzip
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from unitk.data.corpus import encode
from unitk.data.corpus.corpus import Corpus, Pairs
from unitk.data.corpus.encode import count_words
from unitk.data.corpus.folders import corpus_vocab, open_corpus
from unitk.data.corpus.merge import Options as MergeOptions
from unitk.data.corpus.merge import merge
from unitk.data.corpus.preprocess import Options, parse_shard, preprocess
from unitk.data.corpus.writer import CorpusWriter
from unitk.data.files.pairs import PairBlock, PairText
from unitk.errors import DataError, UsageError
from unitk.verbs import preprocess as verb
from unitk.vocab.open import open_vocab
from unitk.vocab.train import train_vocab

WORDS = "the a cat dog bird sat on in under mat hat tree sees likes big small red blue".split()


def some_text(seed, lines=400):
    """Documents of one to five lines, with blank lines between them."""
    rng = random.Random(seed)
    made = [" ".join(rng.choices(WORDS, k=rng.randrange(3, 9))) for _ in range(lines)]
    made = [line + rng.choice([" .", " ?"]) for line in made]
    return "".join(line + ("\n\n" if rng.random() < 0.3 else "\n") for line in made)


@pytest.fixture(scope="module")
def vocab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocab")
    (folder / "x.txt").write_text(some_text(0))
    given = {"vocab_kind": "bpe", "vocab_size": 60, "vocab_only": True}
    preprocess(Options(input=(f"{folder}/x.txt",), dest=folder / "v", **given))
    return folder / "v"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def made(folder):
    """Every file below a folder and its content."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def small_blocks(monkeypatch):
    monkeypatch.setattr("unitk.data.files.lines.BLOCK", 1 << 10)
    monkeypatch.setattr("unitk.data.files.lines.RECORDS_IN_BLOCK", 7)


def restored(corpus, vocab):
    return [[vocab.decode(ids) for ids in corpus.document(i)] for i in range(len(corpus))]


@pytest.mark.parametrize("name", ["x.txt", "x.txt.gz"])
def test_text_becomes_documents_of_sentences(here, vocab, name, monkeypatch, capsys):
    small_blocks(monkeypatch)
    text = some_text(1)
    data = gzip.compress(text.encode()) if name.endswith(".gz") else text.encode()
    (here / name).write_bytes(data)
    counts = preprocess(Options(input=("*.txt*",), dest=here / "d", vocab=vocab))["train"][""]
    corpus = open_corpus(here / "d")
    assert isinstance(corpus, Corpus) and corpus.path == here / "d" / "train"
    expected = [block.strip().split("\n") for block in text.split("\n\n") if block.strip()]
    assert restored(corpus, corpus_vocab(here / "d")) == expected
    corpus.verify()
    assert counts.documents == len(expected) and counts.sentences == sum(map(len, expected))
    assert counts.words == len(text.split()) and counts.unknown == 0
    shown = capsys.readouterr().out
    assert f"{counts.documents:,} documents, {counts.sentences:,} sentences" in shown
    assert "tokens a word, 0.00% unknown" in shown and "kB/s" in shown
    about = json.loads((here / "d" / "train" / "manifest.json").read_text())
    assert about["sources"] == [name] and about["counts"]["words"] == counts.words


def test_every_part_has_the_vocabulary_of_train(here, capsys):
    for seed, name in enumerate(["a.txt", "b.txt", "valid.txt", "test.txt"]):
        (here / name).write_text(some_text(seed))
    options = Options(
        input=("[ab].txt",), valid=("valid.txt",), test=("test.txt",), dest=here / "x" / "d",
        vocab_size=60, vocab_kind="bpe",
    )  # fmt: skip
    preprocess(options)
    corpora = [open_corpus(here / "x" / "d" / name) for name in ("train", "valid", "test")]
    assert len({corpus.vocab_hash for corpus in corpora}) == 1
    assert corpora[0].manifest["sources"] == ["a.txt", "b.txt"]
    assert [path.name for path in (here / "x").iterdir()] == ["d"]
    assert "vocabulary: 60 bpe ids" in capsys.readouterr().out


def write_pairs(here, count=60):
    lines = [line for line in some_text(2).split("\n") if line][: 2 * count]
    (here / "s.en").write_text("\n".join(lines[::2]))
    (here / "t.en").write_text("\n".join(lines[1::2]) + "\n")
    return list(zip(lines[::2], lines[1::2], strict=True))


def test_pairs_of_lines(here, vocab, monkeypatch):
    small_blocks(monkeypatch)
    expected = write_pairs(here)
    options = Options(
        source_file=("s.en",), target_file=("t.en",), valid_source_file=("t.en",),
        valid_target_file=("s.en",), dest=here / "d", vocab=vocab,
    )  # fmt: skip
    preprocess(options)
    pairs, words = open_corpus(here / "d"), corpus_vocab(here / "d")
    assert isinstance(pairs, Pairs)
    found = [pairs.record(i) for i in range(len(pairs))]
    assert [(words.decode(*parts), words.decode(target)) for parts, target in found] == expected
    pairs.verify()
    other = open_corpus(here / "d" / "valid")
    assert isinstance(other, Pairs) and len(other) == len(expected)
    assert other.source.tokens(0, 99).tolist() == pairs.target.tokens(0, 99).tolist()


def squad(count):
    questions = [
        {"question": f"{WORDS[i % 18]} sees ?", "answers": [{"text": WORDS[i % 7]}]}
        for i in range(count)
    ]
    return {"data": [{"paragraphs": [{"context": "the cat sat .\non the mat", "qas": questions}]}]}


def test_questions_have_answer_and_passage_as_parts(here, vocab, monkeypatch):
    small_blocks(monkeypatch)
    (here / "q.json").write_text(json.dumps(squad(30)))
    preprocess(Options(input=("q.json",), dest=here / "d", vocab=vocab))
    pairs, words = open_corpus(here / "d"), corpus_vocab(here / "d")
    assert isinstance(pairs, Pairs) and len(pairs) == 30
    (answer, passage), question = pairs.record(20)
    assert words.decode(answer) == WORDS[20 % 7] and words.decode(question) == "cat sees ?"
    assert words.decode(passage) == "the cat sat . on the mat"
    assert pairs.source_lengths[20] == len(answer) + len(passage)


@pytest.mark.parametrize(
    ("form", "parts"),
    [
        ("{passage} [SEP] {answer}", ["the cat sat . on the mat", "cat"]),
        ("in {passage} sees {answer}", ["in the cat sat . on the mat sees cat"]),
    ],
)
def test_the_form_of_a_question_s_source(here, vocab, form, parts):
    (here / "q.json").write_text(json.dumps(squad(3)))
    preprocess(Options(input=("q.json",), dest=here / "d", vocab=vocab, squad_source=form))
    pairs, words = open_corpus(here / "d"), corpus_vocab(here / "d")
    assert [words.decode(part) for part in pairs.record(2)[0]] == parts
    for wrong in ("{passage}", "{answer}", "{answer} {passage} {sentence}"):
        with pytest.raises(UsageError, match=f"{{passage}} or {{sentence}}, got '{wrong}'"):
            preprocess(Options(input=("q.json",), dest=here / "e", vocab=vocab, squad_source=wrong))


def test_a_sentence_without_tokens_is_left_out_of_texts_only(here, vocab):
    (here / "x.txt").write_text("the cat\n\u200b\n\n\u200b\n\na dog\n")  # a zero-width blank
    counts = preprocess(Options(input=("x.txt",), dest=here / "d", vocab=vocab))["train"][""]
    assert (counts.documents, counts.sentences) == (2, 2)
    (here / "t.txt").write_text("the\na\nin\non\n")
    (here / "s.txt").write_text("the\n\u200b\nin\non\n")
    preprocess(
        Options(source_file=("s.txt",), target_file=("t.txt",), dest=here / "p", vocab=vocab)
    )
    pairs = open_corpus(here / "p")
    assert isinstance(pairs, Pairs) and (pairs.source_lengths == 0).tolist() == [
        False,
        True,
        False,
        False,
    ]


@pytest.fixture
def several_workers(monkeypatch):
    """Small blocks, and processes even for little text."""
    small_blocks(monkeypatch)
    monkeypatch.setattr(encode, "WORTH_A_PROCESS", 1000)


@pytest.mark.every(2)
@pytest.mark.parametrize("kind", ["text", "pairs"])
def test_workers_change_nothing(here, vocab, kind, several_workers):
    if kind == "text":
        (here / "x.txt").write_text(some_text(3) * 10)
        given = {"input": ("x.txt",)}
    else:
        (here / "s.txt").write_text((some_text(3).replace("\n\n", "\n")) * 10)
        (here / "t.txt").write_text((some_text(4).replace("\n\n", "\n")) * 10)
        given = {"source_file": ("s.txt",), "target_file": ("t.txt",)}
    for workers in (1, 2):
        preprocess(Options(**given, dest=here / str(workers), vocab=vocab, workers=workers))
    assert made(here / "1") == made(here / "2")


def test_a_worker_names_the_line(here, vocab, several_workers):
    (here / "x.txt").write_bytes(some_text(3).encode() * 10 + b"\xff\n")
    line = 1 + (some_text(3) * 10).count("\n")
    with pytest.raises(DataError, match=f"x.txt, line {line}: not UTF-8"):
        preprocess(Options(input=("x.txt",), dest=here / "d", vocab=vocab, workers=2))
    assert [path.name for path in here.iterdir()] == ["x.txt"]


@given(
    shards=st.integers(1, 6),
    seed=st.integers(0, 3),
    block=st.sampled_from([32, 500, 5000]),
    how=st.sampled_from(["blank", "line", "gz", "jsonl", "pairs", "squad"]),
)
@settings(max_examples=10)
def test_shards_joined_equal_the_whole(tmp_path_factory, vocab, shards, seed, block, how):
    here = tmp_path_factory.mktemp("x")
    given = write_files(here, how, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(here)
        patch.setattr("unitk.data.files.lines.BLOCK", block)
        patch.setattr("unitk.data.files.lines.RECORDS_IN_BLOCK", 7)
        common = {"vocab": vocab, "valid": given.pop("valid", ()), **given}
        preprocess(Options(**common, dest=here / "whole"))
        for i in range(shards):
            preprocess(Options(**common, dest=here / f"part{i}", shard=f"{i}/{shards}"))
    parts = tuple(here / f"part{i}" for i in range(shards))
    merge(MergeOptions(parts=parts, dest=here / "joined"))
    assert made(here / "joined") == made(here / "whole")
    if block == 32 and how in ("blank", "line", "jsonl") and shards > 1:
        held = [open_corpus(part).counts.documents for part in parts]
        assert min(held) > 0, "every shard has its share"


def write_files(here, how, seed):
    text = some_text(seed, 200)
    if how == "pairs":
        lines = [line for line in text.split("\n") if line]
        for name in ("s0", "t0", "s1", "t1"):
            (here / name).write_text("\n".join(lines))
        return {"source_file": ("s0", "s1"), "target_file": ("t0", "t1")}
    if how == "squad":
        (here / "q.json").write_text(json.dumps(squad(40)))
        return {"input": ("q.json",), "valid": ("q.json",)}
    for name in ("x0", "x1", "v"):
        if how == "jsonl":
            texts = text.split("\n\n")
            (here / name).write_text("".join(json.dumps({"text": t}) + "\n" for t in texts))
        elif how == "gz":
            (here / (name + ".gz")).write_bytes(gzip.compress(text.encode()))
        else:
            (here / name).write_text(text)
    found = {
        "input": ("x*",),
        "valid": ("v*",),
        "input_format": "jsonl" if how == "jsonl" else "text",
    }
    return found | {"documents": "line" if how == "line" else "blank"}


def test_only_shards_in_order_are_joined(here, vocab, capsys):
    (here / "x.txt").write_text(some_text(1))
    (here / "y.txt").write_text(some_text(2))
    for name, shard in (("a", "0/2"), ("b", "1/2"), ("whole", None)):
        preprocess(Options(input=("x.txt",), dest=here / name, vocab=vocab, shard=shard))
    preprocess(Options(input=("y.txt",), dest=here / "other", vocab=vocab, shard="1/2"))
    preprocess(Options(input=("y.txt",), dest=here / "alien", vocab_size=30))
    write_pairs(here)
    preprocess(
        Options(source_file=("s.en",), target_file=("t.en",), dest=here / "pairs", vocab=vocab)
    )

    def join(*names):
        merge(MergeOptions(parts=tuple(here / name for name in names), dest=here / "d"))

    for names, message in [
        (("b", "a"), "b/train is shard 1/2, but 0/2 is expected at this place"),
        (("a",), "a/train is shard 0/2, but 0/1 is expected"),
        (("a", "whole"), "whole/train is no shard, but 1/2 is expected"),
        (("a", "other"), "other/train is a shard of other files than .*a/train"),
        (("whole", "alien"), "alien/train .*another vocabulary .*whole/train"),
        (("whole", "x.txt"), "x.txt is not a corpus"),
        (("whole", "a/train"), "whole holds train, but .*a/train \\."),
    ]:
        with pytest.raises(DataError, match=message):
            join(*names)
    with pytest.raises(UsageError, match="name .*corpora.*join"):
        join()
    with pytest.raises(UsageError, match="whole/train holds text.*pairs/train holds pairs"):
        join("whole", "pairs")
    join("whole", "whole/../whole")  # corpora that are no shards are simply put together
    whole, both = open_corpus(here / "whole"), open_corpus(here / "d")
    assert both.counts.documents == 2 * whole.counts.documents
    assert both.tokens(whole.counts.tokens, 10**9).tolist() == whole.tokens(0, 10**9).tolist()
    damaged = here / "a" / "train" / "tokens.bin"
    damaged.write_bytes(b"\1" + damaged.read_bytes()[1:])
    with pytest.raises(DataError, match="a/train/tokens.bin was altered"):
        merge(MergeOptions(parts=(here / "a", here / "b"), dest=here / "e"))


def test_unknown_tokens_are_counted_and_warned_about(here, vocab, capsys):
    (here / "x.txt").write_text("the cat ☃ sat\n" * 10 + "☃\n")
    counts = preprocess(Options(input=("x.txt",), dest=here / "d", vocab=vocab))["train"][""]
    assert counts.unknown == 11
    rate = counts.unknown / counts.tokens
    assert open_corpus(here / "d").manifest["unknown_rate"] == rate
    assert f"warning: {rate:.1%} of the tokens of train are unknown" in capsys.readouterr().err


def test_appended_symbols_are_said(here, capsys):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat"]
    (here / "vocab.txt").write_text("\n".join(pieces))
    (here / "x.txt").write_text("the cat\n")
    preprocess(Options(input=("x.txt",), dest=here / "d", vocab=here / "vocab.txt"))
    shown = capsys.readouterr().out
    assert "vocabulary: 11 ids; appended" in shown and "[gMASK] [sMASK] <|startofpiece|>" in shown


@pytest.mark.parametrize(
    ("normalization", "alike"),
    [("identity", ""), ("nfkc", "(ﬁ as fi)"), ("nfkc_cf", "(A as a, ﬁ as fi)")],
)
def test_what_a_given_vocabulary_normalizes_is_said(here, capsys, normalization, alike):
    texts = [*some_text(1).splitlines(), "A cat, é ﬁ fi e"]
    train_vocab(texts, 60, "bpe", normalization=normalization).save(here / "v")
    (here / "x.txt").write_text("the cat\n")
    preprocess(Options(input=("x.txt",), dest=here / "d", vocab=here / "v"))
    ids, _, said = capsys.readouterr().out.splitlines()[0].partition("; texts are normalized ")
    assert (ids, said) == ("vocabulary: 60 ids", alike)


def test_words_are_between_blanks():
    for text in ("", " ", "a", " a", "a ", "a  b\tc\n\nd ", "中 é\u00a0x"):
        expected = len(text.replace("\u00a0", "_").split())  # a hard blank joins
        assert count_words(f"{text}\n".encode()).sum() == expected, text
    assert count_words(b"a b\n\n c\n").tolist() == [2, 0, 1]


def test_words_of_a_text_of_several_lines_are_those_of_one_sentence(vocab):
    pair = PairText(["the cat\nsat \n on", "a mat"], "in the hat")
    block = PairBlock(Path("q.json"), 0, [pair])
    source, target = encode.encode_block(open_vocab(vocab), block, None).sides
    assert source.words.tolist() == [4, 2] and target.words.tolist() == [3]
    assert (source.num_bytes, target.num_bytes) == (23, 11)  # a newline after each sentence


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({}, UsageError, "--input FILES is needed, or --source-file and --target-file"),
        ({"input": ("none.txt",)}, DataError, "--input none.txt: no such file"),
        ({"input": ("n*.txt",)}, DataError, r"--input n\*.txt: no file has such a name"),
        ({"input": ("empty.txt",)}, DataError, "empty.txt: there is no text in it"),
        ({"input": ("blank.txt",)}, DataError, "blank.txt: there is no text in it"),
        ({"input": ("x.txt", "bad.txt")}, DataError, "bad.txt, line 2: not UTF-8"),
        ({"input": ("x.txt",), "valid": ("empty.txt",)}, DataError, "empty.txt: there is no"),
        ({"input": ("x.txt",), "valid": ("q.json",)}, UsageError, "one kind, but train holds text"),
        ({"input": ("x.txt",), "source_file": ("x.txt",)}, UsageError, "exclude each other"),
        (
            {"source_file": ("x.txt",)},
            UsageError,
            "--source-file and --target-file must name as many files, got 1 and 0",
        ),
        (
            {"source_file": ("x.txt",), "target_file": ("short.txt",)},
            DataError,
            "x.txt has 3 lines, but short.txt has 2",
        ),
        ({"input": ("q.json",)}, DataError, r"q.json: data\[0\] has no list 'paragraphs'"),
        ({"input": ("x.txt",), "shard": "2/2"}, UsageError, "--shard must be i/n"),
        ({"input": ("x.txt",), "shard": "x"}, UsageError, "--shard must be i/n"),
        ({"input": ("x.txt",), "vocab": "empty.txt"}, DataError, r"empty.txt has no line \[UNK\]"),
        ({"input": ("x.txt",), "vocab": "nope"}, DataError, "nope: no such file or folder"),
        ({"input": ("x.txt",), "vocab": None}, UsageError, "--vocab-size N is needed"),
        (
            {"input": ("x.txt",), "vocab": None, "vocab_size": 900},
            UsageError,
            "--vocab-size 900 is too large for this text; the largest possible is",
        ),
        (
            {"input": ("x.txt",), "vocab": None, "vocab_size": 30, "shard": "0/2"},
            UsageError,
            "--shard needs --vocab",
        ),
        (
            {"test": ("x.txt",), "vocab": None, "vocab_size": 30},
            UsageError,
            "a vocabulary is trained on --input",
        ),
        (
            {"input": ("blank.txt",), "vocab": None, "vocab_size": 30},
            DataError,
            "no text to train a vocabulary on",
        ),
        (
            {"input": ("empty.txt",), "vocab": None, "vocab_size": 30},
            DataError,
            "no text to train a vocabulary on",
        ),
    ],
)
def test_bad_input_is_told_and_leaves_nothing(here, vocab, options, error, message):
    (here / "x.txt").write_text("the cat sat\non the mat\nunder a tree\n")
    (here / "short.txt").write_text("the\ncat\n")
    (here / "empty.txt").write_text("")
    (here / "blank.txt").write_text(" \n\n\t\n")
    (here / "bad.txt").write_bytes(b"the\n\xe4\n")
    (here / "q.json").write_text(json.dumps({"data": [{"title": "x"}]}))
    before = set(here.rglob("*"))
    if options.get("vocab"):
        options = {**options, "vocab": here / options["vocab"]}
    with pytest.raises(error, match=message) as raised:
        preprocess(Options(**{"vocab": vocab, "dest": here / "a" / "d", **options}))
    assert "\n" not in str(raised.value)
    assert set(here.rglob("*")) == before


def test_one_empty_file_among_others_is_only_mentioned(here, vocab, capsys):
    (here / "x0.txt").write_text("")
    (here / "x1.txt").write_text("the cat\n")
    preprocess(Options(input=("x*.txt",), dest=here / "d", vocab=vocab))
    assert "warning: x0.txt: " in capsys.readouterr().err


def test_a_full_disk_leaves_nothing(here, vocab, monkeypatch):
    small_blocks(monkeypatch)
    (here / "x.txt").write_text(some_text(1))
    room, add = [3], CorpusWriter.add

    def until_full(self, *words):
        room[0] -= 1
        if room[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        add(self, *words)

    monkeypatch.setattr(CorpusWriter, "add", until_full)
    with pytest.raises(DataError, match="--dest .*d: No space.*device"):
        preprocess(Options(input=("x.txt",), dest=here / "d", vocab=vocab))
    assert [path.name for path in here.iterdir()] == ["x.txt"]


def test_an_existing_corpus_is_kept_unless_told(here, vocab):
    (here / "x.txt").write_text("the cat\n")
    (here / "y.txt").write_text("a dog\n")
    preprocess(Options(input=("x.txt",), dest=here / "d", vocab=vocab))
    before = made(here / "d")
    with pytest.raises(UsageError, match="d .*already; --overwrite replaces it"):
        preprocess(Options(input=("y.txt",), dest=here / "d", vocab=vocab))
    with pytest.raises(DataError):  # not replaced by a failure either
        preprocess(Options(input=("z.txt",), dest=here / "d", vocab=vocab, overwrite=True))
    assert made(here / "d") == before
    preprocess(Options(input=("y.txt",), dest=here / "d", vocab=vocab, overwrite=True))
    assert made(here / "d") != before and len(list(here.iterdir())) == 3


def test_shards_are_numbered_from_0():
    assert parse_shard("0/1") == (0, 1) and parse_shard("3/4") == (3, 4)
    assert parse_shard(None) is None


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak in /proc")
def test_memory_does_not_grow_with_the_corpus(here, vocab):
    program = """
import sys
from pathlib import Path
from unitk.data.corpus.preprocess import Options, preprocess
text, dest, vocab = map(Path, sys.argv[1:])
preprocess(Options(input=(str(text),), dest=dest, vocab=vocab, workers=1))
print(*(line for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    peak = []
    for times in (1000, 4000):
        (here / "x.txt").write_text(some_text(5) * times)
        words = [sys.executable, "-c", program, "x.txt", f"d{times}", str(vocab)]
        done = subprocess.run(words, capture_output=True, text=True)
        peak.append(int(done.stdout.split()[-2]))
    assert peak[1] < 1.1 * peak[0], peak


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_killed_parent_takes_its_workers_along(here, vocab):
    (here / "x.txt").write_text(some_text(5) * 5000)
    words = [sys.executable, "-m", "unitk_cli", "preprocess", "--input", "x.txt"]
    words += ["--dest", "d", "--vocab", str(vocab), "--workers", "2"]
    for stop in (signal.SIGKILL, signal.SIGTERM):
        run = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.time() + 30
        while time.time() < deadline:
            found = subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True, text=True)
            if len(children := found.stdout.split()) >= 2 and any(here.glob(".tmp-*-d")):
                break
            time.sleep(0.05)
        run.send_signal(stop)
        assert run.wait(30) == (-9 if stop == signal.SIGKILL else 143)
        deadline = time.time() + 30
        while children and time.time() < deadline:
            children = [c for c in children if Path(f"/proc/{c}").exists()]
            time.sleep(0.05)
        assert not children
        assert any(here.glob(".tmp-*-d")) == (stop == signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="signals to a group of processes")
@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_workers_that_are_ended_while_they_start_are_quiet(here, vocab, stop):
    """A terminal's Ctrl-C reaches the workers too, which are importing then."""
    (here / "x.txt").write_text(some_text(5) * 5000)
    words = [sys.executable, "-m", "unitk_cli", "preprocess", "--input", "x.txt"]
    words += ["--dest", "d", "--vocab", str(vocab), "--workers", "2"]
    for late in (0.0, 0.1, 0.2, 0.3, 0.5):
        run = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, start_new_session=True)
        deadline = time.time() + 120
        while time.time() < deadline:
            if subprocess.run(["pgrep", "-P", str(run.pid)], capture_output=True).stdout:
                break
        time.sleep(late)
        os.killpg(run.pid, stop)
        _, said = run.communicate(timeout=30)
        assert run.returncode == (130 if stop == signal.SIGINT else 143) and "Traceback" not in said
        assert not (here / "d").exists() and not any(here.glob(".tmp-*-d"))


def test_numbers_fit_their_type(here, vocab):
    (here / "x.txt").write_text("the cat\n")
    preprocess(Options(input=("x.txt",), dest=here / "d", vocab=vocab))
    corpus = open_corpus(here / "d")
    assert isinstance(corpus, Corpus) and corpus.dtype == np.uint16
    assert corpus.tokens(0, 9).dtype == np.int64


def test_a_long_passage_keeps_a_window_around_the_answer(here, vocab):
    words = random.Random(1).choices(WORDS, k=80)
    passage = " ".join([*words[:50], "rabbit", *words[50:]])
    answers = [{"text": "rabbit"}]
    paragraph = {"context": passage, "qas": [{"question": "the cat ?", "answers": answers}]}
    (here / "x.json").write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    for limit in (40, 1000):
        given = {"input": ("x.json",), "window": limit, "dest": here / str(limit)}
        preprocess(Options(vocab=vocab, **given))
        pairs, known = open_corpus(here / str(limit)), corpus_vocab(here / str(limit))
        _, kept = pairs.record(0)[0]
        if limit == 40:
            assert pairs.source_lengths[0] <= 40 < 2 + len(known.encode(passage))
        before, _, after = known.decode(kept).partition("rabbit")
        whole = passage.startswith(before), passage.endswith(after)
        assert after and whole == (limit == 1000, limit == 1000)


STORIES = "a cat .\n\nthe cat sat .\n<|endoftext|>\na dog .\n\nthe dog sees .\n<|endoftext|>\n"


@pytest.mark.parametrize("line", ["<|endoftext|>", "</s>", "[SEP]", "<eos>"])
def test_a_line_that_is_a_symbol_is_warned_about(here, vocab, capsys, line):
    (here / "x.txt").write_text(STORIES.replace("<|endoftext|>", line))
    given = {"input": ("x.txt",), "vocab": vocab, "overwrite": True, "dest": here / "d"}
    preprocess(Options(**given))
    warned = capsys.readouterr().err
    assert f" '{line}'" in warned and "2 lines" in warned and "--document-mark" in warned
    assert open_corpus(here / "d").counts.documents == 3
    preprocess(Options(**given, document_mark=line))
    assert line not in capsys.readouterr().err
    counts = open_corpus(here / "d").counts
    assert (counts.documents, counts.sentences) == (2, 4)


@pytest.mark.parametrize(("mark", "warns"), [("sees", False), ("<|end|>", True), ("", False)])
def test_a_mark_that_is_nowhere_is_warned_about(here, vocab, capsys, mark, warns):
    (here / "x.txt").write_text(STORIES.replace("<|endoftext|>", ""))
    preprocess(Options(input=("x.txt",), vocab=vocab, dest=here / "d", document_mark=mark))
    assert ("--document-mark" in capsys.readouterr().err) == warns


@pytest.mark.parametrize(
    ("text", "count"),
    [("a cat.<|endoftext|>\nthe dog. <|endoftext|>\n", 2), ("i saw <b>\n[1]\n<s> a\n", 0)],
)
def test_a_symbol_at_the_end_of_a_line_is_warned_about(here, vocab, capsys, text, count):
    (here / "x.txt").write_text(text)
    preprocess(Options(input=("x.txt",), vocab=vocab, dest=here / "d"))
    assert (f"{count} lines" in capsys.readouterr().err) == bool(count)


def test_a_mark_is_for_plain_text_of_documents(here, vocab):
    (here / "x.jsonl").write_text('{"text": "a"}')
    (here / "x.txt").write_text("a")
    given = f"--vocab {vocab} --dest d"
    with pytest.raises(UsageError, match="--document-mark .*no effect.*jsonl"):
        verb.run(f"--input x.jsonl --document-mark x {given}".split())
    with pytest.raises(UsageError, match="--document-mark and --documents line exclude"):
        verb.run(f"--input x.txt --document-mark x --documents line {given}".split())
    with pytest.raises(UsageError, match="--document-mark must be.*got ' '"):
        preprocess(Options(input=("x.txt",), dest=here / "d", vocab=vocab, document_mark=" "))


def test_records_are_pairs(here, vocab, capsys):
    lines = [{"body": "the cat", "title": "a dog\na cat"}, {"body": "", "title": "the mat"}] * 9
    (here / "x.jsonl").write_text("\n".join(map(json.dumps, lines)))
    fields = {"source_field": ("body",), "target_field": ("title",), "skip_empty": True}
    given = Options(input=("x.jsonl",), dest=here / "d", vocab=vocab, sentence_mark="?", **fields)
    preprocess(given)
    assert "\n  empty records skipped: 9\n" in capsys.readouterr().out
    pairs, known = open_corpus(here / "d"), corpus_vocab(here / "d")
    assert isinstance(pairs, Pairs) and len(pairs) == 9
    labels = {"label_field": "title", "target_field": (), "sentence_mark": ""}
    preprocess(dataclasses.replace(given, dest=here / "labels", **labels))
    assert "\n  empty records skipped: 9\n" in capsys.readouterr().out
    (here / "full.jsonl").write_text(json.dumps(lines[0]))
    preprocess(dataclasses.replace(given, input=("full.jsonl",), dest=here / "full"))
    assert "skipped" not in capsys.readouterr().out
    source, target = pairs.record(8)
    assert [known.decode(ids) for ids in (*source, target)] == ["the cat", "a dog ? a cat"]
    with pytest.raises(UsageError, match="--source-field and --target-field belong together"):
        preprocess(dataclasses.replace(given, target_field=(), overwrite=True))
    with pytest.raises(UsageError, match="--window .*at least 1, got 0"):
        preprocess(dataclasses.replace(given, window=0, overwrite=True))
