"""`--adapter`: the base stays as it is, checkpoints are small, and what is loaded is the sum."""

import json
import os
import shutil

import pytest
import torch
from ranks import run_ranks
from rounding import assert_near
from safetensors.torch import load_file, save_file

from tests.training.test_loop import same, train_and_stop
from unitk import pretrained
from unitk.errors import CheckpointError, UsageError
from unitk.files import damage, seal
from unitk.registry import get
from unitk.training.average import average
from unitk.training.loop import Trainer
from unitk.training.saving.checkpoint import load, tensors_of
from unitk.training.saving.weights import weights_of

LORA = "--adapter lora:rank=4 --init-from {base} --max-steps 6 --save-every 2 --keep-last 9"


@pytest.fixture
def base(train, tmp_path):
    """A run of two updates, from which others begin."""
    train("--max-steps 2", run="base")
    return tmp_path / "base"


@pytest.fixture
def words(base):
    return LORA.format(base=base)


def state(folder):
    return json.loads((folder / "last" / "state.json").read_text())


def test_the_base_does_not_move_and_is_stored_once(train, base, words, tmp_path, start):
    train(words, run="run")
    own = load_file(tmp_path / "run/last/model.safetensors")
    assert own and all(".lora_" in name for name in own)
    first = base / "last" / "model.safetensors"
    for step in (2, 4, 6):
        kept = tmp_path / f"run/checkpoints/step-{step}/base.safetensors"
        assert os.path.samefile(kept, first)  # one file under several names
    moved = load_file(tmp_path / "run/checkpoints/step-2/model.safetensors")
    assert not all(torch.equal(own[name], moved[name]) for name in own)
    # the optimizer has a state of what is trained alone
    states = load_file(tmp_path / "run/last/optim.safetensors")
    assert {name.rpartition("/")[0] for name in states} == own.keys()


def test_what_is_loaded_is_the_sum(train, words, tmp_path, start):
    train(words, run="run")
    trainer = Trainer(start(f"{words} --resume", run="run"))
    loaded = load(tmp_path / "run/last", trainer.device)
    assert loaded.model.state_dict().keys() == load(tmp_path / "base").model.state_dict().keys()
    batch = next(trainer.updates())[0].batches[0]
    with torch.no_grad():
        states, _ = trainer.model.eval()(batch)
        merged, _ = loaded.model(batch)
    assert_near(states["x"], merged["x"])


def test_before_the_first_update_it_is_the_base(start, base, words):
    trainer = Trainer(start(words, run="run"))
    plain = load(base, trainer.device).model
    batch = next(trainer.updates())[0].batches[0]
    with torch.no_grad():
        states, _ = trainer.model.eval()(batch)
        assert torch.equal(states["x"], plain(batch)[0]["x"])
    trained = {name for name, p in trainer.model.named_parameters() if p.requires_grad}
    assert trained == {name for name, _ in trainer.model.named_parameters() if ".lora_" in name}


@pytest.mark.parametrize(
    "more",
    [
        "--ema 0.9 --optimizer muon --lr 1e-3",
        pytest.param("--average-last 0.5 --optimizer.layer-decay 0.5", marks=pytest.mark.slow),
        pytest.param("--thaw 2 --recompute --precision bf16", marks=pytest.mark.slow),
    ],
)
def test_it_continues_bit_for_bit(train, curve, tmp_path, monkeypatch, base, words, more):
    words = f"{words} --adapter lora:rank=4,dropout=0.1 {more}"
    train(words, run="whole")
    train_and_stop(train, monkeypatch, 3, words, run="parts")
    shutil.rmtree(base)  # a checkpoint has all that is needed
    train(f"{words} --resume", run="parts")
    for value in ("train/loss", "gnorm", "lr"):
        assert curve("parts", value) == curve("whole", value)
    for file in ("model", "optim", *["ema"] * ("ema" in more or "average" in more)):
        both = (
            load_file(tmp_path / f"{run}/last/{file}.safetensors") for run in ("whole", "parts")
        )
        assert same(*both)
    load(tmp_path / "parts")


def test_averages_are_of_what_is_trained(train, words, tmp_path):
    train(f"{words} --ema 0.5", run="run")
    last = tmp_path / "run/last"
    averages = load_file(last / "ema.safetensors")
    assert averages.keys() == load_file(last / "model.safetensors").keys()
    merged = weights_of(last, averages=True)
    adapter = get("adapter", "lora")(rank=4)
    right = adapter.merge(load_file(last / "base.safetensors") | averages)
    assert same(merged, right)


def test_an_adapter_begins_where_another_one_ended(train, words, base, tmp_path):
    train(words, run="first")
    train(f"{words} --init-from {tmp_path / 'first'}", run="second")
    first = weights_of(tmp_path / "first/last", averages=True)
    assert same(first, load_file(tmp_path / "second/last/base.safetensors"))
    train(f"--init-from {tmp_path / 'first'} --max-steps 1", run="whole")  # and whole again
    assert load_file(tmp_path / "whole/last/model.safetensors").keys() == first.keys()


