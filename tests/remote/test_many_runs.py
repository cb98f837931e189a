"""Seeds, sweeps and averages of runs in a store are those of runs on a disk."""

from __future__ import annotations

import json

import pytest
import torch
from exact_options import EXACT

from unitk.errors import CheckpointError
from unitk.options.config import parse
from unitk.runs.experiments import sweep
from unitk.runs.seeds import train_seeds
from unitk.training import loop
from unitk.training.saving.weights import load_tensors
from unitk.training.start import parse_train
from unitk.verbs import average


@pytest.fixture
def base(toy_data):
    words = f"--task lm --arch gpt2_tiny --arch.num-layers 1 --blocks line --batch-texts 8 {EXACT}"
    words += (
        f" --precision fp32 --max-steps 4 --valid-every 2 --save-every 2 --data {toy_data}/text"
    )
    return [*words.split(), "--writers=none", "--keep-last=2"]


def test_seeds_are_those_of_a_disk_and_go_on_elsewhere(
    base, bucket, machine, tmp_path, monkeypatch
):
    address, folder = bucket
    words = [*base, "--seeds=2", "--resume"]
    local = train_seeds(parse_train([*words, f"--save-dir={tmp_path / 'local'}"]))
    found = train_seeds(parse_train([*words, f"--save-dir={address / 'all'}"]))
    assert found == local == json.loads((folder / "all/seeds.json").read_text())
    machine("there")
    monkeypatch.setattr(loop, "train", None)  # nothing is left to be trained
    assert train_seeds(parse_train([*words, f"--save-dir={address / 'all'}"])) == local


def test_a_sweep_is_that_of_a_disk_and_goes_on_elsewhere(
    base, bucket, machine, tmp_path, monkeypatch
):
    address, folder = bucket

    def swept(where):
        words = ["--over=lr=1e-3,3e-3", f"--save-dir={where}"]
        return sweep.sweep(parse("sweep", sweep.Options, words).main, base)

    rows = swept(tmp_path / "local")
    assert swept(address / "all") == rows
    assert json.loads((folder / "all" / sweep.TABLE).read_text())["trials"] == rows
    machine("there")
    monkeypatch.setattr(loop, "events", None)
    assert swept(address / "all") == rows


def test_the_newest_checkpoints_of_a_run_in_a_store_are_averaged(base, bucket, machine, tmp_path):
    address, folder = bucket
    loop.train(sweep.prepare(parse_train([*base, f"--save-dir={address / 'run'}"])))
    machine("there")

    def averaged(run, dest):
        words = ["--checkpoint", str(run), "--last=2", f"--dest={dest}"]
        return average.value(parse("average", average.Options, words))

    averaged(address / "run", address / "mean")
    mean = load_tensors(folder / "mean/model.safetensors")
    each = [load_tensors(folder / f"run/checkpoints/step-{n}/model.safetensors") for n in (2, 4)]
    for name, tensor in mean.items():
        assert torch.allclose(tensor, (each[0][name] + each[1][name]) / 2, rtol=1e-6)
    # without its manifest, a checkpoint is still being uploaded
    (folder / "run/checkpoints/step-4/manifest.json").unlink()
    machine("elsewhere")
    with pytest.raises(CheckpointError, match="has 1 checkpoint "):
        averaged(address / "run", tmp_path / "more")
