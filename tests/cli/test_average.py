"""The mean of weights: equal to a hand calculation, refused where it would mean nothing."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import unitk
from unitk.errors import CheckpointError, UsageError
from unitk.files import seal
from unitk.training import average as module
from unitk.training.saving import checkpoint
from unitk.training.saving.folder import RunFolder
from unitk.verbs.average import run


@pytest.fixture(scope="session")
def three(make_checkpoint):
    return [make_checkpoint("lm", "gpt2_tiny", seed=seed) for seed in range(3)]


def average(*words):
    run([str(word) for word in words])


def test_the_mean_by_hand(three, tmp_path):
    dest = tmp_path / "mean"
    average("--checkpoint", *three, "--dest", dest)
    found = load_file(dest / "model.safetensors")
    parts = [load_file(path / "model.safetensors") for path in three]
    assert found.keys() == parts[0].keys()
    for name, tensor in found.items():
        expected = sum(part[name].double() for part in parts) / 3
        assert tensor.dtype == parts[0][name].dtype
        assert torch.equal(tensor, expected.to(tensor.dtype))
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mean"]


def test_it_loads_and_says_what_it_is(three, tmp_path, make_checkpoint):
    dest = tmp_path / "mean"
    average("--checkpoint", three[0], "--checkpoint", three[0], "--dest", dest)
    texts = ["the cat sat.", "a dog."]
    quick = {"beam": 2, "max_len": 4}
    found = unitk.load(dest).generate(texts, **quick)
    alone = unitk.load(three[0]).generate(texts, **quick)
    assert [one.text for (one,) in found] == [one.text for (one,) in alone]
    assert checkpoint.load(dest).state["averaged"] == [str(three[0])] * 2
    more = tmp_path / "more"  # a mean of means, and an encoder-decoder
    average("--checkpoint", dest, three[1], "--dest", more)
    other = [make_checkpoint("seq2seq", "mass_tiny", seed=seed) for seed in (0, 1)]
    average("--checkpoint", *other, "--dest", tmp_path / "other")
    assert unitk.load(tmp_path / "other").generate(texts, **quick)[0]


def test_it_keeps_how_the_first_is_decoded(three, tmp_path):
    for one, path in zip("ab", three, strict=False):
        shutil.copytree(path, tmp_path / one)
        (tmp_path / one / "generate.yaml").write_text(f"beam: {1 + (one == 'b')}\n")
    average("--checkpoint", tmp_path / "b", tmp_path / "a", "--dest", tmp_path / "mean")
    assert unitk.load(tmp_path / "mean").defaults == {"beam": 2}


def test_moving_averages_are_what_is_averaged(three, tmp_path):
    with_ema = tmp_path / "ema"
    shutil.copytree(three[0], with_ema)
    shutil.copy(three[1] / "model.safetensors", with_ema / "ema.safetensors")
    (with_ema / "manifest.json").unlink()
    seal(with_ema)
    average("--checkpoint", with_ema, three[2], "--dest", tmp_path / "one")
    average("--checkpoint", three[1], three[2], "--dest", tmp_path / "two")
    one, two = (load_file(tmp_path / name / "model.safetensors") for name in ("one", "two"))
    assert all(torch.equal(one[name], two[name]) for name in two)


def test_the_newest_of_a_run(three, tmp_path):
    folder = RunFolder(tmp_path / "run")
    folder.checkpoints.mkdir(parents=True)
    for step, path in zip((5, 10, 20), three, strict=True):
        folder.step(step).symlink_to(path)
    average("--checkpoint", folder.path, "--last", 2, "--dest", tmp_path / "two")
    average("--checkpoint", three[1], three[2], "--dest", tmp_path / "same")
    two, same = (load_file(tmp_path / name / "model.safetensors") for name in ("two", "same"))
    assert all(torch.equal(two[name], same[name]) for name in same)
    with pytest.raises(CheckpointError, match="--last 4: .*run has 3 checkpoints .*--keep-last"):
        average("--checkpoint", folder.path, "--last", 4, "--dest", tmp_path / "four")


def test_what_differs_is_refused(three, tmp_path, make_checkpoint, monkeypatch):
    dest = tmp_path / "mean"
    small = make_checkpoint("lm", "gpt2_tiny", "--arch.activation relu")
    with pytest.raises(CheckpointError, match="--arch.activation .*relu.*gelu"):
        average("--checkpoint", three[0], small, "--dest", dest)
    other = make_checkpoint("glm_infill", "glm_tiny")
    with pytest.raises(CheckpointError, match="averaged with .*: --task is glm_infill, there lm"):
        average("--checkpoint", three[0], other, "--dest", dest)
    states = iter([{"vocab": name, "config": {"task": "lm"}} for name in "ab"])
    monkeypatch.setattr(module, "read_state", lambda path: next(states))
    with pytest.raises(CheckpointError, match="their vocabularies differ"):
        average("--checkpoint", *three[:2], "--dest", dest)
    assert list(tmp_path.iterdir()) == []
    drop = make_checkpoint("lm", "gpt2_tiny", "--arch.dropout 0.3 --arch.attention-dropout 0.2")
    monkeypatch.undo()
    average("--checkpoint", three[0], drop, "--dest", dest)


def test_nothing_is_left_of_a_failure(three, tmp_path, monkeypatch):
    def full(tensors, path):
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "save", full)
    with pytest.raises(CheckpointError, match="--dest .*mean: No space.*device"):
        average("--checkpoint", *three, "--dest", tmp_path / "mean")
    assert list(tmp_path.iterdir()) == []


def test_mistakes_are_refused(three, tmp_path):
    full = tmp_path / "full"
    full.mkdir()
    (full / "file").write_text("")
    for words, message in (
        (["--checkpoint", three[0], "--dest", "x"], "--checkpoint: give two or more"),
        (["--checkpoint", *three, "--dest", full], "--dest .*full exists already"),
        (["--checkpoint", three[0], "--last", 2, "--dest", "x"], "--last: .* is not a run folder"),
        (["--checkpoint", *three, "--last", 2, "--dest", "x"], "--last needs one run folder"),
    ):
        with pytest.raises(UsageError, match=message):
            average(*words)
    with pytest.raises(CheckpointError, match="none: .*checkpoint"):
        average("--checkpoint", three[0], "none", "--dest", "x")
    state = json.loads((Path(three[0]) / "state.json").read_text())
    assert "averaged" not in state
