"""The folder for fairseq's --user-dir; what it does there: tests/fairseq/test_trainer.py."""

import ast

import pytest

from unitk.errors import CheckpointError, UsageError
from unitk.fairseq.verb import run


def test_the_folder_imports_what_exists(tmp_path, capsys):
    run(["--dest", str(tmp_path / "objectives")])
    (file,) = (tmp_path / "objectives").iterdir()
    (line,) = [n for n in ast.parse(file.read_text()).body if isinstance(n, ast.ImportFrom)]
    assert (file.name, line.module) == ("__init__.py", "unitk.fairseq.trainer")
    assert f"--user-dir {tmp_path / 'objectives'}" in capsys.readouterr().out


def test_plugins_are_named_by_their_whole_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "empty.py").touch()
    run(["--dest", "objectives", "--user-dir", "own"])
    assert f"register({str(tmp_path / 'own')!r})" in open("objectives/__init__.py").read()


def test_an_empty_folder_is_taken_a_full_one_is_not(tmp_path):
    dest = tmp_path / "objectives"
    dest.mkdir()
    run(["--dest", str(dest)])
    before = (dest / "__init__.py").read_text()
    with pytest.raises(UsageError, match=f"--dest {dest} exists already"):
        run(["--dest", str(dest)])
    assert (dest / "__init__.py").read_text() == before


@pytest.mark.parametrize("name", ["unitk", "json", "my-objectives"])
def test_its_name_must_be_free(tmp_path, name):
    with pytest.raises(UsageError, match=f"--dest .*{name}: fairseq imports.* '{name}'"):
        run(["--dest", str(tmp_path / name)])
    assert not list(tmp_path.iterdir())


def test_nothing_half_written_stays(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointError, match="--dest .*Not a directory"):
        run(["--dest", str(tmp_path / "file" / "objectives")])
    with pytest.raises(UsageError, match="--user-dir"):
        run(["--dest", str(tmp_path / "objectives"), "--user-dir", str(tmp_path / "nowhere")])
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
