"""An output that is killed at any moment and resumed equals the uninterrupted one."""

import json
import os
from pathlib import Path

import pytest

from unitk.decoding.files.outputs import STDOUT, check_writable
from unitk.decoding.files.sink import OutputFile, is_finished
from unitk.errors import DataError, UsageError
from unitk.verbs.embed import Options

GROUPS = [(["one", "two"], 2), (["three"], 1), (["vier", "fünf", ""], 3), (["end"], 1)]
WHOLE = "one\ntwo\nthree\nvier\nfünf\n\nend\n"


class Kill(BaseException):
    """No `except` but that of the test stops it."""


def go(path, resume, made_from=None):
    """What `unitk generate` does with a sink."""
    sink = OutputFile(path, made_from or {"beam": "5"}, resume)
    done = 0
    for lines, inputs in GROUPS:
        if done >= sink.done:
            sink.add(lines, inputs)
        done += inputs
    sink.close()


@pytest.fixture
def kill_at(monkeypatch):
    """Die at the n-th thing that is done to the disk; a text is half written then."""

    def arm(number):
        left = [number]

        def tick():
            left[0] -= 1
            return left[0] == 0

        def dying(real):
            def call(*args, **more):
                if tick():
                    raise Kill
                return real(*args, **more)

            return call

        write_text = Path.write_text

        def half(self, text, **more):
            if tick():
                write_text(self, text[: len(text) // 2], **more)
                raise Kill
            return write_text(self, text, **more)

        open_ = OutputFile.file.func

        def opened(self):
            if tick():
                raise Kill
            file = open_(self)

            class Dying:
                def write(self, data):
                    if tick():
                        file.write(data[: len(data) // 2])
                        file.flush()
                        raise Kill
                    return file.write(data)

                def __getattr__(self, name):
                    return getattr(file, name)

            return Dying()

        monkeypatch.setattr(OutputFile.file, "func", opened)
        monkeypatch.setattr(Path, "write_text", half)
        for name in ("replace", "unlink"):
            monkeypatch.setattr(Path, name, dying(getattr(Path, name)))
        monkeypatch.setattr(os, "fsync", dying(os.fsync))

    return arm


def test_a_kill_at_any_moment_loses_no_line(tmp_path, kill_at, monkeypatch):
    kills = 0
    for first in range(1, 99):
        folder = tmp_path / str(first)
        folder.mkdir()
        path = folder / "out.txt"
        path.write_text("old")
        try:
            with monkeypatch.context():
                kill_at(first)
                go(path, resume=False)
            monkeypatch.undo()
            break
        except Kill:
            monkeypatch.undo()
        assert path.read_text() in ("old", WHOLE)
        kills += 1
        for second in (3, 5, 9):  # and once more
            try:
                kill_at(second)
                go(path, resume=True)
            except Kill:
                pass
            finally:
                monkeypatch.undo()
        go(path, resume=True)
        assert path.read_text() == WHOLE
        assert [entry.name for entry in folder.iterdir()] == ["out.txt"]
    assert kills > 15


def killed(path, kill_at, monkeypatch, at=17):
    with pytest.raises(Kill):
        kill_at(at)
        go(path, resume=False)
    monkeypatch.undo()


def test_what_is_done_is_not_done_again(tmp_path, kill_at, monkeypatch):
    path = tmp_path / "out.txt"
    killed(path, kill_at, monkeypatch)
    assert OutputFile(path, {"beam": "5"}, True).done == 3


def test_another_run_is_not_continued(tmp_path, kill_at, monkeypatch, caplog):
    path = tmp_path / "out.txt"
    killed(path, kill_at, monkeypatch)
    with pytest.raises(UsageError, match="out.txt .*begun.* --beam 5, not 4; without"):
        go(path, True, {"beam": "4"})
    with pytest.raises(UsageError, match="was begun with --seed None, not 1"):
        go(path, True, {"beam": "5", "seed": "1"})
    go(path, False, {"beam": "4"})
    assert "out.txt starts anew; --resume" in caplog.text
    assert path.read_text() == WHOLE


def test_damaged_files_are_refused(tmp_path, kill_at, monkeypatch):
    path = tmp_path / "out.txt"
    killed(path, kill_at, monkeypatch)
    (tmp_path / ".out.txt.partial").write_text("one\n")
    with pytest.raises(DataError, match="partial lacks lines"):
        go(path, True)
    (tmp_path / ".out.txt.progress").write_text("{")
    with pytest.raises(DataError, match="progress: not JSON .*; remove it"):
        go(path, True)
    record = {"inputs": 1, "bytes": 4, "made_from": {}}
    for wrong in ({"inputs": "1"}, {"bytes": None}, {"made_from": 3}):
        (tmp_path / ".out.txt.progress").write_text(json.dumps(record | wrong))
        with pytest.raises(DataError, match="out.txt.progress .*damaged"):
            go(path, True)


def test_a_full_disk_keeps_what_is_done(tmp_path, monkeypatch):
    path = tmp_path / "out.txt"
    path.write_text("old")
    sink = OutputFile(path, {"beam": "5"}, False)
    sink.add(*GROUPS[0])

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="--output .*out.txt: No space.*device"):
        sink.add(*GROUPS[1])
    monkeypatch.undo()
    assert path.read_text() == "old"
    go(path, resume=True)
    assert path.read_text() == WHOLE


def test_what_may_be_replaced(tmp_path):
    def check(output, replace=False):
        check_writable(Options(checkpoint=tmp_path / "run", output=output, overwrite=replace))

    path = tmp_path / "out.txt"
    check(path)
    path.touch()
    check(path)  # as mktemp leaves it
    path.write_text("old")
    check(path, replace=True)
    with pytest.raises(UsageError, match="out.txt exists already; --overwrite replaces it"):
        check(path)
    with pytest.raises(UsageError, match="--overwrite .*no effect.* --output"):
        check(STDOUT, replace=True)


def test_a_finished_output_has_nothing_to_resume(tmp_path, kill_at, monkeypatch, caplog):
    path = tmp_path / "out.txt"
    assert not is_finished(path)
    path.touch()
    assert not is_finished(path) and not caplog.text
    path.write_text("old")
    killed(path, kill_at, monkeypatch)
    assert not is_finished(path)
    go(path, resume=True)
    assert is_finished(path)
    assert "out.txt is finished; --overwrite" in caplog.text
