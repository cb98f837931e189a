"""Models that come with unitk are found by name wherever a checkpoint is named."""

from __future__ import annotations

import gzip
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import unitk
from unitk import pretrained
from unitk.data.corpus.folders import open_corpus
from unitk.data.files.files import expand
from unitk.data.files.squad import read_squad
from unitk.decoding.files.defaults import read_defaults
from unitk.errors import CheckpointError, DataError, say
from unitk.files import damage
from unitk.metrics.bleu import bleu
from unitk.metrics.rouge import rouge
from unitk.pretrained import from_hub
from unitk.registry import get
from unitk.training.loop import train
from unitk.training.saving.checkpoint import load
from unitk.training.saving.folder import find_checkpoint
from unitk.training.start import parse_train, prepare
from unitk.verbs import list as listing
from unitk.vocab.open import open_vocab

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "recipes" / "mini"
SUMMARIES = ROOT / "recipes" / "summarize" / "data" / "scitldr-a"


def words(data, save_dir, *more):
    sizes = ["--max-tokens", "400", "--max-steps", "2", "--precision", "fp32"]
    return ["--data", str(data), "--save-dir", str(save_dir), *sizes, *more]


@pytest.fixture(scope="module")
def run(tmp_path_factory, toy_data):
    """A tiny run of two tasks."""
    folder = tmp_path_factory.mktemp("run")
    tasks = ["--task", "glm_infill=0.5", "--task", "lm=0.5", "--arch", "modern_tiny"]
    train(prepare(parse_train(words(toy_data / "text", folder, *tasks, "--valid-every=1"))))
    return folder


@pytest.fixture
def tiny(run, tmp_path, monkeypatch):
    """The same as a model that comes with unitk, "tiny-model"."""
    recipe = tmp_path / "recipe"
    recipe.mkdir()
    (recipe / "tiny-model.yaml").write_text("max-len: 3\n")
    (recipe / "tiny-model.md").write_text("# tiny-model: two updates\n\n{about}\n\n{curve}")
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "models")
    monkeypatch.setattr(sys, "path", [*sys.path])  # the program finds its neighbours by itself
    program = runpy.run_path(str(RECIPE / "release.py"))
    program["main"].__globals__["HERE"] = recipe
    flags = ["--task", "glm_infill", "--dest", str(pretrained.FOLDER)]
    monkeypatch.setattr(sys, "argv", ["release.py", str(run), "tiny-model", *flags])
    program["main"]()
    monkeypatch.chdir(tmp_path)
    return pretrained.FOLDER / "tiny-model"


def test_a_released_model_is_the_runs_rounded(tiny, run):
    found, trained = load_file(tiny / "model.safetensors"), load(run, task_name="lm").model
    for name, tensor in trained.state_dict().items():
        if name in found:  # a tied tensor is there once
            assert torch.equal(found[name], tensor.to(torch.bfloat16))
    assert found and sorted(path.name for path in tiny.iterdir()) == [
        *("README.md", "generate.yaml", "manifest.json", "model.safetensors", "state.json", "vocab")
    ]
    assert read_defaults(tiny) == {"max_len": 3}
    card = (tiny / "README.md").read_text()
    assert re.search(r"\d updates, .* tokens, \d+ minutes, seed 1", card)
    assert "| update | valid" in card


def test_its_name_is_a_checkpoint_and_a_vocabulary(tiny, capsys):
    loaded = load(Path("tiny-model"))
    assert find_checkpoint(Path("tiny-model")) == tiny and type(loaded.task).__name__ == "GLMInfill"
    assert type(load(Path("tiny-model"), task_name="lm").task).__name__ == "LM"
    assert open_vocab(Path("tiny-model")).hash == loaded.vocab.hash
    [[best]] = unitk.load("tiny-model").generate(["the bade"], max_len=3)
    [[same]] = unitk.load(str(tiny)).generate(["the bade"], max_len=3)
    assert (best.text, best.hypothesis.score) == (same.text, same.hypothesis.score)
    listing.run(["models"])
    assert capsys.readouterr().out == "model\n  tiny-model two updates\n"


def test_training_begins_with_it(tiny, tmp_path, toy_data):
    flags = ["--task", "glm_infill", "--init-from", "tiny-model", "--lr", "1e-9"]
    train(prepare(parse_train(words(toy_data / "pairs", tmp_path / "tuned", *flags))))
    rounded = load_file(tiny / "model.safetensors")
    tuned = load(tmp_path / "tuned").model.state_dict()
    left = {name for name in rounded if name.startswith("heads.class:nsp.")}
    assert left and rounded.keys() - left <= tuned.keys()  # the task asks nothing of this head
    assert all(
        torch.allclose(tuned[name], rounded[name].float(), rtol=1e-5, atol=1e-6)
        for name in rounded.keys() - left
    )


