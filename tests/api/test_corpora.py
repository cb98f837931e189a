"""`unitk.preprocess` and `unitk.evaluate` make and find what the command line does."""

from __future__ import annotations

import json
import signal

import pytest

import unitk
from tests.conftest import toy_lines
from unitk.errors import UsageError
from unitk.verbs import evaluate, preprocess


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "a text.txt"
    path.write_text("".join(line + "\n" for line in toy_lines(60)))
    return path


def content(folder):
    """Every file of a corpus, without the times of its manifests."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_corpus_is_that_of_the_command_line(text, tmp_path, capsys):
    before = signal.getsignal(signal.SIGTERM)
    found = unitk.preprocess(
        input=[text], valid=str(text), documents="line", vocab_size=120, dest=tmp_path / "a"
    )
    assert signal.getsignal(signal.SIGTERM) is before  # that is the command line's
    words = ["--input", str(text), "--valid", str(text), "--documents", "line"]
    preprocess.run([*words, "--vocab-size", "120", "--dest", str(tmp_path / "b")])
    assert content(tmp_path / "a") == content(tmp_path / "b") != {}
    assert set(found) == {"train", "valid"} and found["train"][""].documents == 60


def test_an_option_without_effect_is_refused(text, tmp_path):
    with pytest.raises(UsageError, match="--byte-fallback .*no effect.* --vocab"):
        unitk.preprocess(input=text, vocab="x", byte_fallback=True, dest=tmp_path / "a")


def test_figures_are_those_of_the_command_line(short, toy_data, tmp_path, capsys):
    list(unitk.train(**short, save_dir=tmp_path / "run"))
    capsys.readouterr()
    found = unitk.evaluate(checkpoint=tmp_path / "run", data=toy_data / "text")
    words = ["--checkpoint", str(tmp_path / "run"), "--data", str(toy_data / "text")]
    evaluate.run([*words, "--output-format", "json"])
    assert found == json.loads(capsys.readouterr().out)
    with pytest.raises(UsageError, match="--output-format .*no effect"):
        unitk.evaluate(checkpoint=tmp_path / "run", data=toy_data, output_format="text")
