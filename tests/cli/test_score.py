import gzip
import json

import pytest

from unitk.errors import DataError, UsageError
from unitk_cli import preprocess
from unitk_cli.score import run


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hyp").write_text("the cat sat on it\nwho was it ?\n")
    (tmp_path / "ref").write_text("the cat sat on it\nwho is it ?\n")
    (tmp_path / "ref2").write_text("it sat there\nwho was it ?\n")
    (tmp_path / "src").write_text("a cat\na man\n")
    (tmp_path / "short").write_text("one line\n")
    return tmp_path


def words(line):
    run(line.split())


def test_text(files, capsys):
    words("--metric bleu,rouge,qg --hypotheses hyp --references ref --sources src")
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[::2]] == [
        ["bleu", "bleu"],
        ["rouge", "rouge1"],
        ["qg", "bleu4"],
    ]
    assert "sources 2" in lines[4]


def test_json_and_several_references(files, capsys):
    words("--metric bleu --hypotheses hyp --references ref,ref2 --output-format json")
    together = json.loads(capsys.readouterr().out)
    assert together["bleu"]["bleu"] == pytest.approx(100)
    words("--metric bleu --hypotheses hyp --references ref --references ref2 --output-format json")
    assert json.loads(capsys.readouterr().out) == together


def test_tables_and_corpora_hold_the_same_texts(files, capsys):
    wanted = ["the cat sat on it", "who is it ?"]
    outputs = [{"outputs": [{"text": "the cat sat on it"}]}, {"outputs": []}, {"error": "x"}]
    (files / "hyp").write_text("the cat sat on it\n\n\n")
    (files / "ref").write_text("\n".join([*wanted, "no"]))
    (files / "hyp.jsonl").write_text("\n".join(map(json.dumps, outputs)))
    rows = [{"a": wanted[0], "b": ""}, {"a": wanted[1]}, {"b": "no"}]
    (files / "ref.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (files / "ref.csv").write_text("a,b\n" + "\n".join([*wanted, "no"]).replace("\n", ",\n") + ",")
    found = []
    for given in (
        "--hypotheses hyp --references ref",
        "--hypotheses hyp.jsonl --references ref",
        "--hypotheses hyp --references ref.jsonl --target-field a,b",
        "--hypotheses hyp --references ref.csv --target-field a",
    ):
        words(f"--metric bleu,rouge --output-format json {given}")
        found.append(json.loads(capsys.readouterr().out))
    assert all(one == found[0] for one in found[1:])
    with pytest.raises(DataError, match="ref.csv, line 2: no field 'target', .*; there are a, b"):
        words("--metric bleu --hypotheses hyp --references ref.csv")


def test_the_sides_of_a_corpus(files, capsys):
    (files / "src").write_text("the cat sat\nwho was it\n" * 9)
    (files / "tgt").write_text("it sat\nit was\n" * 9)
    pairs = "--source-file src --target-file tgt --vocab-size 23 --dest d --workers 1"
    preprocess.run(pairs.split())
    capsys.readouterr()
    words("--metric stats --hypotheses tgt --references d/train --sources d/train")
    words("--metric stats --hypotheses tgt --references tgt --sources src")
    one, other = capsys.readouterr().out.split("stats")[1:]
    assert one == other


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "--metric cider --hypotheses hyp --references ref",
            "--metric must be one of bleu, rouge",
        ),
        ("--metric bleu --references ref", "--hypotheses is needed"),
        ("--metric qg --hypotheses hyp --references ref", "--metric qg needs --sources"),
        (
            "--metric qg --hypotheses hyp --references ref,ref2 --sources src",
            "takes one --references",
        ),
        (
            "--metric bleu --hypotheses hyp --references ref --sources src",
            "--sources has no effect without --metric qg or stats",
        ),
        ("--metric stats --hypotheses hyp --references ref", "--metric stats needs --sources"),
        (
            "--metric stats --hypotheses hyp --references ref --sources src --treebank hypotheses",
            "--treebank has no effect without --metric qg",
        ),
        (
            "--metric rouge --hypotheses hyp --references ref --lowercase",
            "--lowercase has no effect without --metric bleu",
        ),
    ],
)
def test_usage(files, line, message):
    with pytest.raises(UsageError, match=message):
        words(line)


def test_files_of_different_length(files):
    message = "--references short has 1 lines, but --hypotheses hyp has 2"
    with pytest.raises(DataError, match=message):
        words("--metric bleu --hypotheses hyp --references short")
    with pytest.raises(DataError, match="--sources short has 1 lines"):
        words("--metric qg --hypotheses hyp --references ref --sources short")


def test_a_text_may_have_fewer_references(files, capsys):
    (files / "ref3").write_text("\nwho was it ?\n")
    words("--metric rouge --hypotheses hyp --references ref,ref3 --output-format json")
    assert json.loads(capsys.readouterr().out)["rouge"]["rouge1"] == pytest.approx(100)


def test_plain_questions_are_split_where_asked(files, capsys):
    (files / "plain").write_text("The cat sat on it\nWho is it?\n")
    line = "--metric qg --hypotheses plain --references ref --sources src --output-format json"
    found = {}
    for option in ("", " --treebank hypotheses", " --treebank hypotheses,references"):
        words(line + option)
        found[option] = json.loads(capsys.readouterr().out)["qg"]["bleu4"]
    assert found[""] < 99 < found[" --treebank hypotheses"] == pytest.approx(100)
    assert found[" --treebank hypotheses,references"] == pytest.approx(100)


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_only_newlines_end_a_text(files, capsys, ending):
    texts = ["the cat\u2028sat on\x0cit", "", "who is it ?"]
    pack = gzip.compress if ending else bytes
    for name, mark, end in (("plain", "", "\n"), ("odd", "\ufeff", "\r\n")):
        data = mark + "".join(f"{text}{end}" for text in texts)
        (files / f"{name}{ending}").write_bytes(pack(data.encode()))
    found = []
    for name in ("plain", "odd"):
        given = f"--hypotheses plain{ending} --references {name}{ending}"
        words(f"--metric bleu,rouge --output-format json {given}")
        found.append(json.loads(capsys.readouterr().out))
    assert found[0] == found[1] and found[1]["bleu"]["bleu"] == pytest.approx(100)
    assert found[1]["rouge"]["rouge1"] == pytest.approx(200 / 3)  # an empty text has no words


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "ref is empty"),
        (b"good\nbad \xff\n", "ref, line 2: not UTF-8"),
        (None, "ref: No such file"),
    ],
)
@pytest.mark.parametrize("option", ["hypotheses", "references"])
def test_a_bad_file_is_one_clear_line(files, data, message, option):
    (files / "ref").unlink() if data is None else (files / "ref").write_bytes(data)
    given = {"hypotheses": "hyp", "references": "hyp", option: "ref"}
    with pytest.raises(DataError, match=message):
        words("--metric bleu " + " ".join(f"--{name} {path}" for name, path in given.items()))