def test_what_is_there_on_disk_wins(tiny, tmp_path, run):
    (tmp_path / "tiny-model").symlink_to(run)
    assert find_checkpoint(Path("tiny-model")) == find_checkpoint(run)


@pytest.mark.parametrize("name", ["tiny-modle", "tiny"])
def test_an_unknown_name_gets_the_nearest(tiny, name):
    with pytest.raises(CheckpointError, match=f"^{name}: .*checkpoint; .*mean tiny-model"):
        find_checkpoint(Path(name))
    with pytest.raises(DataError, match="no .*file.*mean tiny-model"):
        open_vocab(Path(name))
    with pytest.raises(CheckpointError, match="^runs/qg: .*checkpoint$"):
        find_checkpoint(Path("runs/qg"))


@pytest.mark.parametrize("name", ["google/bert-base", "bert-base-uncased", "meta-llama/Llama-3.1"])
def test_a_name_of_the_hub_is_told_with_what_gets_it(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    error, told = (CheckpointError, DataError), f"hub, write hf:{name}$"
    for read in (find_checkpoint, open_vocab, lambda path: get("format", "hf").read(path)):
        with pytest.raises(error, match=told):
            read(Path(name))
    with pytest.raises(DataError, match=f"no such file;.*hf://datasets/{name}/FILE"):
        expand([name], "--input")
    with pytest.raises(DataError, match=f"not found; .*hf://datasets/{name}/FILE"):
        open_corpus(Path(name))


@pytest.mark.parametrize("name", ["runs/qg", "data/x.txt", "x.txt", "a/b/c", "/nowhere", "../x"])
def test_a_path_of_this_machine_is_none_of_the_hub(name):
    assert from_hub(Path(name)) == ""


def test_a_name_of_nothing_gets_all_names(tiny):
    for path in ("nosuch", "zzz"):
        with pytest.raises(
            CheckpointError, match=rf"^{path}: .*checkpoint \(models .*: tiny-model\)"
        ):
            find_checkpoint(Path(path))
        with pytest.raises(DataError, match="no .*file.*folder .*: tiny-model"):
            open_vocab(Path(path))
    for path in ("runs/nosuch", "nosuch.txt"):
        with pytest.raises(CheckpointError, match=f"^{path}: .*checkpoint$"):
            find_checkpoint(Path(path))


LARGEST = {
    "unitk-base-en": 31e6,
    "unitk-base-en-questions": 4e6,
    "unitk-base-en-summaries": 4e6,
    "unitk-vae-en": 7e6,
}
"""Bytes that a model may have with all that belongs to it."""


@pytest.mark.parametrize("name", pretrained.names())
def test_what_comes_with_unitk_is_whole_small_and_described(name):
    folder = pretrained.FOLDER / name
    assert damage(folder) is None
    assert sum(p.stat().st_size for p in folder.rglob("*") if p.is_file()) <= LARGEST[name]
    weights = load_file(folder / "model.safetensors")
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    card = (folder / "README.md").read_text()
    assert card.startswith(f"# {name}: ") and not re.search(r"\{\w+\}", card)
    made, meant = RECIPE / f"{name}.yaml", folder / "generate.yaml"
    assert made.exists() == meant.exists() == bool(read_defaults(folder))
    assert not made.exists() or made.read_text() == meant.read_text()
    for part in ("Data", "Training", "Scores", "Limits"):
        assert f"\n## {part}\n" in card


def test_what_models_do_is_listed_in_one_column(capsys):
    listing.run(["model"])
    lines = capsys.readouterr().out.splitlines()[1:]
    pairs = zip(lines, pretrained.names(), strict=True)
    assert len({line.index(pretrained.about(name)) for line, name in pairs}) == 1


def bundled(name, size):
    """Sentences of so many words of the set that the autoencoder was not trained on."""
    with gzip.open(ROOT / "recipes" / "vae_captions" / "data" / name, "rt") as file:
        return [line.strip() for line in file if len(line.split()) == size]


@pytest.mark.slow
def test_the_autoencoder_writes_held_out_sentences_of_ten_words_again():
    sentences = bundled("test.txt.gz", 10)
    found = unitk.load("unitk-vae-en").generate(sentences, beam=5)
    again = [best.text for [best] in found]
    assert bleu(again, [[one] for one in sentences], tokenize="none").figures["bleu"] > 40


@pytest.mark.slow
def test_the_language_model_prefers_sentences_to_the_same_words_backwards():
    sentences = [one.removesuffix(" .") for one in bundled("test.txt.gz", 8)]
    turned = [" ".join(one.split()[::-1]) for one in sentences]
    model = unitk.load("unitk-base-en", task="lm")
    forth, back = (map(np.sum, model.likelihood(some)) for some in (sentences, turned))
    assert np.mean([a > b for a, b in zip(forth, back, strict=True)]) > 0.95


@pytest.mark.slow
def test_questions_are_those_of_their_own_passages():
    questions = ROOT / "recipes" / "quickstart" / "data" / "squad-v1.1-nqg-split"
    pairs = [one for one in read_squad(questions / "test.json.gz") if len(one.source[1]) < 500]
    found = unitk.load("unitk-base-en-questions").generate([one.source for one in pairs])
    written, wanted = [best.text for [best] in found], [[one.target] for one in pairs]
    answers = [one.source[0] for one in pairs]
    told = [
        f" {answer.lower()} " in f" {text.lower().rstrip('?')} "
        for answer, text in zip(answers, written, strict=True)
    ]
    assert sum(told) < 0.02 * len(told)
    half = len(wanted) // 2
    own, other = (bleu(written, some) for some in (wanted, wanted[half:] + wanted[:half]))
    assert own.figures["bleu"] > 2 * other.figures["bleu"]
    assert len(set(written)) > len(written) / 2  # of one sentence several things are asked


@pytest.mark.slow
def test_summaries_are_nearer_the_authors_own_than_the_first_sentence():
    with gzip.open(SUMMARIES / "test.jsonl.gz", "rt") as file:
        papers = [json.loads(line) for line in file][:60]
    wanted = [paper["target"] for paper in papers]
    sources = [" ".join(paper["source"]) for paper in papers]
    found = unitk.load("unitk-base-en-summaries").generate(sources)
    written = rouge([best.text for [best] in found], wanted).figures
    first = rouge([paper["source"][0] for paper in papers], wanted).figures
    assert all(written[kind] > first[kind] for kind in ("rouge1", "rouge2", "rougeLsum"))


@pytest.mark.slow
def test_a_wheel_brings_them_along(tmp_path):
    shutil.copytree(
        ROOT / "unitk", tmp_path / "unitk", ignore=shutil.ignore_patterns("__pycache__")
    )
    for name in ("unitk_cli", "recipes/quickstart"):
        shutil.copytree(ROOT / name, tmp_path / name)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        shutil.copy(ROOT / name, tmp_path)
    build = [sys.executable, "-m", "pip", "wheel", ".", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "-w", "wheels"], cwd=tmp_path, check=True)
    [wheel] = (tmp_path / "wheels").iterdir()
    packed = set(zipfile.ZipFile(wheel).namelist())
    for name in pretrained.names():
        there = (p for p in (pretrained.FOLDER / name).rglob("*") if p.is_file())
        assert {p.relative_to(ROOT).as_posix() for p in there} <= packed
    there = (ROOT / "recipes" / "quickstart" / "data" / "squad-v1.1-nqg-split").iterdir()
    own = {f"unitk/quickstart/data/squad-v1.1-nqg-split/{path.name}" for path in there}
    assert own | {"unitk/quickstart/finetune.yaml", "unitk/quickstart/data/README.md"} <= packed
    # and they are found there
    zipfile.ZipFile(wheel).extractall(tmp_path / "installed")
    program = "from unitk.runs.quickstart import home; print(home())"
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    done = [sys.executable, "-c", program]
    found = subprocess.run(done, cwd=tmp_path / "wheels", env=env, capture_output=True, text=True)
    assert found.stdout.strip() == str(tmp_path / "installed" / "unitk" / "quickstart")


