"""`unitk preprocess`: from files of any format to a corpus, and its refusals."""

import bz2
import csv
import gzip
import io
import json
import lzma
import os
import re
import subprocess
import sys
import threading

import pytest

from unitk.comparison.texts import read_documents
from unitk.data.corpus import preprocess as corpora
from unitk.data.corpus.columns import Counts
from unitk.data.corpus.corpus import Pairs, manifest_of
from unitk.data.corpus.folders import corpus_vocab, open_corpus
from unitk.data.files.documents import Separators
from unitk.errors import DataError, UsageError
from unitk.verbs import merge, preprocess
from unitk.vocab.open import open_vocab
from unitk_cli import main


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
    assert corpus.counts.documents == 40
    assert "train: 0.8 kB of text" in capsys.readouterr().out


TEXTS = ["the cat sat .\nit sat on the mat", 'a dog "saw" it , too', "the mat"] * 9


def table(path):
    """The texts, and their number, as a table of the format that the ending tells."""
    rows = [{"body": text, "id": str(i)} for i, text in enumerate(TEXTS)]
    if path.suffix == ".parquet":
        arrow = pytest.importorskip("pyarrow")
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist(rows), path)
    elif path.suffix in (".csv", ".tsv"):
        file = io.StringIO(newline="")
        marks = {"delimiter": "\t", "quotechar": None, "quoting": csv.QUOTE_NONE}
        rows = rows if path.suffix == ".csv" else [r | {"body": r["body"][:7]} for r in rows]
        writer = csv.DictWriter(file, ["id", "body"], **marks if path.suffix == ".tsv" else {})
        writer.writeheader(), writer.writerows(rows)
        path.write_bytes(file.getvalue().encode())
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, indent=1))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))


def same(one, other):
    names = "tokens.bin", "sentences.npy", "documents.npy"
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names)


@pytest.mark.parametrize("name", ["x.json", "x.csv", "x.parquet"])
def test_a_table_of_any_format_is_the_same_corpus(here, name):
    table(here / "x.jsonl"), table(here / name)
    run(preprocess, "--input x.jsonl --field body --vocab-size 30 --dest one --workers 1")
    run(preprocess, f"--input {name} --field body --vocab one --dest two --workers 1")
    assert same(here / "one" / "train", here / "two" / "train")
    assert open_corpus(here / "one").counts.documents == 27
    pair = "--source-field id --target-field body --vocab one --workers 1"
    run(preprocess, f"--input x.jsonl --dest three {pair}")
    run(preprocess, f"--input {name} --dest four {pair}")
    for side in ("source", "target"):
        assert same(here / "three" / "train" / side, here / "four" / "train" / side)


def test_quotes_are_characters_of_tsv(here):
    (here / "x.tsv").write_text('text\tid\n"the cat" sat\t1\n"a dog\t2\n')
    found = read_documents(here / "x.tsv", Separators(format="tsv"))
    assert list(found) == [['"the cat" sat'], ['"a dog']]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.csv", "text,id\na,1\nb\n", "x.csv, line 3: 1 cell, but the header has 2"),
        ("x.tsv", "text\tid\ttext\na\t1\tb\n", "x.tsv, line 1: 2 columns are named 'text'"),
        ("x.csv", 'text,id\n"a,1\n', "x.csv, line 2: no CSV"),
        ("x.csv", "body,id\na,1\n", "x.csv, line 2: no field 'text', .* there are body, id"),
        ("x.json", '[{"text": 3}]', r"x.json: \[0\]: field 'text' must be a text"),
        ("x.parquet", "PAR1", "x.parquet: no parquet, or damaged"),
        ("x.parquet.gz", "PAR1", "gz: parquet within gzip"),
    ],
)
def test_a_bad_table_is_named(here, name, data, message):
    if name == "x.parquet":
        pytest.importorskip("pyarrow")
    (here / name).write_text(data)
    with pytest.raises(DataError, match=message):
        run(preprocess, f"--input {name} --vocab-size 30 --dest d --workers 1")


