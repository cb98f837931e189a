"""Updates that are read one update late, as on a GPU, are those that wait."""

import re
from dataclasses import replace
from math import nan

import pytest
import torch
from rounding import assert_near

from unitk.criterions.cross_entropy import CrossEntropy
from unitk.errors import NonFiniteError, UsageError
from unitk.training import loop
from unitk.training.loop import Trainer
from unitk.training.saving.weights import weights_of
from unitk.training.updates import late
from unitk.training.updates.recording import Recorder

RUN = "--max-steps 7 --log-every 2 --save-every 3 --on-nonfinite skip:3"


@pytest.fixture
def deferring(monkeypatch):
    """`deferring(True)`: updates are read late, on this CPU too."""
    return lambda on: monkeypatch.setattr(loop, "can_defer", lambda run: on)


@pytest.fixture
def poison(monkeypatch):
    """`poison({1, 3})`: the loss of these steps is no number."""
    loss = Trainer.loss

    def set_steps(steps):
        def broken(self, batch, seed):
            found = loss(self, batch, seed)
            if self.progress.step in steps:
                found.sums["lm"] = found.sums["lm"] * float("nan")
            return found

        monkeypatch.setattr(Trainer, "loss", broken)

    return set_steps


@pytest.mark.every(2)
@pytest.mark.parametrize("steps", [set(), {0, 1, 6}])
@pytest.mark.parametrize(
    "words",
    ["--ema 0.5 --clip-norm 0.5", "--optimizer muon --optimizer.precision fp32 --clip-norm 9"],
)
def test_logs_and_weights_are_those_of_updates_that_wait(
    train, curve, tmp_path, deferring, poison, caplog, words, steps
):
    poison(steps)
    logs, found = [], []
    for name, on in (("waits", False), ("late", True)):
        deferring(on)
        caplog.clear()
        at = train(f"{RUN} {words} --keep-last 9", run=name)
        assert (at.bad_steps, at.bad_row) == (len(steps), 6 in steps)
        logs.append(re.findall(r"step \d+: .* skipped .*", caplog.text))
        found.append([curve(name, value) for value in ("train/loss", "gnorm", "bad_steps", "lr")])
    assert logs[0] == logs[1] and len(logs[0]) == len(steps)
    for one, other in zip(*found, strict=True):
        assert [step for step, _ in one] == [step for step, _ in other]
        assert [v for _, v in other] == pytest.approx([v for _, v in one], rel=1e-6)
    for step in (3, 6, 7):
        folders = (tmp_path / name / f"checkpoints/step-{step}" for name in ("waits", "late"))
        one, other = (weights_of(folder, True) for folder in folders)
        for name in one:
            assert_near(*(without_key_bias(name, weights[name]) for weights in (other, one)))


def without_key_bias(name, weight):
    """The weight, less the bias of keys: it changes no score, and AdamW makes whole steps of the
    rounding that is its gradient."""
    return weight.view(3, -1)[[0, 2]] if name.endswith("qkv.bias") else weight


def test_the_last_of_too_many_bad_updates_is_named(train, deferring, poison):
    deferring(True)
    poison({2, 3, 4, 5})
    with pytest.raises(NonFiniteError, match="bad-step-5"):
        train("--max-steps 9 --on-nonfinite skip:3")


def test_a_run_that_is_resumed_ends_as_one_that_was_not(train, tmp_path, deferring, poison):
    deferring(True)
    poison({2})
    words = "--optimizer muon --log-every 5 --lr-schedule constant"
    train(f"{words} --max-steps 6", run="whole")
    train(f"{words} --max-steps 3", run="parts")
    train(f"{words} --max-steps 6 --resume", run="parts")
    one, other = (weights_of(tmp_path / name / "last", True) for name in ("whole", "parts"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_what_keeps_the_host_waiting(start):
    """On a CPU nothing is read late; nor is anything whose optimizer cannot skip on the device."""
    run = Trainer(start("--max-steps 3 --device cpu"))
    assert run.plan.skips and not late.can_defer(run) and run.late is None
    assert not Trainer(start("--max-steps 3 --optimizer lamb", run="b")).plan.skips


@pytest.mark.every(2)
@pytest.mark.parametrize("words", ["--task mlm --arch bert_tiny", "--task lm --arch modern_tiny"])
@pytest.mark.parametrize("optimizer", ["adamw", "muon --optimizer.precision fp32"])
def test_a_recorded_update_is_the_same(
    train, curve, tmp_path, deferring, monkeypatch, words, optimizer
):
    """A recording is a function of its own tensors, which a CPU calls."""
    run = f"{words} --optimizer {optimizer} --max-steps 8 --log-every 1 --max-tokens 800"
    run += " --device cpu"
    deferring(True)
    calls, criterion = [], CrossEntropy.__call__
    replay = Recorder.replay

    def counted(self, found, *given):
        calls.append(found)
        replay(self, found, *given)

    def broken(self, model, batch, step, total):
        loss = criterion(self, model, batch, step, total)
        return replace(loss, sums={k: v * (nan if step == 5 else 1) for k, v in loss.sums.items()})

    monkeypatch.setattr(Recorder, "replay", counted)
    monkeypatch.setattr(CrossEntropy, "__call__", broken)
    found = []
    for name, more in (("late", "--static"), ("recorded", "--static --capture")):
        train(f"{run} {more}", run=name)
        found.append([curve(name, value) for value in ("train/loss", "gnorm", "lr", "bad_steps")])
    assert len(calls) >= 4 and len({id(one) for one in calls}) < len(calls)
    for one, other in zip(*found, strict=True):
        assert [step for step, _ in one] == [step for step, _ in other]
        assert [v for _, v in other] == pytest.approx([v for _, v in one], rel=1e-5)
    one, other = (weights_of(tmp_path / name / "last", True) for name in ("late", "recorded"))
    for name in one:
        assert_near(other[name], one[name])


def test_what_recording_needs(start, deferring):
    with pytest.raises(UsageError, match="CUDA"):
        Trainer(start("--max-steps 3 --static --capture --device cpu"))
    deferring(True)
    for words in ("", "--static --criterion.label-smoothing 0.1", "--static --thaw epoch"):
        with pytest.raises(UsageError, match="--capture"):
            Trainer(start(f"--max-steps 3 --capture {words}"))
