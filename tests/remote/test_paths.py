"""Addresses are read as paths, and what is written there appears as a whole."""

from __future__ import annotations

import os
import pickle

import pytest

from unitk import files
from unitk.data.files.files import expand
from unitk.data.files.lines import head, numbered_lines, size_of
from unitk.errors import DataError, UsageError
from unitk.options.fields import local
from unitk.pretrained import locate
from unitk.remote import paths


def test_a_file_is_read_in_ranges_wherever_it_is(bucket, monkeypatch):
    path, folder = bucket
    data = os.urandom(100_000)
    (folder / "x").write_bytes(data)
    monkeypatch.setattr(paths, "RANGE", 1000)
    with (path / "x").open("rb") as file:
        assert file.read() == data
        assert (file.seek(-77_777, 2), file.read(10_001)) == (22_223, data[22_223:32_224])
        assert (file.seek(5), file.seek(3, 1), file.read(4)) == (5, 8, data[8:12])
    assert not (folder.parent / "here").exists()  # nothing was copied


def test_what_a_path_says_of_what_is_there(bucket):
    path, folder = bucket
    (folder / "a").mkdir()
    (folder / "a" / "b.txt").write_text("héllo\nyou\n", encoding="utf-8")
    file = path / "a" / "b.txt"
    assert (file.is_file(), file.is_dir(), file.exists(), file.stat().st_size) == (
        True,
        False,
        True,
        11,
    )
    assert ((path / "a").is_dir(), (path / "no").exists(), (path / "no").is_dir()) == (
        True,
        False,
        False,
    )
    assert [*path.iterdir()] == [path / "a"] and [*path.glob("*/b.txt")] == [file]
    assert [*path.glob("*.txt")] == [] and [*path.glob("**/*.txt")] == [file]
    assert file.read_text(encoding="utf-8") == "héllo\nyou\n"
    assert str(pickle.loads(pickle.dumps(file))) == str(file)
    assert ([text for text, _ in numbered_lines(file)], size_of(file)) == (
        ["héllo", "you", ""][:2],
        11,
    )


def test_a_library_that_wants_a_file_gets_a_copy(bucket, tmp_path):
    path, folder = bucket
    (folder / "x.npy").write_bytes(b"abc")
    with open(path / "x.npy", "rb") as file:
        assert file.read() == b"abc"
    copy = os.fspath(path / "x.npy")
    assert copy.startswith(str(tmp_path / "here")) and copy.endswith("/x.npy")


def test_options_take_addresses_wildcards_and_folders(bucket):
    path, folder = bucket
    for name in ("a.txt", "b.txt", "c.json"):
        (folder / name).write_text("text\n")
    assert local(str(path / "a.txt"), "--input") == path / "a.txt"
    assert expand([f"{path}/*.txt"], "--input") == [path / "a.txt", path / "b.txt"]
    assert expand([f"{path}"], "--input") == [path / "a.txt", path / "b.txt", path / "c.json"]
    assert head(expand([f"{path}/c.json"], "--input")[0]) == b"text\n"
    with pytest.raises(UsageError, match="--input file:///.*/no.txt"):
        expand([f"{path}/no.txt"], "--input")


def test_a_folder_is_copied_once_and_again_when_it_changes(bucket, machine):
    path, folder = bucket
    with pytest.raises(Exception, match="file:.*/no"):
        locate(path / "no", "files")
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "c").write_text("1")
    (folder / "a" / "d.bin").write_text("22")
    copy = locate(path / "a", "files")
    assert files.below(copy).keys() == {"b/c", "d.bin"}
    assert locate(path / "a", "files") == copy
    assert files.below(locate(path / "a", "vocab")).keys() == {"b/c"}
    machine("here")
    (folder / "a" / "b" / "c").write_text("333")
    assert (locate(path / "a", "files") / "b" / "c").read_text() == "333"


def test_the_cache_removes_what_nobody_has_used_for_long(bucket, machine, monkeypatch):
    path, folder = bucket
    monkeypatch.setenv("UNITK_CACHE_SIZE", "100k")
    for name in "abc":
        (folder / name).mkdir()
        (folder / name / "x").write_bytes(os.urandom(60_000))
    a, b = (locate(path / name, "files") for name in "ab")
    assert a.exists() and b.exists()  # both are in use: they stay
    machine("here")
    b = locate(path / "b", "files")
    c = locate(path / "c", "files")
    assert (a.exists(), b.exists(), c.exists()) == (False, True, True)
    monkeypatch.setenv("UNITK_CACHE_SIZE", "lots")
    with pytest.raises(UsageError, match="--cache-size.*'lots'"):
        machine("here")
        locate(path / "a", "files")


def test_a_new_file_or_folder_appears_as_a_whole(bucket):
    path, folder = bucket
    with files.new_file(path / "x.json", "--output") as part:
        part.write_text("1")
        assert not (folder / "x.json").exists()
    assert (folder / "x.json").read_text() == "1"
    with pytest.raises(UsageError, match="--output file:.*x.json.*--overwrite"):
        with files.new_file(path / "x.json", "--output", replace=False):
            raise AssertionError
    with files.new_folder(path / "model", "--dest") as part:
        (part / "a").mkdir()
        (part / "a" / "b").write_text("2")
    assert files.below(folder / "model").keys() == {"a/b"}
    with pytest.raises(UsageError, match="--dest file:.*model"):
        with files.new_folder(path / "model", "--dest"):
            raise AssertionError
    with files.new_folder(path / "model", "--dest", replace=True) as part:
        (part / "c").write_text("3")
    assert {one.name for one in folder.rglob("*")} == {"x.json", "model", "c"}
    with pytest.raises(ZeroDivisionError), files.new_folder(path / "none", "--dest"):
        _ = 1 / 0
    assert not (folder / "none").exists()
    staged = folder.parent / "here" / "written"
    assert not [one for one in staged.rglob("*") if one.is_file()]


def test_manifests_are_uploaded_last_and_removed_first(bucket, monkeypatch):
    path, folder = bucket
    seen = []
    upload, remove = type(path.store).upload, type(path.store).remove
    monkeypatch.setattr(
        type(path.store), "upload", lambda self, here, to: (seen.append(to), upload(self, here, to))
    )
    monkeypatch.setattr(
        type(path.store), "remove", lambda self, one: (seen.append(f"-{one}"), remove(self, one))
    )
    for _ in range(2):
        with files.new_folder(path / "m", "--dest", replace=True) as part:
            (part / "source").mkdir()
            for name in ("a", "source/b", "source/manifest.json", "manifest.json", "z"):
                (part / name).write_text(name)
    names = [one.replace(f"{path}/m/", "") for one in seen]
    assert {*names[:3]} == {"a", "source/b", "z"} and names[3:5] == [
        "source/manifest.json",
        "manifest.json",
    ]
    assert {*names[5:7]} == {"-source/manifest.json", "-manifest.json"}


def test_a_store_that_is_full_ends_in_one_line(bucket, monkeypatch):
    path, _ = bucket

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(type(path.store.fs), "put_file", full)
    with pytest.raises(DataError, match="^file:.*x: No space.*; tried 4 "):
        with files.new_file(path / "x", "--output") as part:
            part.write_text("1")