@pytest.mark.parametrize("ending", ["gz", "bz2", "xz", "zst"])
def test_a_packed_file_is_the_same_corpus(here, ending):
    data = (here / "x.txt").read_bytes()
    if ending == "zst":
        pack = pytest.importorskip("zstandard").compress
    else:
        pack = {"gz": gzip, "bz2": bz2, "xz": lzma}[ending].compress
    packed = pack(data[:100]) + pack(data[100:])  # as two members
    (here / f"x.{ending}").write_bytes(packed)
    run(preprocess, "--input x.txt --vocab-size 26 --dest one --workers 1")
    run(preprocess, f"--input x.{ending} --vocab one --dest two --workers 1")
    assert same(here / "one" / "train", here / "two" / "train")
    for bad, reason in ((packed[:-9], "cut off|damaged"), (data, "no .* data, or damaged")):
        (here / f"x.{ending}").write_bytes(bad)
        with pytest.raises(DataError, match=f"x.{ending}: .*({reason})"):
            run(preprocess, f"--input x.{ending} --vocab one --dest three --workers 1")


def test_streams_and_folders_are_read(here):
    run(preprocess, "--input x.txt --vocab-size 26 --dest one")
    (here / "folder").mkdir()
    (here / "folder" / "x.txt").write_bytes((here / "x.txt").read_bytes())
    run(preprocess, "--input folder --vocab-size 26 --dest two")
    with (here / "x.txt").open() as file:
        done = program("preprocess --input - --vocab-size 26 --dest three", stdin=file)
    assert done.returncode == 0, done.stderr
    os.mkfifo(here / "pipe")
    text = (here / "x.txt").read_text()
    thread = threading.Thread(target=lambda: (here / "pipe").write_text(text), daemon=True)
    thread.start()
    run(preprocess, "--input pipe --vocab-size 26 --dest four")
    for other in ("two", "three", "four"):
        assert same(here / "one" / "train", here / other / "train")


def test_one_vocabulary_of_books_and_dialogues(here):
    rows = [
        {"dialogue": "hi there !", "summary": "xyz greets"},
        {"dialogue": "bye", "summary1": "q"},
    ]
    (here / "talk.jsonl").write_text("\n".join(map(json.dumps, rows * 9)))
    fields = "--field dialogue,summary,summary1"
    run(preprocess, f"--input x.txt talk.jsonl {fields} --vocab-size 35 --vocab-only --dest v")
    vocab = open_vocab(here / "v")
    for text in ("the cat sat on the mat .", "hi there !", "xyz greets", "q"):
        assert vocab.unk not in vocab.encode(text)
    run(preprocess, f"--input x.txt talk.jsonl {fields} --vocab v --documents line --dest all")
    assert open_corpus(here / "all").counts.documents == 40 + 36


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
            "--input x.txt --dest d --input-format cvs",
            "--input-format must be one of auto, .*tsv, .* did you mean csv",
        ),
        ("--input x.txt --dest d --vocab-size 26 --field a", "--field has no effect on text"),
        (
            "--input x.txt --dest d --vocab-size 26 --input-format squad --sentences punct",
            "on squad",
        ),
        ("--input x.txt --dest d --vocab-size 26 --window 9", "--window has no effect on text"),
        (
            "--input x.txt --dest d --vocab-size 26 --input-format jsonl --target-field a",
            "--target-field .*jsonl.* --source-field",
        ),
        (
            "--input x.txt --dest d --input-format jsonl --source-field a --target-field b"
            " --field c",
            "--field has no effect on pairs of records",
        ),
        ("--input x.txt --dest d --source-field a --target-field b", "x.txt is text"),
        (
            "--input x.txt --dest d --vocab-size 26 --vocab-sample 0",
            "--vocab-sample must be at least",
        ),
        (
            "--input x.txt --dest d --vocab-size 26 --vocab-coverage 2",
            r"--vocab-coverage must be in \[0.98, 1\], got 2",
        ),
        ("--source-file x.txt --target-file y.txt --dest d --skip-empty", "no effect on pairs of"),
    ],
)
def test_a_line_that_cannot_be_meant(here, line, message):
    with pytest.raises(UsageError, match=message):
        run(preprocess, line)
    assert not (here / "d").exists()


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("line", "code", "message"),
    [
        (
            "preprocess --input none.txt --vocab-size 26 --dest d",
            3,
            "unitk preprocess: --input none.txt: no such file",
        ),
        (
            "preprocess --valid none.txt --vocab v --dest d",
            3,
            "unitk preprocess: --valid none.txt: no such file",
        ),
        (
            "preprocess --input x.txt --vocab-size 999 --dest d",
            2,
            "unitk preprocess: --vocab-size 999 is too large for this text;"
            r" the largest possible is \d+",
        ),
        (
            "merge x.txt --dest d",
            3,
            "unitk merge: x.txt is not a corpus, nor a folder with train/ in it",
        ),
    ],
)
def test_a_mistake_is_one_line_and_an_exit_code(here, line, code, message):
    done = program(line)
    assert done.returncode == code and re.fullmatch(message, done.stderr.strip())
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


