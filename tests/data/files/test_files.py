"""The files that a user names."""

import gzip
import json
import os
from pathlib import Path

import pytest
from packed_files import write

from unitk.data.files.documents import Separators
from unitk.data.files.files import Files, expand
from unitk.data.files.readers import records
from unitk.errors import DataError, UsageError
from unitk.options.fields import Place, parse_value

BLANK = Separators()


def test_wildcards_are_expanded_in_order(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("b1.txt", "b0.txt", "a.txt", "x[1].txt"):
        write(tmp_path / name, "x")
    (tmp_path / "b2.txt").mkdir()
    assert [str(path) for path in expand(["b*.txt", "a.txt"], "--input")] == [
        "b0.txt",
        "b1.txt",
        "a.txt",
    ]
    assert [str(path) for path in expand(["x[1].txt"], "--input")] == ["x[1].txt"]
    for pattern, message in [
        ("c*.txt", "--valid c\\*.txt: no file has such a name"),
        ("c.txt", "--valid c.txt: no such file"),
        ("b2.txt", "--valid b2.txt: the folder has no file that ends in .*.jsonl, .*.txt"),
        ("ftp://example.com/a.txt", "--valid ftp://example.com/a.txt is an address; download"),
        ("r2://datasets/a", "r2://datasets/a is an address"),
    ]:
        with pytest.raises(DataError, match=message):
            expand([pattern], "--valid")
    with pytest.raises(DataError, match="--input d: .*; commas"):
        expand(parse_value("d,e.txt", tuple[Place, ...], "--input"), "--input")
    with pytest.raises(UsageError, match="--valid names a.txt twice"):
        expand(["a.txt", "*.txt"], "--valid")
    write(tmp_path / "b2.txt" / "a.train", "x")
    with pytest.raises(DataError, match="'b2.txt/\\*' reads files with any ending"):
        expand(["b2.txt"], "--input")
    assert expand(["b2.txt/*"], "--input") == [Path("b2.txt/a.train")]
    write(tmp_path / "b2.txt" / "x.csv.gz", "x"), write(tmp_path / "b2.txt" / "notes.md", "x")
    assert expand(["b2.txt"], "--input") == [Path("b2.txt/x.csv.gz")]


def test_lines_for_a_vocabulary_are_all_sides(tmp_path):
    source, target = write(tmp_path / "s", "a\nb\n"), write(tmp_path / "t", "c\nd\n")
    assert list(Files([source], [target], None).lines()) == ["a", "c", "b", "d"]
    asked = {"question": "Who?", "answers": [{"text": "Ann"}]}
    tree = {"data": [{"paragraphs": [{"context": "Ann met Bob.", "qas": [asked]}]}]}
    path = write(tmp_path / "x.json", json.dumps(tree))
    assert list(Files([path], [], None).lines()) == ["Ann", "Ann met Bob.", "Who?"]
    assert list(Files([source], [], BLANK).lines()) == ["a", "b"]


def test_wildcards_in_a_folder_whose_name_has_some(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "data[1]"
    folder.mkdir()
    write(folder / "b.txt", "x")
    assert [str(path) for path in expand(["data[1]/*.txt"], "--input")] == ["data[1]/b.txt"]
    assert expand([f"{folder}/?.txt"], "--input") == [folder / "b.txt"]


def test_a_packed_file_may_have_capitals_in_its_ending(tmp_path):
    path = tmp_path / "a.jsonl.GZ"
    path.write_bytes(gzip.compress(b'{"text": "a b"}'))
    assert [one.get("text") for one in records(path)] == ["a b"]


def test_a_name_that_is_not_utf8_is_refused(tmp_path):
    name = os.fsencode(tmp_path) + b"/bad\xff.txt"
    with open(name, "w") as file:
        file.write("x")
    with pytest.raises(UsageError, match="not utf-8, .* rename it"):
        expand([str(tmp_path)], "--input")


def test_commas_are_explained_where_a_name_was_cut_at_one(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="--input Oslo: .*; commas"):
        expand(("Oslo", "Norway.txt"), "--input")
    for names in (("a", "b"), ("a.txt", "b.txt")):  # two files, each after its --input
        with pytest.raises(DataError, match="^(?!.*commas)"):
            expand(names, "--input")
