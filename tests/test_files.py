"""A destination is whole or absent, has one writer, is no link, and has the umask's rights."""

import ast
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
def test_a_link_is_refused_but_not_one_among_the_folders_above(tmp_path, folder):
    (tmp_path / "disk").mkdir()
    (tmp_path / "name").symlink_to(tmp_path / "disk" / "real")
    with pytest.raises(UsageError, match=f"--dest {tmp_path / 'name'} is .*link.*disk/real"):
        make(tmp_path / "name", "x", folder)
    assert not any((tmp_path / "disk").iterdir())
    (tmp_path / "way").symlink_to("disk")
    make(tmp_path / "way" / "real", "x", folder)
    assert content(tmp_path / "disk" / "real") == "x"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["disk", "name", "way"]
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["real"]


def plant(path, kind, thesis):
    """Put something in the place of a file that is to be written."""
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    elif kind == "hard link":
        path.hardlink_to(thesis)
    else:
        path.symlink_to(
            {"nowhere": path.with_name("nowhere"), "device": "/dev/full"}.get(kind, thesis)
        )


PLANTED = ["link", "hard link", "nowhere", "device", "pipe", "folder"]


@pytest.mark.parametrize("kind", PLANTED)
@pytest.mark.parametrize("folder", [False, True])
def test_a_lock_that_is_no_plain_file_is_refused(tmp_path, folder, kind):
    (tmp_path / "thesis").write_text("ten years of work")
    plant(tmp_path / ".out.lock", kind, tmp_path / "thesis")
    with pytest.raises(UsageError, match=r"\.out\.lock is "):
        make(tmp_path / "out", "x", folder)
    assert (tmp_path / "thesis").read_text() == "ten years of work"
    assert not {"out", "nowhere"} & {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize("kind", PLANTED)
def test_what_is_where_a_file_is_made_is_replaced_or_refused(tmp_path, kind):
    thesis, dest = tmp_path / "thesis", tmp_path / "out"
    for mode in ("w", "wb", "a", "r+b", "xb"):
        thesis.write_text("ten years of work")
        plant(dest, kind, thesis)
        with pytest.raises((UsageError, FileExistsError)):
            files.open_plain(dest, mode)
        if kind != "folder":
            files.create(dest, "mine")
            assert dest.read_text() == "mine" and not dest.is_symlink()
        assert thesis.read_text() == "ten years of work"
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "thesis"]
        dest.rmdir() if kind == "folder" else dest.unlink()


def test_temporary_names_that_somebody_took_are_not_followed(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis").write_text("ten years of work")
    for name in (".tmp-{}-out", ".old-{}-out", ".tmp-7-out", ".old-7-out"):
        path = tmp_path / name.format(os.getpid())
        for what in (mine, mine / "thesis"):
            path.symlink_to(what)
            make(tmp_path / "out", "x", False)
            assert content(tmp_path / "out") == "x" and not (tmp_path / "out").is_symlink()
            files.write(tmp_path / "out", "y")
            assert content(tmp_path / "out") == "y"
            (tmp_path / "out").unlink()
            path.unlink(missing_ok=True)
    assert content(mine / "thesis") == "ten years of work"


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
    other.symlink_to(tmp_path)
    other = other / "out"
    for kill in (True, False):
        entered, go_on = fork.Event(), fork.Event()
        process = fork.Process(target=_write_slowly, args=(dest, folder, entered, go_on))
        process.start()
        assert entered.wait(60)
        for name in (dest, other):
            with pytest.raises(UsageError, match=f"is .*process {process.pid} on"):
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
    with pytest.raises(DataError, match=r"^/nowhere: No such"):
        with files.new_file(tmp_path / "out", "--output"):
            open("/nowhere").close()
    with pytest.raises(UsageError, match="/dev/full .*file"):
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


ROOT = Path(files.__file__).parent.parent
WRITES = {"write_text", "write_bytes", "touch", "tofile", "copyfile", "copy2", "copytree", "mkfifo"}
WRITES |= {"symlink_to", "hardlink_to", "NamedTemporaryFile", "symlink", "mkstemp"}
BY_NAME = {"save_file", "savez", "savefig", "export", "export_chrome_trace"}
"""Functions of libraries that open the file that they write."""


def opens_to_write(call):
    """Whether a call opens a file to write by its name, with other means than those of files.py."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    whole, given = ast.unparse(call.func), [ast.unparse(one) for one in call.args]
    if name in BY_NAME:
        return not any("create(" in one for one in given)
    if whole in ("np.save", "torch.save"):
        return "file" not in given
    if whole == "os.open":
        return given[0] != "os.devnull"
    modes = [one.value for one in call.args[:2] if isinstance(one, ast.Constant)]
    modes += [
        one.value
        for one in ast.walk(ast.Tuple([k.value for k in call.keywords if k.arg == "mode"]))
        if isinstance(one, ast.Constant)
    ]
    text = "".join(one for one in modes if isinstance(one, str))
    return name in WRITES or whole == "shutil.copy" or name == "open" and bool({*"wax+"} & {*text})


def test_no_other_file_of_the_package_opens_files_to_write():
    found = []
    for path in [*ROOT.glob("unitk/**/*.py"), *ROOT.glob("unitk_cli/*.py")]:
        calls = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Call)]
        if path != Path(files.__file__):
            found += [f"{path}:{call.lineno}" for call in calls if opens_to_write(call)]
    assert not found
    for text in ("p.open('w')", "open(p, 'a')", "p.write_text(x)", "np.save(p, x)", "f.savefig(p)"):
        assert opens_to_write(ast.parse(text).body[0].value), text


def test_what_another_process_wrote_meanwhile_stays(tmp_path):
    """It is looked at again under the lock: both were free to begin with."""
    (path := tmp_path / "out.txt").write_text("theirs")
    with pytest.raises(UsageError, match="--output .*out.txt exists"):
        with files.new_file(path, "--output", replace=False):
            pass
    assert path.read_text() == "theirs"
    with files.new_file(path, "--output", replace=True) as part:
        part.write_text("ours")
    assert path.read_text() == "ours"
    path.write_text("")
    with files.new_file(path, "--output", replace=False) as part:  # empty: as good as none
        part.write_text("ours")
    assert [one.name for one in tmp_path.iterdir()] == ["out.txt"]


def test_a_disk_is_no_folder_that_a_rename_replaces(tmp_path, monkeypatch):
    monkeypatch.setattr("os.path.ismount", lambda path: Path(path) == tmp_path)
    with (
        pytest.raises(UsageError, match=f"^--dest {tmp_path} "),
        files.new_folder(tmp_path, "--dest"),
    ):
        pytest.fail("refused before it is filled")
    with files.new_folder(tmp_path / "in", "--dest"):
        pass
