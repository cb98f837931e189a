"""A destination is whole or absent, has one writer, and keeps its link and the umask's rights."""

import multiprocessing
import os
from pathlib import Path

import pytest

from unitk import files
from unitk.errors import CheckpointError, DataError, UsageError


@pytest.fixture
def umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def make(dest, text, folder, option="--dest", fault=CheckpointError):
    opened = files.new_folder if folder else files.new_file
    with opened(dest, option, fault) as part:
        (part / "x" if folder else part).write_text(text)


def content(dest):
    return (dest / "x" if dest.is_dir() else dest).read_text()


@pytest.mark.parametrize("folder", [False, True])
def test_what_fails_leaves_nothing_and_what_was_there_stays(tmp_path, folder):
    opened = files.new_folder if folder else files.new_file
    more = {"replace": True} if folder else {}
    for before in (None, "old"):
        dest = tmp_path / "out.png"
        if before:
            make(dest, before, folder)
        left = sorted(tmp_path.rglob("*"))
        for error, shown in [(OSError(28, "No space left"), CheckpointError), (KeyError, KeyError)]:
            with pytest.raises(shown), opened(dest, "--dest", CheckpointError, **more) as part:
                assert part.suffix == ".png"
                (part / "x" if folder else part).write_text("half")
                raise error
            assert sorted(tmp_path.rglob("*")) == left
    assert content(dest) == "old"


@pytest.mark.parametrize("folder", [False, True])
def test_a_link_is_kept_and_written_through(tmp_path, folder):
    (tmp_path / "disk").mkdir()
    (tmp_path / "name").symlink_to(tmp_path / "disk" / "real")
    make(tmp_path / "name", "x", folder)
    assert (tmp_path / "name").is_symlink()
    assert content(tmp_path / "disk" / "real") == "x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "name"]
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["real"]


def test_rights_follow_the_umask_whatever_a_library_writes(tmp_path, umask):
    with files.new_folder(tmp_path / "d", "--dest") as part:
        (part / "inner").mkdir()
        (part / "inner" / "secret").touch(0o600)
    with files.new_file(tmp_path / "f", "--output") as part:
        part.unlink()
        part.touch(0o600)
    modes = [os.stat(tmp_path / name).st_mode & 0o777 for name in ("d", "d/inner/secret", "f")]
    assert modes == [0o755, 0o644, 0o644]


def _write_slowly(dest, folder, entered, go_on):
    opened = files.new_folder if folder else files.new_file
    with opened(dest, "--dest") as part:
        entered.set()
        go_on.wait(60)
        (part / "x" if folder else part).write_text("first")


@pytest.mark.parametrize("folder", [False, True])
def test_the_second_writer_is_refused_by_any_name_and_a_killed_one_forgotten(tmp_path, folder):
    fork = multiprocessing.get_context("fork")
    dest, other = tmp_path / "out", tmp_path / "link"
    other.symlink_to(dest)
    for kill in (True, False):
        entered, go_on = fork.Event(), fork.Event()
        process = fork.Process(target=_write_slowly, args=(dest, folder, entered, go_on))
        process.start()
        assert entered.wait(60)
        for name in (dest, other):
            with pytest.raises(UsageError, match=f"is being written by process {process.pid} on"):
                make(name, "second", folder)
        process.kill() if kill else go_on.set()
        process.join()
        assert dest.exists() != kill
    assert content(dest) == "first"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "out"]


def test_a_folder_that_a_killed_process_had_put_aside_comes_back(tmp_path):
    make(tmp_path / ".old-77-out", "mine", True)
    make(tmp_path / ".tmp-77-out", "half", True)
    make(tmp_path / ".tmp-77-another-out", "not mine", True)
    with pytest.raises(UsageError, match="exists already"):
        make(tmp_path / "out", "new", True)
    assert content(tmp_path / "out") == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".tmp-77-another-out", "out"]


def test_the_option_or_the_file_that_was_read_is_named(tmp_path):
    for dest, said in [(tmp_path / "no" / "out", "No such file or directory"),
                       (tmp_path / ("x" * 255), "File name too long")]:  # fmt: skip
        with pytest.raises(DataError, match=f"^--output {dest}: {said}"):
            make(dest, "x", False, "--output", DataError)
    with pytest.raises(DataError, match=r"^/nowhere: No such file"):
        with files.new_file(tmp_path / "out", "--output"):
            open("/nowhere").close()
    with pytest.raises(UsageError, match="/dev/full exists, and is not a file"):
        make(Path("/dev/full"), "x", False)


def test_malformed_manifests_are_one_line(tmp_path):
    (tmp_path / "model").write_text("x")
    files.seal(tmp_path)
    assert files.damage(tmp_path) is None
    good = (tmp_path / "manifest.json").read_text()
    size = '{"size": 1}'
    for text in ["[]", "{}", "[" * 100_000, '{"files": []}', '{"files": {}}', "\xff", "",
                 '{"files": {"model": []}}', '{"files": {"model": {}}}',
                 f'{{"files": {{"model": {size}}}}}', good.replace("{", "{ ", 1)]:  # fmt: skip
        (tmp_path / "manifest.json").write_text(text, encoding="latin-1")
        fault = files.damage(tmp_path)
        assert fault and fault.startswith("manifest.json") and "\n" not in fault, text[:40]
