"""A file of a checkpoint is hashed once, and what a verb does not need is not opened."""

import hashlib
import sys
from collections import Counter
from pathlib import Path

import pytest

from unitk import files
from unitk.verbs import evaluate, generate, train

opened: list[str] = []
"""Paths that this process opens, kept while a test listens."""
listening = False


@sys.addaudithook
def note(event, arguments):
    if listening and event == "open" and isinstance(arguments[0], str | Path):
        opened.append(str(arguments[0]))


@pytest.fixture(scope="module")
def trained(make_checkpoint):
    return make_checkpoint("lm", "gpt2_tiny", "--blocks line --block-size 48")


@pytest.fixture
def hashed(trained, monkeypatch):
    """How often each file of the checkpoint was hashed, by name; it was written long ago."""
    found, plain = Counter(), hashlib.file_digest

    def counted(file, kind):
        if trained in (path := Path(file.name)).parents:
            found[path.name] += 1
        return plain(file, kind)

    monkeypatch.setattr(files, "_digests", {})
    monkeypatch.setattr(files, "SETTLED", 0)
    monkeypatch.setattr(files.hashlib, "file_digest", counted)
    return found


@pytest.mark.parametrize("verb", ["generate", "evaluate", "train"])
def test_each_file_is_hashed_once_and_only_what_is_read(
    verb, trained, toy_data, tmp_path, hashed, monkeypatch
):
    (tmp_path / "in.txt").write_text("the cat\n")
    words = {
        "generate": f"--checkpoint {trained} --input {tmp_path}/in.txt --output {tmp_path}/out.txt"
        " --device cpu --max-len 3",
        "evaluate": f"--checkpoint {trained} --data {toy_data / 'text'} --device cpu",
        "train": f"--task lm --init-from {trained} --data {toy_data / 'text'} --max-steps 1"
        f" --save-dir {tmp_path}/run --blocks line --block-size 32 --max-tokens 200",
    }
    monkeypatch.setattr(sys.modules[__name__], "listening", True)
    opened.clear()
    {"generate": generate, "evaluate": evaluate, "train": train}[verb].run(words[verb].split())
    names = {Path(path).name for path in opened if trained in Path(path).parents}
    assert {"model.safetensors", "state.json"} <= hashed.keys() and set(hashed.values()) == {1}
    assert "state.json" in names and not {"optim.safetensors"} & (names | hashed.keys())


def test_a_changed_file_is_hashed_again(tmp_path):
    path = tmp_path / "file"
    for text in ("one", "two", "six"):  # of one length, and within one tick of the clock
        path.write_text(text)
        assert files.digest(path) == hashlib.sha256(text.encode()).hexdigest()
