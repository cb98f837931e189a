"""Models and data by name, from a hub that runs in this process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hub_server import COMMIT, environment, run_hub

from tests.conftest import toy_lines
from unitk.errors import UsageError
from unitk.formats.hf.folder import write
from unitk.formats.hub import DATA, MODEL, fetch
from unitk.models.archs import preset
from unitk.pretrained import locate
from unitk.registry import get
from unitk.training.saving.checkpoint import Loaded

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture
def hub(toy_vocab, tmp_path):
    pytest.importorskip("huggingface_hub")
    kind = get("task", "lm")
    torch.manual_seed(0)
    model = preset("qwen3_tiny").build(len(toy_vocab)).eval()
    folder, data = tmp_path / "me-small", tmp_path / "data"
    folder.mkdir()
    data.mkdir()
    write(Loaded(model, kind(kind.Config(), toy_vocab), {"arch": "qwen3_tiny"}, {}), folder)
    (folder / "modeling_mine.py").write_text("raise SystemExit('code of a hub has run')")
    (folder / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    pickled = tmp_path / "pickled"
    pickled.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (pickled / name).write_bytes((folder / name).read_bytes())
    (pickled / "pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    (data / "train.txt").write_text("\n".join(toy_lines(30)) + "\n")
    with run_hub() as server:
        models = {"me/small": {"main": folder, "chck_1M": folder}, "me/old": {"main": pickled}}
        server.given = {"models": models, "datasets": {"me/texts": {"main": data}}}
        server.home = tmp_path / "home"
        yield server


def unitk(hub, *words, offline=False):
    own = environment(hub, hub.home) | ({"HF_HUB_OFFLINE": "1"} if offline else {})
    program = [sys.executable, "-m", "unitk_cli", *map(str, words)]
    return subprocess.run(program, env=os.environ | own, capture_output=True, text=True)


def lines(done, code):
    assert done.returncode == code, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("unitk")]


@pytest.mark.slow
def test_a_run_starts_from_names_and_records_what_they_stood_for(hub, tmp_path):
    text = "hf://datasets/me/texts/train.txt"
    words = ["--input", text, "--vocab", "hf:me/small", "--dest", tmp_path / "corpus"]
    assert unitk(hub, "preprocess", *words).returncode == 0
    manifest = json.loads((tmp_path / "corpus" / "train" / "manifest.json").read_text())
    whole = hashlib.sha256((tmp_path / "data" / "train.txt").read_bytes()).hexdigest()
    assert manifest["sources"][text] == {
        "revision": COMMIT,
        "sha256": {"train.txt": whole},
    }
    words = ["--task", "lm", "--data", tmp_path / "corpus", "--init-from", "hf:me/small@chck_1M"]
    words += ["--save-dir", tmp_path / "run", "--max-steps", "1"]
    done = unitk(hub, "train", *words)
    assert done.returncode == 0, done.stderr
    sources = json.loads((tmp_path / "run" / "sources.json").read_text())
    found = sources["hf:me/small@chck_1M"]
    weights = (tmp_path / "me-small" / "model.safetensors").read_bytes()
    assert found["revision"] == COMMIT
    assert found["sha256"]["model.safetensors"] == hashlib.sha256(weights).hexdigest()
    assert not {"modeling_mine.py", "pytorch_model.bin"} & found["sha256"].keys()
    assert not [path for path in hub.asked if path.endswith((".py", ".bin"))]


@pytest.mark.slow
def test_a_checkpoint_by_name_is_that_of_convert(hub, tmp_path):
    there, words = tmp_path / "there", ["--beam", "1", "--max-len", "5", "--input", "-"]
    done = unitk(hub, "convert", "--from", "hf", "hf:me/small", "--to", "unitk", there)
    assert done.returncode == 0, done.stderr
    about = json.loads((there / "imported.json").read_text())
    assert about["source"]["revision"] == COMMIT
    texts = {}
    for name, offline in (("hf:me/small", False), (there, True), ("hf:me/small", True)):
        own = environment(hub, hub.home) | ({"HF_HUB_OFFLINE": "1"} if offline else {})
        done = subprocess.run(
            [sys.executable, "-m", "unitk_cli", "generate", "--checkpoint", str(name), *words],
            env=os.environ | own,
            input="\n".join(toy_lines(3)),
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        texts[name, offline] = done.stdout
    assert len(set(texts.values())) == 1 and all(texts.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hf:me/smal", "did you mean me/small"),
        ("hf:me/small@chck_1", "did you mean chck_1M"),
        ("hf:me/old", "safetensors; there is pytorch_model.bin"),
        ("hf:me/small:x", "hf:ORG/NAME@REVISION"),
        ("hf:../..", "../.."),
    ],
)
def test_what_the_hub_does_not_have_is_one_line(hub, tmp_path, name, message):
    done = unitk(hub, "convert", "--from", "hf", name, "--to", "unitk", tmp_path / "there")
    [line] = done.stderr.splitlines()
    assert line.startswith("unitk convert: ") and name in line and message in line
    assert done.returncode in (2, 4) and not (tmp_path / "there").exists()


@pytest.mark.slow
def test_a_hub_that_does_not_answer_is_one_line(hub, tmp_path):
    for offline in (True, False):
        if not offline:
            hub.shutdown()
            hub.server_close()
        words = ["--from", "hf", "hf:me/small", "--to", "unitk", tmp_path / "there"]
        done = unitk(hub, "convert", *words, offline=offline)
        [line] = done.stderr.splitlines()
        assert done.returncode == 4 and line.startswith("unitk convert: --from hf:me/small: ")
        assert "cache" in line and not (tmp_path / "there").exists()


@pytest.mark.slow
def test_files_of_data(hub, tmp_path):
    words = ["--vocab-size", "60", "--dest", tmp_path / "corpus", "--input"]
    done = unitk(hub, "preprocess", *words, "hf://datasets/me/texts/trian.txt")
    [line] = lines(done, 3)
    assert "train.txt?" in line


@pytest.mark.slow
def test_shards_of_data(hub, tmp_path):
    shards = tmp_path / "shards"
    (shards / "data" / "old").mkdir(parents=True)
    lines_of_all = toy_lines(30)
    for number in range(3):
        text = "\n".join(lines_of_all[10 * number : 10 * number + 10])
        (shards / "data" / f"train-{number}.txt").write_text(text + "\n")
    (shards / "data" / "test-0.txt").write_text("other\n")
    (shards / "data" / "old" / "train-0.txt").write_text("other\n")
    hub.given["datasets"]["me/shards"] = {"refs/convert/parquet": shards}
    folders = [tmp_path / name for name in ("one", "short", "long")]
    names = ["hf://datasets/me/shards@~parquet", "hf://datasets/me/shards@refs/convert/parquet"]
    inputs = [tmp_path / "data" / "train.txt", *(f"{name}/data/train-*.txt" for name in names)]
    for folder, text in zip(folders, inputs, strict=True):
        done = unitk(hub, "preprocess", "--vocab-size", "60", "--dest", folder, "--input", text)
        assert done.returncode == 0, done.stderr
    whole = (folders[0] / "train" / "tokens.bin").read_bytes()
    assert all((folder / "train" / "tokens.bin").read_bytes() == whole for folder in folders)
    manifest = json.loads((folders[1] / "train" / "manifest.json").read_text())
    read = manifest["sources"][inputs[1]]["sha256"]
    assert sorted(read) == [f"data/train-{number}.txt" for number in range(3)]
    words = ["preprocess", "--vocab-size", "60", "--dest", tmp_path / "none", "--input"]
    [line] = lines(unitk(hub, *words, f"{names[1]}/data/valid-*.txt"), 3)
    assert "no file" in line
    # the cache alone may lack some
    [line] = lines(unitk(hub, *words, inputs[2], offline=True), 3)
    assert "not answer" in line


@pytest.mark.parametrize(
    ("name", "repo", "revision"),
    [
        ("Qwen/Qwen3-0.6B", "Qwen/Qwen3-0.6B", None),
        ("gpt2@main", "gpt2", "main"),
        ("me/small@refs/pr/1", "me/small", "refs/pr/1"),
    ],
)
def test_names_of_models(name, repo, revision):
    found = MODEL.fullmatch(name)
    assert (found["repo"], found["revision"]) == (repo, revision)


def test_names_of_data():
    found = DATA.fullmatch("/datasets/me/texts@v1/a/b.jsonl")
    assert (found["repo"], found["revision"], found["file"]) == ("me/texts", "v1", "a/b.jsonl")


@pytest.mark.parametrize("name", ["", "a b", "a/b/c", "../../etc", "me/x@", "datasets/me/x"])
def test_what_is_no_name(name):
    with pytest.raises(UsageError, match=r"hf:ORG/NAME@REVISION"):
        fetch(name, "checkpoint")


def test_a_folder_of_that_name_wins(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("hf:me").mkdir()
    Path("hf:me/small").mkdir()
    assert locate(Path("hf:me/small")) == Path("hf:me/small")
    assert locate(Path("C:/models/x")) == Path("C:/models/x")