def test_heads_of_a_task_are_trained_whole(train, base, tmp_path, toy_data):
    pairs = f"--init-from {base} --adapter lora:rank=4,on=ffn --max-steps 2"
    train(f"{pairs} --task glm_infill --arch.heads class:made:3", run="run")
    own = load_file(tmp_path / "run/last/model.safetensors")
    assert {name for name in own if ".lora_" not in name} == {
        f"heads.class:made.{part}"
        for part in ("dense.weight", "dense.bias", "out.weight", "out.bias")
    }
    assert all(".ffn." in name for name in own if ".lora_" in name)


def test_what_the_base_lacks_is_trained_whole(train, tmp_path):
    """Towers that begin as others are adapted; what is between them is new."""
    train("--task mlm --arch bert_tiny --max-steps 1", run="bert")
    train("--task lm --arch gpt2_tiny --max-steps 1", run="gpt")
    words = f"--init-encoder {tmp_path / 'bert'} --init-decoder {tmp_path / 'gpt'}"
    words += " --task optimus --arch optimus_tiny --max-steps 1 --criterion.beta 1"
    train(f"{words} --adapter lora:rank=2", run="vae")
    own = load_file(tmp_path / "vae/last/model.safetensors")
    whole = {name.partition(".")[0] for name in own if ".lora_" not in name}
    assert whole == {"bridge", "memory", "embedding"}
    assert {name.startswith("encoder.") for name in own if ".lora_" in name} == {True, False}
    load(tmp_path / "vae")


def test_the_mean_of_two_is_the_mean_of_sums(train, words, tmp_path):
    train(words, run="run")
    steps = [tmp_path / f"run/checkpoints/step-{step}" for step in (4, 6)]
    (tmp_path / "mean").mkdir()
    average(steps, tmp_path / "mean")
    found = tensors_of(load(tmp_path / "mean").model)
    first, second = (weights_of(step, averages=True) for step in steps)
    for name, tensor in found.items():
        assert_near(tensor, (first[name] + second[name]) / 2)


def test_a_base_of_unitk_is_named(train, tmp_path, monkeypatch, base, words):
    (tmp_path / "models").mkdir()
    shutil.copytree((base / "last").resolve(), tmp_path / "models/own")
    monkeypatch.setattr(pretrained, "FOLDER", tmp_path / "models")
    train(f"{words} --init-from own", run="run")
    assert not (tmp_path / "run/last/base.safetensors").exists()
    assert state(tmp_path / "run")["base"]["model"] == "own"
    load(tmp_path / "run")
    # another version of unitk has other weights of this name
    file = tmp_path / "models/own/model.safetensors"
    save_file({name: one + 1 for name, one in load_file(file).items()}, file)
    seal(tmp_path / "models/own")
    with pytest.raises(CheckpointError, match="model own"):
        load(tmp_path / "run")


def test_a_base_that_is_damaged_is_not_stored_again(train, words, base, tmp_path):
    train(words, run="run")
    step = tmp_path / "run/checkpoints/step-6"
    assert damage(step) is None
    file = step / "base.safetensors"
    with file.open("r+b") as changed:
        changed.seek(-1, os.SEEK_END)
        changed.write(b"\x7f")
    assert damage(step) is not None and damage((base / "last").resolve()) is not None
    with pytest.raises(CheckpointError, match="damaged"):
        train(f"{words} --max-steps 8 --resume", run="run")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("--adapter lora", "--adapter needs.*--init-from"),
        ("--adapter lora:rank=0 --init-from {base}", "rank"),
        ("--adapter lorra --init-from {base}", "did you mean lora"),
    ],
)
def test_what_is_refused(start, base, more, message):
    with pytest.raises(UsageError, match=message):
        start(f"--max-steps 1 {more.format(base=base)}")


def test_the_rank_of_a_run_cannot_change(train, words, start):
    train(words, run="run")
    with pytest.raises(UsageError, match="--adapter is lora:rank=8.*lora:rank=4"):
        start(f"{words} --resume --adapter lora:rank=8", run="run")


@pytest.mark.slow
@pytest.mark.parametrize("more", ["", "--shard"])
def test_two_processes_are_one_run(base, toy_data, curve, tmp_path, more):
    words = (
        f"--task glm_infill --data {toy_data / 'text'} --init-from {base} --adapter lora:rank=4"
        " --blocks line --block-size 64 --max-tokens 400 --batch-tokens 800 --precision fp32"
        " --max-steps 4 --valid none --optimizer sgd --lr 1 --log-every 1 --writers none"
        " --threads 1 --arch.dropout 0"
    )
    run_ranks(f"{words} --save-dir {tmp_path / 'two'} {more}", 2)
    run_ranks(f"{words} --save-dir {tmp_path / 'one'}", 1)
    for value in ("train/loss", "gnorm"):
        both = (curve(run, value) for run in ("one", "two"))
        for (_, one), (_, two) in zip(*both, strict=True):
            assert one == pytest.approx(two, rel=1e-4)
    kept = (load_file(tmp_path / f"{run}/last/base.safetensors") for run in ("one", "two"))
    assert same(*kept)
