"""`unitk embed` writes what `.embed` returns; `python -m unitk` is `unitk`."""

import io
import json
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from rounding import assert_near

import unitk
from unitk.errors import UsageError
from unitk.verbs import embed, generate


@pytest.fixture(scope="module")
def run(tmp_path_factory, toy_data):
    from unitk.verbs import train

    folder = tmp_path_factory.mktemp("runs") / "bert"
    words = ["--task", "mlm", "--arch", "bert_tiny", "--data", toy_data / "text" / "train"]
    words += ["--save-dir", folder, "--max-steps", "2", "--valid", "none"]
    train.run([str(word) for word in words])
    return folder


def test_all_ways_are_one(run, tmp_path, monkeypatch, capsys):
    texts = ["The badage.", "", "Depo kasa."]
    wanted = unitk.load(run).embed(texts, layer=1)
    path = tmp_path / "in.txt"
    path.write_text("".join(f"{text}\n" for text in texts))
    given = ["--checkpoint", str(run), "--layer", "1", "--device", "cpu"]
    embed.run([*given, "--input", str(path), "--output", str(tmp_path / "out.npy")])
    assert np.array_equal(np.load(tmp_path / "out.npy"), wanted)
    embed.run([*given, "--input", str(path), "--output", str(tmp_path / "out.jsonl")])
    lines = (tmp_path / "out.jsonl").read_text()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(path.read_bytes())))
    embed.run([*given, "--input", "-"])
    assert capsys.readouterr().out == lines
    found = [json.loads(line) for line in lines.splitlines()]
    assert [one["source"] for one in found] == texts
    assert np.array_equal(np.array([one["vector"] for one in found], np.float32), wanted)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["in.txt", "out.jsonl", "out.npy"]


def test_a_bad_line_of_a_stream_costs_no_other(run, monkeypatch, capsys):
    lines = b'{"source": "The badage."}\n{"sauce": 1}\n{"source": "' + b"kasa " * 2000 + b'"}\n'
    data = SimpleNamespace(buffer=io.BytesIO(lines + b'{"source": "Depo kasa."}\n'))
    monkeypatch.setattr(sys, "stdin", data)
    embed.run(["--checkpoint", str(run), "--input", "-", "--input-format", "jsonl"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["id"] for one in found] == [0, 1, 2, 3]
    assert "source" in found[1]["error"] and "input 3 " in found[2]["error"]
    wanted = unitk.load(run).embed(["The badage.", "Depo kasa."])
    given = np.array([found[0]["vector"], found[3]["vector"]])
    assert np.allclose(given, wanted, rtol=1e-4, atol=1e-5)


def test_nothing_is_left_of_what_fails(run, tmp_path):
    path = tmp_path / "out.npy"
    with pytest.raises(UsageError, match="--layer must be -3 to 2, got 9"):
        embed.run(["a", "--checkpoint", str(run), "--layer", "9", "--output", str(path)])
    with pytest.raises(UsageError, match=r"--pool .*written.* json-lines, not as \.npy"):
        embed.run(["a", "--checkpoint", str(run), "--pool", "none", "--output", str(path)])
    assert not list(tmp_path.iterdir())


def test_what_is_read_is_not_written(run, tmp_path):
    path, same = tmp_path / "in.txt", tmp_path / "same.txt"
    path.write_text("a b\n")
    same.hardlink_to(path)
    for verb in (embed, generate):
        with pytest.raises(UsageError, match="--output .*txt is what --input reads"):
            verb.run(f"--checkpoint {run} --input {path} --output {path} --overwrite".split())
    with pytest.raises(UsageError, match="--output .*same.txt is what --prefix-file reads"):
        words = f"--checkpoint {run} a --prefix-file {path} --output {same} --overwrite"
        generate.run(words.split())
    assert path.read_text() == same.read_text() == "a b\n"


def test_the_package_runs():
    found = subprocess.run(
        [sys.executable, "-m", "unitk", "--version"], capture_output=True, text=True, check=True
    )
    assert unitk.__version__ in found.stdout


def test_the_first_dimensions(run, tmp_path):
    path, out = tmp_path / "in.txt", tmp_path / "out.npy"
    path.write_text("The badage.\n\nDepo kasa.\n")
    given = ["--checkpoint", str(run), "--input", str(path), "--output", str(out)]
    embed.run([*given, "--dimensions", "16"])
    assert_near(np.load(out), unitk.load(run).embed(["The badage.", "", "Depo kasa."])[:, :16])
    with pytest.raises(UsageError, match="^--dimensions 65: .* 64"):
        embed.run([*given, "--dimensions", "65", "--overwrite"])


@pytest.mark.parametrize("verb", [embed, generate])
@pytest.mark.parametrize("name", ["out.npz", "out.jsonl.gz", "out.PARQUET"])
def test_text_is_not_written_under_a_name_of_what_is_no_text(verb, name, run, tmp_path):
    (tmp_path / "in.txt").write_text("the cat\n")
    words = ["--checkpoint", str(run), "--input", str(tmp_path / "in.txt")]
    with pytest.raises(UsageError, match=name):
        verb.run([*words, "--output", str(tmp_path / name)])
    assert [one.name for one in tmp_path.iterdir()] == ["in.txt"]


def test_a_file_called_dash_is_not_standard_output(run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "-").write_text("kept")
    embed.run(["--checkpoint", str(run), "The badage."])
    assert json.loads(capsys.readouterr().out)["source"] == "The badage."
    assert (tmp_path / "-").read_text() == "kept"
