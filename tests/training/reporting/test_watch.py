"""Panels change nothing of a run, and survive a stop."""

import json
import logging
import math
import signal

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from unitk.errors import UsageError
from unitk.training.loop import Trainer

VAE = (
    "--task optimus --arch optimus_tiny --arch.latent 4 --criterion.beta 1"
    " --lr 1e-3 --panel-texts 24"
)


def events(run, kind):
    lines = (run / "log.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["kind"] == kind]


def weights(run):
    return load_file(run / "last" / "model.safetensors")


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


def stop_after(monkeypatch, steps):
    """Send this process a signal in the middle of update `steps`, counted from now."""
    update, done = Trainer.update, []

    def counted(self, one):
        done.append(one)
        if len(done) == steps:
            signal.raise_signal(signal.SIGTERM)
        update(self, one)

    monkeypatch.setattr(Trainer, "update", counted)


@pytest.mark.slow
def test_the_panel_changes_nothing_and_survives_a_stop(train, tmp_path, monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    words = f"{VAE} --panel-texts 8 --max-steps 5"
    train(f"{words} --panel-every 0", run="without")
    train(f"{words} --panel-every 2", run="with")
    assert events(tmp_path / "without", "panel") == []
    panels = events(tmp_path / "with", "panel")
    assert [event["step"] for event in panels] == [2, 4, 5]
    assert same(weights(tmp_path / "with"), weights(tmp_path / "without"))
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        stop_after(patch, 2)
        train(f"{words} --panel-every 2", run="stopped")
    train(f"{words} --panel-every 2 --resume", run="stopped")
    assert events(tmp_path / "stopped", "panel") == panels
    assert same(weights(tmp_path / "stopped"), weights(tmp_path / "with"))


def test_what_is_told(train, tmp_path, toy_data, caplog):
    caplog.set_level(logging.INFO)
    train(
        f"{VAE} --max-steps 2 --panel-every 1 --lr-schedule linear:floor=0.5"
        f" --valid {toy_data / 'text'}"
    )
    first, second = events(tmp_path / "run", "panel")
    assert first["panel/mi_ceiling"] == pytest.approx(math.log(24))
    assert first["panel/beta"] == 1 and 0 < second["panel/lr"] < first["panel/lr"]
    assert all(f"panel_kl/{i}" in first for i in range(4))
    assert first["panel/reconstruction"] > second["panel/reconstruction"]
    lines = caplog.messages
    assert not any("\n" in line for line in lines)
    (told,) = [line for line in lines if line.startswith("step 1/2  reconstruction")]
    assert "z-gap" in told and "(ln 24)" in told and f"lr {first['panel/lr']:.2e}" in told
    assert sum("kl of each dimension, sorted" in line for line in lines) == 2


def test_texts_of_the_first_validation_set(start, toy_data, caplog):
    trainer = Trainer(start(f"{VAE} --max-steps 1 --valid {toy_data / 'text'}"))
    seen = np.concatenate([batch.asks["lm"].label.cpu() for batch in trainer.watch.batches])
    held = np.memmap(toy_data / "text" / "valid" / "tokens.bin", np.uint16)
    assert (seen == trainer.data.vocab.sep).sum() == 24
    assert set(seen) <= {*held, trainer.data.vocab.sep}
    assert len(seen) < len(held)
    without = Trainer(start(f"{VAE} --max-steps 1 --panel-every 0", run="b"))
    assert without.watch.batches == []


def test_the_model_trains_on(start, monkeypatch):
    trainer = Trainer(start(f"{VAE} --max-steps 1"))
    modes, told = [], []
    panel = type(trainer.criterion).panel

    def watched(self, model, *rest):
        modes.append((model.training, torch.is_grad_enabled()))
        return panel(self, model, *rest)

    class Journal:
        def event(self, kind, step, values, line):
            told.append((kind, step, values["panel/lr"]))

    monkeypatch.setattr(type(trainer.criterion), "panel", watched)
    trainer.model.train()
    trainer.watch.look(trainer.model, 5, 10, 0.25, Journal())
    assert modes == [(False, False)] and trainer.model.training
    assert told == [("panel", 5, 0.25)]


@pytest.mark.parametrize("option", ["--panel-every 5", "--panel-texts 9"])
def test_criterions_without_a_panel(start, option):
    assert Trainer(start("--max-steps 1")).watch.batches == []
    message = f"{option.split()[0]} has no effect: criterion cross_entropy has no panel"
    with pytest.raises(UsageError, match=message):
        Trainer(start(f"--max-steps 1 {option}", run="b"))