def test_a_file_that_grows_or_goes_away_once_it_is_read(here, monkeypatch):
    """What is recorded of it is what it was: shards are compared by it."""
    run(preprocess, "--input x.txt --vocab-size 26 --vocab-only --dest v")
    size, read = (here / "x.txt").stat().st_size, corpora.select_shard

    def then_gone(blocks, *how):
        yield from read(blocks, *how)
        (here / "x.txt").unlink()

    monkeypatch.setattr(corpora, "select_shard", then_gone)
    run(preprocess, "--input x.txt --vocab v --dest d")
    assert manifest_of(here / "d" / "train")["source_bytes"] == size


def test_texts_a_line_in_one_document_are_warned_about(here, capsys):
    (here / "mails.txt").write_text("the cat sat on the mat .\n" * 1001)
    run(preprocess, "--input x.txt --vocab-size 26 --vocab-only --dest v")
    run(preprocess, "--input mails.txt --vocab v --dest a --workers 1")
    assert "1 document of 1,001 sentences" in (shown := capsys.readouterr().err)
    assert "add --documents line" in shown
    run(preprocess, "--input mails.txt --vocab a --documents line --dest b --workers 1")
    assert "add --documents" not in capsys.readouterr().err


TAGGED = "Jim O\nruns O\n\nAnn O\n"
ASKED = '{"a": "it", "b": "who sees it", "y": "one"}\n'


@pytest.mark.parametrize(
    ("file", "text", "options", "held"),
    [
        ("x.conll", TAGGED, "words --label-field tags --labels tags", ["2 texts, 3 words, "]),
        (
            "x.jsonl",
            ASKED,
            "a,b --target-field y",
            ["source: 1 text, 2 parts, ", "target: 1 text, "],
        ),
        ("x.jsonl", ASKED, "b --label-field y", ["1 text, "]),
    ],
)
def test_pairs_and_labelled_texts_are_no_documents(here, capsys, file, text, options, held):
    (here / file).write_text(text)
    vocab = "--vocab unitk-base-en --dest d"
    run(preprocess, f"--input {file} --source-field {options} {vocab}")
    shown = capsys.readouterr().out
    assert all(f"  {line}" in shown for line in held) and "sentence" not in shown


@pytest.mark.parametrize(
    ("labels", "found", "held"),
    [
        ("class", ["no", -1, "-", "no"], "3 labels: no (2), -1 (1), - (1)"),
        ("classes", [["b", "a"], [], ["a"], "a,c"], "3 labels: a (3), b (1), c (1)"),
        ("tags", ["O B-X", "O O"], "2 labels: O (3), B-X (1)"),
        ("links", [[[0, 1, "q1"]], []], "1 label: q1 (1)"),
    ],
)
def test_the_labels_that_were_read_are_printed(here, capsys, labels, found, held):
    rows = ({"text": "a cat", "label": label} for label in found)
    (here / "x.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    how = f"--source-field text --label-field label --labels {labels}"
    run(preprocess, f"--input x.jsonl {how} --vocab unitk-base-en --dest d")
    assert f"  {held}\n" in capsys.readouterr().out


def test_scripts_without_blanks_have_no_tokens_a_word():
    assert "2.00 tokens" in Counts(1, 2, 20, 10).describe()
    known = "1 document, 2 sentences, 900 tokens, 0.00% unknown"
    assert Counts(1, 2, 900, 10).describe() == known


def test_a_ctrl_c_is_one_word(monkeypatch, capsys):
    def stopped(words):
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "find_verb", lambda name: stopped)
    monkeypatch.setattr(sys, "argv", ["unitk", "preprocess"])
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert ended.value.code == 130 and capsys.readouterr().err.strip() == "interrupted"