def test_messages_name_a_model_as_options_take_it(capsys, toy_data):
    """Not by the folder of the installation."""
    path = find_checkpoint(Path("unitk-base-en"))
    assert str(CheckpointError(f"{path}: no; {path / 'vocab'}")) == (
        "unitk-base-en: no; unitk-base-en/vocab"
    )
    say(f"--vocab {path}")
    assert capsys.readouterr().err == "--vocab unitk-base-en\n"


SPDX = {"MIT": "MIT", "Apache 2.0": "Apache-2.0", "CC BY 4.0": "CC-BY-4.0"}
SPDX |= {"CC BY-SA 4.0": "CC-BY-SA-4.0", "CC BY 2.0 FR": "CC-BY-2.0-FR"}


def test_the_package_names_the_licences_of_its_models():
    root = Path(unitk.__file__).parent.parent
    project, notice = (root / name for name in ("pyproject.toml", "NOTICE"))
    folders = {name: pretrained.FOLDER / name for name in pretrained.names()}
    folders["an excerpt"] = root / "recipes" / "quickstart" / "data"
    cards = "".join((folder / "README.md").read_text() for folder in folders.values())
    named = re.findall(r"CC BY[-\w]* [\d.]+(?: FR)?|Apache 2\.0", cards)
    assert set(named) <= SPDX.keys() and len(set(named)) > 3
    for licence in named:
        assert SPDX[licence] in project.read_text() and SPDX[licence] in notice.read_text()
    assert all(f" {name} " in notice.read_text() for name in folders)
