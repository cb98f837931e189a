"""`unitk push` against a hub that runs in this process and keeps what it is sent."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hub_server import environment, run_hub

from unitk.errors import DataError, UsageError
from unitk.formats import push


@pytest.fixture
def hub() -> Iterator[Any]:
    pytest.importorskip("huggingface_hub")
    with run_hub() as server:
        yield server


def send(hub, *words, token="secret"):
    own = environment(hub, Path.home() / ".cache" / "huggingface", token)
    program = [sys.executable, "-m", "unitk_cli", "push", *map(str, words)]
    return subprocess.run(program, env=os.environ | own, capture_output=True, text=True)


def exported(folder: Path, *names: str) -> dict[tuple[str, str], bytes]:
    """Folders of models, and what a hub then holds of them."""
    wanted = {}
    for name in names or ("",):
        (folder / name).mkdir(parents=True)
        for file in ("config.json", "model.safetensors"):
            content = f"{file} of {name}".encode()
            (folder / name / file).write_bytes(content)
            wanted[name or "main", file] = content
    return wanted


@pytest.mark.slow
def test_a_folder_becomes_a_repository(hub, tmp_path):
    wanted = exported(tmp_path / "model")
    done = send(hub, "--model", tmp_path / "model", "--repo", "me/small")
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("model.safetensors  21 bytes") < done.stdout.index("2 files uploaded")
    assert hub.files == wanted and hub.branches == []
    [repo] = hub.repos
    assert repo["name"] == "small" and repo["organization"] == "me"
    assert repo.get("private") is True or repo.get("visibility") == "private"


@pytest.mark.slow
def test_revisions_become_branches(hub, tmp_path):
    wanted = exported(tmp_path / "model", "main", "chck_1M", "chck_2M")
    (tmp_path / "model" / "push.sh").touch()
    done = send(hub, "--model", tmp_path / "model", "--repo", "me/small")
    assert done.returncode == 0, done.stderr
    assert hub.files == wanted and hub.branches == ["chck_1M", "chck_2M"]
    assert done.stdout.count("files uploaded") == 3


@pytest.mark.slow
@pytest.mark.parametrize("public", [False, True])
def test_only_public_makes_a_public_repository(hub, tmp_path, public):
    exported(tmp_path / "model")
    hub.public = True  # as somebody made it before
    words = ["--model", tmp_path / "model", "--repo", "me/small"]
    done = send(hub, *words, *["--public"] * public)
    assert done.returncode == (0 if public else 2)
    assert bool(hub.files) == public
    assert public or "public: add --public" in done.stderr
    [repo] = hub.repos
    assert (repo.get("private") is False or repo.get("visibility") == "public") == public


@pytest.mark.slow
def test_what_a_hub_answers_runs_nothing_in_the_terminal(hub, tmp_path):
    exported(tmp_path / "model")
    hub.says = "\x1b]0;title\x07\x1b[31m you are {}"
    done = send(hub, "--model", tmp_path / "model", "--repo", "me/small", token="hf_wrong")
    assert done.returncode == 3 and "hf_wrong" not in done.stderr + done.stdout
    assert r"\x1b[31m you are Bearer (the token)" in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.slow
def test_a_refusal_is_one_line(hub, tmp_path):
    exported(tmp_path / "model")
    done = send(hub, "--model", tmp_path / "model", "--repo", "me/small", token="wrong")
    assert done.returncode == 3 and hub.files == {}
    [line] = done.stderr.splitlines()
    assert line.startswith("unitk push: --repo me/small: ") and "who are you?" in line


@pytest.mark.slow
def test_a_hub_that_does_not_answer_is_one_line(hub, tmp_path):
    exported(tmp_path / "model")
    hub.shutdown()
    hub.server_close()
    done = send(hub, "--model", tmp_path / "model", "--repo", "me/small")
    assert done.returncode == 3
    [line] = done.stderr.splitlines()
    assert line.startswith("unitk push: --repo me/small: ") and "refused" in line


def test_what_cannot_be_pushed(tmp_path, monkeypatch):
    words = ["--model", str(tmp_path), "--repo"]
    with pytest.raises(DataError, match=rf"--model {tmp_path} has no config\.json.*--to hf DIR"):
        push.run([*words, "me/small"])
    (tmp_path / "checkpoints").mkdir()
    with pytest.raises(DataError, match=rf"is a run.*`unitk convert --from unitk {tmp_path} --to"):
        push.run([*words, "me/small"])
    exported(tmp_path / "model")
    words[1] = str(tmp_path / "model")
    with pytest.raises(UsageError, match="--repo must be USER/MODEL, got 'small'"):
        push.run([*words, "small"])
    monkeypatch.setattr(push.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'unitk\[hub\]'"):
        push.run([*words, "me/small"])


@pytest.mark.parametrize(
    "name",
    [".env", "id_rsa", "notes/diary.txt", "model.safetensors.bak", "vocab/a/b", "tokens.json"]
    + ["pytorch_model.bin", "checkpoints/step-1/config.json", ".git/config", "config.json~"],
)
@pytest.mark.parametrize("revision", ["", "main", "chck_1M"])
def test_what_convert_did_not_write_is_refused(tmp_path, name, revision):
    exported(tmp_path / "model", *["main", "chck_1M"] * bool(revision))
    file = tmp_path / "model" / revision / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("secret")
    shown = f"{revision}/{name}".lstrip("/")
    with pytest.raises(UsageError, match=f"did not write .*{re.escape(shown)}; move"):
        push.run(["--model", str(tmp_path / "model"), "--repo", "me/small"])


@pytest.mark.parametrize("name", ["notes", "README.md", "vocab"])
def test_a_link_is_not_followed(tmp_path, name):
    exported(tmp_path / "model")
    (tmp_path / "model" / name).symlink_to("/etc")
    with pytest.raises(UsageError, match=f"{name}: .*not uploaded"):
        push.run(["--model", str(tmp_path / "model"), "--repo", "me/small"])


@pytest.mark.parametrize("name", ["words_1M", "chck_1M x", "other"])
def test_only_revisions_may_be_beside_the_main_one(tmp_path, name):
    exported(tmp_path / "model", "main", name)
    with pytest.raises(UsageError, match=f"did not write {name}"):
        push.run(["--model", str(tmp_path / "model"), "--repo", "me/small"])


def test_further_files_are_named(tmp_path):
    exported(tmp_path / "model")
    (tmp_path / "model" / "LICENSE").touch()
    given = push.Options(model=tmp_path / "model", repo="me/small", include=("LICENSE",))
    assert "LICENSE" in push.files_of(given.model, given, "main")
    given = push.Options(model=tmp_path / "model", repo="me/small", include=("LICENSE", "no"))
    with pytest.raises(UsageError, match="--include .*no such"):
        push.files_of(given.model, given, "main")
