"""A run that is stopped and resumed has the weights of one that was not."""

import json
import logging
import math
import os
import platform
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from exact_options import EXACT
from rounding import assert_near
from safetensors.torch import load_file

from unitk.errors import CheckpointError, NonFiniteError, UsageError
from unitk.models.layers import FeedForward
from unitk.training import device, guard, loop
from unitk.training.loop import Trainer, derive_seed
from unitk.training.reporting import report
from unitk.training.saving import checkpoint, saver, snapshot
from unitk.training.saving.folder import RunFolder
from unitk.training.start import parse_train, prepare
from unitk_cli.main import cli


def weights(run):
    return load_file(run / "last" / "model.safetensors")


def same(a, b):
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def stop_after(monkeypatch, steps, number=signal.SIGTERM):
    """Send this process a signal in the middle of update `steps`, counted from now."""
    update, done = Trainer.update, []

    def counted(self, one):
        done.append(one)
        if len(done) == steps:
            os.kill(os.getpid(), number)
        update(self, one)

    monkeypatch.setattr(Trainer, "update", counted)


def train_and_stop(train, monkeypatch, steps, words, **kwargs):
    with monkeypatch.context() as patch:
        stop_after(patch, steps)
        with pytest.raises(SystemExit) as exit:
            train(words, **kwargs)
    assert exit.value.code == 143


LONG = "--max-steps 10 --log-every 2 --valid-every 3 --save-every 4 --data {text}=0.75"
"""Several micro-batches an update, five updates an epoch, dropout, validations in between."""


@pytest.fixture
def long(toy_data):
    return LONG.format(text=toy_data / "text") + f" --valid {toy_data / 'text'}"


def check_resume(train, curve, tmp_path, monkeypatch, long, stops):
    whole = train(long, run="whole")
    assert whole.epoch >= 1
    for k in stops:
        train_and_stop(train, monkeypatch, k, long, run=f"at{k}")
        assert os.readlink(tmp_path / f"at{k}" / "last") == f"checkpoints/step-{k}"
        again = train(long + " --resume", run=f"at{k}")
        for value in ("train/loss", "valid/loss", "gnorm", "lr", "tokens"):
            assert curve(f"at{k}", value) == curve("whole", value), (k, value)
        assert same(weights(tmp_path / f"at{k}"), weights(tmp_path / "whole"))
        assert (again.best, again.best_step) == (whole.best, whole.best_step)
        assert (again.epoch, again.cursor, again.tokens) == (
            whole.epoch,
            whole.cursor,
            whole.tokens,
        )


PLANS = (
    "--thaw 3 --optimizer.layer-decay 0.5",  # stopped within the second and the third stage
    "--thaw epoch --freeze 'layers.0.*'",
    "--group 'layers.*.weight optimizer=bert_adam lr-factor=2'",
    "--optimizer muon --thaw 3 --optimizer.layer-decay 0.5 --lr 1e-3",
)


@pytest.mark.parametrize(
    "plan", [PLANS[0], *(pytest.param(p, marks=pytest.mark.slow) for p in PLANS[1:])]
)
def test_a_plan_continues_bit_for_bit(train, curve, tmp_path, monkeypatch, long, plan):
    check_resume(train, curve, tmp_path, monkeypatch, f"{long} {plan}", stops=[4, 7])


def test_frozen_and_unthawed_parameters_keep_their_values(train, tmp_path):
    words = (
        "--max-steps 4 --save-every 2 --keep-last 9 --seed 1 --freeze embed.tokens.weight --thaw 2"
    )
    train(words)
    first, last = (
        load_file(tmp_path / f"run/checkpoints/step-{step}/model.safetensors") for step in (2, 4)
    )
    moved = {name for name in first if not torch.equal(first[name], last[name])}
    tops = {name for name in first if name.startswith(("norm.", "layers.1."))}
    assert moved == tops  # two updates of the norm, then two of the top layer too


OPTIMIZERS = ["adamw", "adamw --optimizer.state bf16", "bert_adam", "lamb", "muon", "adafactor"]
OPTIMIZERS += ["muon --optimizer.state bf16"]


@pytest.mark.every(3)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_stopped_run_continues_bit_for_bit(train, curve, tmp_path, monkeypatch, long, optimizer):
    words = f"{long} --optimizer {optimizer}"
    check_resume(train, curve, tmp_path, monkeypatch, words, stops=[5])


@pytest.mark.slow
@pytest.mark.parametrize(
    "how", ["--precision fp32", "--precision bf16", "--threads 2 --precision fp32"]
)
def test_a_run_stopped_anywhere_ends_alike(train, curve, tmp_path, monkeypatch, long, how):
    words = f"{long} {how}"
    check_resume(train, curve, tmp_path, monkeypatch, words, stops=range(1, 10))


def test_prefetching_changes_nothing(train, curve, monkeypatch):
    train("--max-steps 4", run="a")
    monkeypatch.setattr(loop, "prefetch", lambda updates: updates)
    train("--max-steps 4", run="b")
    assert curve("a") == curve("b")


def test_micro_batches_add_up_to_the_gradient_of_one_batch(start, monkeypatch):
    gradients = []
    for max_tokens in (800, 400, 100):
        trainer = Trainer(start(f"--max-steps 9 --max-tokens {max_tokens} --arch.dropout 0"))
        monkeypatch.setattr(trainer.plan, "step", lambda *bad: None)
        monkeypatch.setattr(trainer.plan, "zero_grad", lambda: None)
        update, *_ = next(trainer.updates())
        trainer.update(update)
        gradients.append([p.grad for p in trainer.plan.parameters])
        assert len(update.batches) >= 800 // max_tokens
    for others in gradients[1:]:
        for one, other in zip(gradients[0], others, strict=True):
            assert_near(other, one)


def test_an_ask_has_its_exact_mean_over_the_update(start):
    trainer = Trainer(start("--max-steps 9 --max-tokens 200 --arch.dropout 0"))
    update, *_ = next(trainer.updates())
    with torch.no_grad():
        losses = [trainer.loss(batch, 1) for batch in update.batches]
    trainer.update(update)
    trainer.finish_updates()
    total = sum(float(loss.sums["lm"]) for loss in losses)
    count = sum(batch.count["lm"] for batch in update.batches)
    assert trainer.means.values("train", {})["train/loss"] == pytest.approx(total / count, rel=1e-6)


def test_a_hinge_of_the_mean_needs_the_whole_update(train):
    words = "--task optimus --arch optimus_tiny --criterion.kl-mode mean-hinge --max-steps 1"
    with pytest.raises(UsageError, match="mean-hinge.*not in "):
        train(words)
    train(f"{words} --max-tokens 800", run="whole")


def test_an_update_that_must_be_whole_is_no_larger_at_the_end_of_an_epoch(start):
    words = "--task optimus --arch optimus_tiny --criterion.kl-mode mean-hinge --max-steps 1"
    feed = Trainer(start(f"{words} --max-tokens 800")).feed
    for size in range(800, 2000, 100):  # --batch-tokens is --max-tokens by default
        updates = replace(feed, max_tokens=size, batch_tokens=size).updates()
        epoch = [next(updates)]
        while not epoch[-1].epoch:
            epoch.append(next(updates))
        assert [len(update.batches) for update in epoch] == [1] * len(epoch)
        assert sorted(np.concatenate([update.ids for update in epoch])) == [
            *range(len(feed.examples.bounds(0)))
        ]


def test_a_warm_up_without_end_and_updates_of_one_text_are_warned_about(train, caplog):
    def warned(words, run):
        caplog.clear()
        train(f"--max-steps 2 {words}", run=run)
        return [one.message for one in caplog.records if one.levelname == "WARNING"]

    longer = "the warm-up of 2,000 updates is longer than the run, 2"
    assert warned("--lr-schedule linear:warmup=2000", "a") == [f"--lr-schedule: {longer}"]
    [line] = warned("--batch-tokens 4", "b")
    assert line == "--batch-tokens 4 counts slots: an update has 1.0 texts on average"
    assert warned("--batch-texts 1 --batch-tokens none", "c") == []
    beta = "--task optimus --arch optimus_tiny --criterion.beta constant:warmup=2000"
    assert warned(beta, "d") == [f"--criterion.beta: {longer}"]
    cyclical = beta.replace("constant:warmup=2000", "cyclical:")
    [line] = warned(f"{cyclical}cycles=10", "e")
    assert re.match("--criterion.beta .* 0 .* 2 updates", line)
    assert warned(f"{cyclical}zero=0,ramp=0", "f") == []


@pytest.mark.parametrize(
    ("words", "data", "idle"),
    [
        ("", "text", ""),
        ("--max-source-len 9 --max-target-len 9", "text", "max-source-len max-target-len"),
        ("", "pairs", "blocks block-size"),
        ("--max-source-len 9", "pairs", "blocks block-size"),
        (
            "--valid-every 9 --valid-texts 3 --keep-best 2",
            "text",
            "valid-every valid-texts keep-best",
        ),
        ("--valid-every 9 --valid-texts 3 --keep-best 2 --valid {text}", "text", ""),
    ],
)
def test_options_that_nothing_reads_are_named(start, toy_data, words, data, idle):
    words = words.format(text=toy_data / "text")
    lines = report.warnings(Trainer(start(f"--max-steps 1 {words}", data=data)))
    named = [line.split()[0] for line in lines if "effect" in line]
    assert named == [f"--{name}" for name in idle.split()]


def test_gradients_are_clipped_to_the_norm(start, monkeypatch):
    norms = []
    for clip in (0, 0.5):
        trainer = Trainer(start(f"--max-steps 9 --clip-norm {clip}"))
        monkeypatch.setattr(trainer.plan, "step", lambda *bad: None)
        monkeypatch.setattr(trainer.plan, "zero_grad", lambda: None)
        trainer.update(next(trainer.updates())[0])
        trainer.finish_updates()
        norms.append(
            float(torch.nn.utils.get_total_norm([p.grad for p in trainer.plan.parameters]))
        )
        assert trainer.norm == pytest.approx(norms[0])
    assert norms[0] > 0.5 and norms[1] == pytest.approx(0.5, rel=1e-4)


def test_the_learning_rate_follows_its_schedule(train, curve):
    train("--max-steps 4 --lr 0.1 --lr-schedule linear:warmup=2")
    assert curve(value="lr") == [(1, 0.05), (2, 0.1), (3, 0.05), (4, 0)]


def test_epochs_are_counted(train, curve):
    progress = train("--max-epochs 2")
    assert progress.epoch == 2 and progress.texts == 400
    assert curve(value="lr")[-1] == (progress.step, 0)  # the planner knew the end


def test_hours_end_a_run(train, monkeypatch):
    progress = train("--max-hours 1e-9 --lr-schedule constant:warmup=2")
    assert progress.step == 0


def test_validation_is_the_same_for_every_seed(train, curve, toy_data, tmp_path):
    train("--max-steps 3", run="first")
    same_weights = f"--max-steps 1 --lr 1e-30 --valid {toy_data / 'text'}"
    for seed in (1, 2):
        words = f"{same_weights} --init-from {tmp_path / 'first'} --seed {seed}"
        train(words, run=f"seed{seed}")
    assert curve("seed1", "valid/loss") == curve("seed2", "valid/loss")
    assert curve("seed1", "train/loss") != curve("seed2", "train/loss")


def test_several_validation_sets(train, curve, toy_data):
    sets = f"dev={toy_data / 'text' / 'valid'},again={toy_data / 'text'},all={toy_data}/text/train"
    progress = train(f"--max-steps 2 --valid {sets} --best-metric all/lm/nll")
    (_, dev), (_, again), (_, all_) = (curve(value=f"{n}/loss")[0] for n in ("dev", "again", "all"))
    assert dev == again != all_ == progress.best


@pytest.fixture
def validations(monkeypatch):
    """Lets the validations of a run find given values, a list for each name."""

    def find(**values):
        rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
        left = iter(rows)

        def found(self, prefix, _):
            # a slow machine shows training between two validations
            row = next(left) if prefix == "valid" else rows[0]
            return {f"{prefix}/{name}": value for name, value in row.items()}

        monkeypatch.setattr(loop.measures.Means, "values", found)

    return find


def test_patience_ends_a_run_and_best_is_kept(train, validations, tmp_path, toy_data):
    validations(loss=[3.0, 2.0, 2.5, float("nan"), 1.0])
    words = f"--max-steps 50 --valid-every 1 --valid {toy_data / 'text'} --patience 2 --keep-last 1"
    progress = train(words)
    assert (progress.step, progress.best, progress.best_step) == (4, 2.0, 2)
    assert os.readlink(tmp_path / "run" / "best") == "checkpoints/step-2"
    assert os.readlink(tmp_path / "run" / "last") == "checkpoints/step-4"
    assert sorted(p.name for p in (tmp_path / "run/checkpoints").iterdir()) == ["step-2", "step-4"]
    # patience is part of the state: the run is over, however often it is resumed
    assert train(words + " --resume").step == 4


def test_of_shares_that_are_correct_the_highest_is_best(train, validations, toy_data, caplog):
    shares = [0.5, 0.75, 0.75, 0.25, 0.5]
    validations(**{"loss": [1.0] * 5, "lm": [1.0] * 5, "lm/correct": shares})
    caplog.set_level("INFO")
    words = f"--max-steps 50 --valid-every 1 --valid {toy_data / 'text'} --patience 3 --keep-best 2"
    progress = train(words + " --best-metric valid/lm/correct")
    assert (progress.step, progress.best, progress.best_step) == (5, 0.75, 2)
    assert progress.best_steps(2) == [2, 3]
    assert "valid loss 1  valid/lm/correct 0.75  (best yet)" in caplog.text
    assert "valid/lm/correct 0.25  (best 0.75 at step 2)" in caplog.text


def test_what_another_validation_found_best_is_not_compared(train, toy_data, caplog):
    """A loss of 5 is no share that nothing can exceed; losses of other texts are others."""
    valid = f"--valid-every 1 --patience 3 --valid {toy_data / 'text'}"
    loss = train(f"--max-steps 2 {valid}").best
    share = train(f"--max-steps 4 {valid} --best-metric valid/lm/correct --resume")
    assert share.step == 4 and share.best_step > 2 and 0 <= share.best <= 1 < loss
    assert "is no longer the best one" in caplog.text
    caplog.clear()
    valid = valid.replace("--valid ", "--valid dev=")  # the same texts by another name
    again = train(f"--max-steps 5 {valid} --best-metric dev/lm/correct --resume")
    assert again.best >= share.best and "no longer" not in caplog.text
    few = train(f"--max-steps 6 {valid} --valid-texts 3 --best-metric dev/lm/correct --resume")
    assert few.best_step == 6 and few.stale == 0
    other = valid.replace("dev=", "dev=" + str(toy_data / "text" / "train") + ",x=")
    assert train(f"--max-steps 7 {other} --resume").best_step == 7


def test_an_unknown_metric_is_named(train, toy_data):
    with pytest.raises(UsageError, match="valid/lm/nl.*valid/lm/nll"):
        train(f"--max-steps 1 --valid {toy_data / 'text'} --best-metric valid/lm/nl")


def poison(monkeypatch, steps, what=float("nan")):
    """The loss of these steps is no number."""
    loss = Trainer.loss

    def broken(self, batch, seed):
        found = loss(self, batch, seed)
        if self.progress.step in steps:
            found.sums["lm"] = found.sums["lm"] * what
        return found

    monkeypatch.setattr(Trainer, "loss", broken)


@pytest.mark.parametrize("what", [float("nan"), float("inf")])
def test_a_bad_update_is_skipped_and_counted(train, curve, caplog, monkeypatch, what):
    poison(monkeypatch, {1, 3}, what)
    before = []
    skip = guard.skip

    def spy(run, *update):
        before.append([p.clone() for p in run.plan.parameters])
        skip(run, *update)
        assert all(map(torch.equal, before[-1], run.plan.parameters))

    monkeypatch.setattr(guard, "skip", spy)
    progress = train("--max-steps 5 --on-nonfinite skip:2")
    assert (progress.step, progress.bad_steps, progress.bad_row) == (5, 2, 0)
    assert [step for step, _ in curve()] == [1, 3, 5]  # a skipped step has no loss
    assert curve(value="bad_steps")[-1] == (5, 2)
    assert re.search(
        r"step 2: loss \w+, .*skipped \(1 in a row, 1 in all\); first bad: loss lm.*; examples \d",
        caplog.text,
    )


def test_too_many_bad_updates_end_the_run(train, tmp_path, monkeypatch):
    poison(monkeypatch, {2, 3, 4, 5})
    with pytest.raises(NonFiniteError, match="3 updates.*row") as error:
        train("--max-steps 9 --on-nonfinite skip:3 --save-every 1")
    assert error.value.code == 5
    saved = np.load(tmp_path / "run" / "bad-step-5.npz", allow_pickle=False)
    assert saved["0/x"].shape[0] == 9 and len(saved["0/lm/label"]) and len(saved["ids"])
    assert all(tensor.isfinite().all() for tensor in weights(tmp_path / "run").values())


def test_a_full_disk_leaves_what_is_there(train, tmp_path, caplog, monkeypatch):
    import errno

    save, failing = snapshot.weights.save_tensors, {2, 6}

    def full(tensors, path, *more):
        if any(f"step-{step}" in str(path) for step in failing):
            raise OSError(errno.ENOSPC, "No space left on device")
        save(tensors, path, *more)

    monkeypatch.setattr(snapshot.weights, "save_tensors", full)
    train("--max-steps 8 --save-every 2")
    first, second = re.findall(r"No space left on device(.*); training continues", caplog.text)
    assert (first, second) == ("", "; earlier ones are kept")
    names = sorted(p.name for p in (tmp_path / "run/checkpoints").iterdir())
    assert names == ["step-4", "step-8"]


@pytest.mark.parametrize("limit", [50_000, 1_000_000])
def test_writing_really_fails(train, tmp_path, caplog, monkeypatch, limit):
    """The system refuses larger files: the model's (0.7 MB), or the optimizer's (1.4 MB)."""
    publish = RunFolder.publish

    def limited(self, number, write):
        if number != 2:
            return publish(self, number, write)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            return publish(self, number, write)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))

    monkeypatch.setattr(RunFolder, "publish", limited)
    train("--max-steps 3 --save-every 1")
    assert "of step 2 cannot" in caplog.text
    names = sorted(p.name for p in (tmp_path / "run/checkpoints").iterdir())
    assert names == ["step-1", "step-3"]


def test_a_full_disk_at_the_end_is_an_error(train, tmp_path, monkeypatch):
    train("--max-steps 2")
    before = weights(tmp_path / "run")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(snapshot.weights, "save_tensors", full)
    with pytest.raises(CheckpointError, match="step 4.*No space left") as error:
        train("--max-steps 4 --resume")
    assert error.value.code == 4
    assert same(weights(tmp_path / "run"), before)


def test_the_best_checkpoint_is_one_that_was_saved(
    train, validations, tmp_path, toy_data, monkeypatch
):
    validations(loss=[3.0, 2.0, 2.5, 2.7])
    write = saver.write

    def full(path, snapshot):
        if "step-2" in str(path):
            raise OSError(28, "No space left on device")
        write(path, snapshot)

    monkeypatch.setattr(saver, "write", full)
    progress = train(f"--max-steps 4 --valid-every 1 --valid {toy_data / 'text'}")
    assert (progress.best, progress.best_step) == (2.5, 3)
    assert os.readlink(tmp_path / "run" / "best") == "checkpoints/step-3"


def test_other_errors_of_an_update_are_not_called_out_of_memory(train, monkeypatch):
    def broken(self, batch, seed):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    monkeypatch.setattr(Trainer, "loss", broken)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        train("--max-steps 3 --oom-retry")


@pytest.mark.parametrize(
    "words", ["--arch.num-layers 1000000", "--arch.max-positions 100000000000", "--arch glm_10b"]
)
def test_a_model_that_cannot_fit_is_refused_before_it_is_built(start, monkeypatch, words):
    monkeypatch.setattr("unitk.training.device.free_memory", lambda device: 20e9)
    began = time.perf_counter()
    with pytest.raises(UsageError, match=r"--arch: about [\d,]+ .*parameters.*20.0 GB are"):
        Trainer(start(f"--max-steps 1 {words}"))
    assert time.perf_counter() - began < 5


def test_the_memory_that_is_free_is_known():
    free = device.free_memory(torch.device("cpu"))
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert total / 1000 < free < 10 * total


def test_a_checkpoint_that_cannot_fit_is_refused(train, tmp_path, monkeypatch):
    train("--max-steps 1")
    monkeypatch.setattr("unitk.training.device.free_memory", lambda device: 1e5)
    with pytest.raises(UsageError, match=r"need 0.0 GB \(4 bytes each\)"):
        checkpoint.load(tmp_path / "run")


@pytest.mark.parametrize(("steps", "every"), [(3, 1), (90, 2), (10**5, 50)])
def test_a_run_has_about_forty_log_lines_or_more(start, steps, every):
    words = f"--max-steps {steps} --log-every none"
    assert Trainer(start(words)).log_every == every
    assert Trainer(start(f"{words[:-4]}7")).log_every == 7


def test_the_last_line_names_loss_and_checkpoint(train, curve, tmp_path, toy_data, caplog):
    caplog.set_level("INFO")
    train(f"--max-steps 3 --valid {toy_data / 'text'}")
    last = f"checkpoint last {tmp_path.resolve()}/run/checkpoints/step-3, best {tmp_path.resolve()}"
    assert caplog.messages[-1].startswith(f"loss {curve()[-1][1]:.4g}; {last}")


@pytest.mark.slow
def test_validations_count_in_the_time_that_is_left(train, toy_data, monkeypatch, caplog):
    caplog.set_level("INFO")
    measure = Trainer.measure
    monkeypatch.setattr(Trainer, "measure", lambda *args: (time.sleep(3), measure(*args))[1])
    train(f"--max-steps 4 --valid-every 2 --valid {toy_data / 'text'}")
    (left,) = re.findall(r"step 3/4 .*eta 0:00:(\d+)", caplog.text)
    (updates,) = re.findall(r"in updates \(0:00:(\d+)\)", caplog.text)
    assert 3 <= int(left) < 6 + int(updates)


@pytest.mark.parametrize(("number", "code"), [(15, 143), (2, 130), (10, 75), (1, 129)])
def test_signals_save_and_end(train, tmp_path, monkeypatch, number, code):
    before = signal.signal(number, signal.default_int_handler)  # under nohup SIGHUP is ignored
    stop_after(monkeypatch, 2, number)
    try:
        with pytest.raises(SystemExit) as exit:
            train("--max-steps 9")
        assert exit.value.code == code
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)
    state = json.loads((tmp_path / "run/last/state.json").read_text())
    assert state["step"] == 2


def test_a_signal_as_the_last_checkpoint_is_written_is_not_lost(train, tmp_path, monkeypatch):
    """Else the next run of a sweep would begin."""
    stop = Trainer.stop

    def stopped(self):
        os.kill(os.getpid(), signal.SIGTERM)
        stop(self)

    monkeypatch.setattr(Trainer, "stop", stopped)
    with pytest.raises(SystemExit) as exit:
        train("--max-steps 2")
    assert exit.value.code == 143
    assert json.loads((tmp_path / "run/last/state.json").read_text())["step"] == 2


def test_seeds_are_told_apart():
    numbers = [(1,), (2,), (1, 0, 0), (1, 0, 1), (1, 1, 0), (2, 0, 0)]
    seeds = {derive_seed(*given) for given in numbers}
    assert len(seeds) == 6 and all(0 <= seed < 2**64 for seed in seeds)


def too_much(kind):
    """An error of too little memory: CUDA's, and the one that PyTorch raises on this CPU."""
    if kind == "cuda":
        raise torch.OutOfMemoryError("CUDA out of memory")
    torch.empty(1 << 50)


@pytest.mark.parametrize("kind", ["cuda", "cpu"])
def test_out_of_memory_is_tried_again_with_half(train, curve, monkeypatch, caplog, kind):
    words = "--max-steps 3 --arch.dropout 0 --max-tokens 400"
    train(words, run="a")
    loss, seen = Trainer.loss, []

    def scarce(self, batch, seed):
        seen.append(len(batch.docs))
        if self.progress.step == 1 and batch.num_slots > 150:
            too_much(kind)
        return loss(self, batch, seed)

    monkeypatch.setattr(Trainer, "loss", scarce)
    train(words + " --oom-retry", run="b")
    assert dict(curve("a")) == pytest.approx(dict(curve("b")), rel=1.5e-5, abs=1.5e-5)
    assert curve("a", "tokens") == curve("b", "tokens")
    assert "step 2: out of" in caplog.text
    with pytest.raises(UsageError, match=r"micro-batch of .*lower --max-tokens \(it is 400"):
        train(words, run="c")


def test_halves_of_a_batch_are_the_batch(start):
    trainer = Trainer(start("--max-steps 9 --arch.dropout 0"))
    batch = next(trainer.updates())[0].batches[0]
    with torch.no_grad():
        whole = trainer.loss(batch, 1).sums["lm"]
        parts = guard.split_batch(batch)
        halves = [trainer.loss(part, 1).sums["lm"] for part in parts]
    assert len(parts) == 2 and float(sum(halves)) == pytest.approx(float(whole), rel=1e-6)
    assert sum(part.count["lm"] for part in parts) == pytest.approx(batch.count["lm"])
    assert sum(len(part.owner) for part in parts) == len(batch.owner)


def test_the_first_bad_module_is_named(train, monkeypatch, caplog):
    def broken(self, x):
        return torch.full_like(forward(self, x), math.inf) if poisoned(self) else forward(self, x)

    forward, modules = FeedForward.forward, []

    def poisoned(module):
        modules.append(module)
        return modules.index(module) == 1  # of the second layer

    monkeypatch.setattr(FeedForward, "forward", broken)
    with pytest.raises(NonFiniteError, match="layers.1.ffn.*micro-batch 0"):
        train("--max-steps 3 --on-nonfinite stop")


def test_a_bad_gradient_is_named(train, curve, monkeypatch):
    def broken(self, *args):
        sums = passes(self, *args)
        self.model.decoder.layers[0].ffn.up.weight.grad[0, 0] = math.nan
        return sums

    passes = Trainer.passes
    train("--max-steps 1", run="good")
    [(_, loss)] = curve("good")
    monkeypatch.setattr(Trainer, "passes", broken)
    with pytest.raises(NonFiniteError, match="gradient.* layers.0.ffn.up.weight") as error:
        train("--max-steps 3 --on-nonfinite stop")
    # its loss is the mean that is logged, not a sum over words
    assert f"loss {loss:g}," in str(error.value)


def test_the_best_ones_are_kept(train, validations, tmp_path, toy_data):
    validations(loss=[3.0, 2.0, 2.5, 1.0, 4.0, 5.0])
    words = "--max-steps 6 --valid-every 1 --keep-last 1 --keep-best 3 --save-every 99"
    progress = train(f"{words} --valid {toy_data / 'text'}")
    assert progress.best_steps(3) == [4, 2, 3] and progress.stale == 2
    assert RunFolder(tmp_path / "run").steps() == [6, 4, 3, 2]
    assert os.readlink(tmp_path / "run" / "best") == "checkpoints/step-4"


def test_a_checkpoint_is_that_of_its_step_however_late_it_is_written(train, tmp_path, monkeypatch):
    train("--max-steps 2", run="two")
    write = saver.write

    def slow(path, snapshot):
        time.sleep(0.3)
        write(path, snapshot)

    monkeypatch.setattr(saver, "write", slow)
    train("--max-steps 4 --lr-schedule constant --save-every 2", run="four")
    train("--max-steps 2 --lr-schedule constant", run="again")
    four = load_file(tmp_path / "four/checkpoints/step-2/model.safetensors")
    assert same(four, weights(tmp_path / "again"))


def test_one_process_at_a_time_has_a_run_folder(start, train, tmp_path):
    with RunFolder(tmp_path / "run").lock():
        with pytest.raises(UsageError, match=rf"is .*process {os.getpid()} on"):
            train("--max-steps 1")
    train("--max-steps 1")


@pytest.mark.every(2)
@pytest.mark.parametrize("arch", ["glm_tiny", "modern_tiny", "gemma3_tiny"])
def test_less_memory_and_anomalies_change_nothing(train, curve, arch):
    for number, words in enumerate(["", "--recompute", "--detect-anomaly"]):
        train(f"--arch {arch} --max-steps 3 {words}", run=str(number))
    assert curve("0") == curve("1") == curve("2")


@pytest.mark.slow
def test_compiled_layers_give_the_same_losses(train, curve):
    for number, words in enumerate(["", "--compile"]):
        train(f"--max-steps 3 --arch.dropout 0 {words}", run=str(number))
    assert dict(curve("0")) == pytest.approx(dict(curve("1")), abs=1e-4)


def test_a_resumed_run_says_which_options_changed(train, start, tmp_path, caplog):
    caplog.set_level("INFO")
    train("--max-steps 2")
    assert start("--max-steps 2 --resume").beginning.changed == []
    there = (tmp_path / "run/last").resolve()
    changed = [
        f"--max-steps is 4, but 2 in {there}",
        f"--lr is 0.02, but 0.01 in {there}",
    ]
    assert sorted(start("--max-steps 4 --lr 0.02 --resume").beginning.changed) == sorted(changed)
    train("--max-steps 4 --lr 0.02 --resume")
    page = (tmp_path / "run/README.md").read_text()
    assert all(line in caplog.messages for line in changed)
    shown = [line.replace(f"{tmp_path.resolve()}/", "") for line in changed]
    assert all(f"- {line}\n" in page for line in shown)


def test_a_run_ends_no_earlier_than_where_it_goes_on(train, start):
    train("--max-epochs 2")
    lengths = {"steps": 2, "epochs": 1, "words": 3, "hours": 1e-9}
    for name, less in lengths.items():
        with pytest.raises(UsageError, match=f"^--max-{name} {less} .*step-"):
            start(f"--max-{name} {less} --resume")
    done = start("--max-epochs 2 --resume").beginning.resumed
    as_many = done.name.removeprefix("step-")
    for length in ("--max-epochs 2", f"--max-steps {as_many}"):
        assert train(f"{length} --resume").step == int(as_many)  # there is nothing left to do


def test_a_run_that_trained_nothing_says_so(train, monkeypatch):
    with monkeypatch.context() as patch:
        poison(patch, {1})
        assert train("--max-steps 2", run="some").bad_steps == 1
    poison(monkeypatch, {0, 1})
    with pytest.raises(NonFiniteError, match="NaN"):
        train("--max-steps 2", run="all")


@pytest.mark.parametrize(
    "shares", ["lm=nan --task mlm=1", "lm=-1 --task mlm=1", "lm=0 --task mlm=0"]
)
def test_shares_that_are_none_make_no_folder(toy_data, tmp_path, shares):
    words = ["--task", *shares.split(), "--arch", "bert_tiny", "--valid", "none"]
    with pytest.raises(UsageError, match="--task"):
        given = ["--data", str(toy_data / "text"), "--max-steps", "2"]
        loop.train(prepare(parse_train([*words, *given, "--save-dir", str(tmp_path / "run")])))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("rate", ["-1", "1e999"])
def test_a_rate_that_is_none_makes_no_folder(train, tmp_path, rate):
    with pytest.raises(UsageError, match="--lr-schedule"):
        train(f"--max-steps 2 --lr-schedule={rate}")
    assert not (tmp_path / "run").exists()


def test_a_profile_has_a_line_for_each_operation(train, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    train("--max-steps 4 --profile")
    assert (tmp_path / "run" / "profile.json").exists()
    assert any("aten::mm" in line for line in caplog.messages)
    assert not any("\n" in line for line in caplog.messages)


def test_a_folder_that_another_process_trained_in_meanwhile_is_left_alone(start, train, tmp_path):
    late = start("--max-steps 3 --seed 2")
    train("--max-steps 2")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.yaml")}
    with pytest.raises(UsageError, match="--resume"):
        loop.train(late)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*.yaml")}


def test_a_run_folder_explains_itself(train, tmp_path, caplog):
    train("--max-steps 2 --profile")
    assert "--profile: " in caplog.text
    page = (tmp_path / "run" / "README.md").read_text()
    assert "| `--lr` | 0.01 | --lr |" in page and "2 updates, " in page and "--resume" in page
    assert "`--arch.width`" not in page  # a preset's, not a choice of this run
    assert "Licence of the model: not stated." in page and "## Scores" not in page


@pytest.mark.every(2)
@pytest.mark.parametrize(
    ("words", "use"),
    [
        ("--task lm --arch gpt2_tiny", "generate --checkpoint {} --input FILE"),
        ("--task mlm --arch bert_tiny", "generate --checkpoint {} --infill TEXT"),
        ("--task bilm --arch elmo_tiny", "evaluate --checkpoint {} --data DIR"),
        (
            "--task mlm=1 --task lm=1 --arch gpt2_tiny --task.mlm.shift on",
            "generate --checkpoint {} --task lm --input FILE",
        ),
        (
            "--task mlm=1 --task spanbert=1 --arch bert_tiny",
            "generate --checkpoint {} --task mlm --infill TEXT",
        ),
    ],
)
def test_a_run_folder_has_a_command_that_uses_its_model(words, use, toy_data, tmp_path, capsys):
    argv = f"{words} --data {toy_data / 'text'} --save-dir {tmp_path / 'run'} --max-steps 1"
    loop.train(prepare(parse_train(argv.split())))
    page = (tmp_path / "run" / "README.md").read_text()
    assert "unitk " + use.format("run") in page.splitlines()
    assert str(tmp_path) not in page and str(toy_data) not in page
    (tmp_path / "in.txt").write_text("The bade.\n")
    files = {"FILE": str(tmp_path / "in.txt"), "TEXT": "[MASK] bade", "DIR": str(toy_data / "text")}
    verb, *given = use.format(tmp_path / "run").split()
    cli.main([verb, *(files.get(word, word) for word in given)], standalone_mode=False)
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("words", [".", "../inner", "sub/.."])
def test_the_commands_of_a_run_folder_have_a_name_for_it(words, toy_data, tmp_path, monkeypatch):
    (tmp_path / "inner" / "sub").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "inner")
    argv = f"--task lm --arch gpt2_tiny --data {toy_data / 'text'} --save-dir {words} --max-steps 1"
    loop.train(prepare(parse_train(argv.split())))
    page = (tmp_path / "inner/README.md").read_text()
    assert re.findall(r"^unitk plot (?:\.\./)?(.*)$", page, re.M) == ["inner"]


def test_a_run_folder_has_the_scores_of_its_best_validation(train, tmp_path, toy_data):
    sets = f"--valid dev={toy_data / 'text'},test={toy_data / 'text'}"
    run = train(f"--max-steps 4 --valid-every 2 {sets}")
    events = map(json.loads, (tmp_path / "run/log.jsonl").read_text().splitlines())
    best = run.best_step
    (valid,) = (e for e in events if e["kind"] == "valid" and e["step"] == best)
    page = (tmp_path / "run" / "README.md").read_text()
    assert f"## Scores at step {best}, the best validation" in page
    shown = dict(re.findall(r"^\| ((?:dev|test)/\S+) \| (\S+) \|$", page, re.M))
    wanted = {name: value for name, value in valid.items() if "/" in name}
    assert {name: float(value) for name, value in shown.items()} == pytest.approx(wanted, rel=1e-5)
    assert {"dev/loss", "test/loss"} <= set(shown)


def test_the_average_of_the_weights_is_what_is_judged_and_used(
    train, tmp_path, toy_data, monkeypatch
):
    words = f"--max-steps 6 --ema 0.5 --valid {toy_data / 'text'} --valid-every 3 --save-every 1"
    whole = train(f"{words} --keep-last 9", run="whole")
    average = load_file(tmp_path / "whole/checkpoints/step-1/ema.safetensors")
    for step in range(2, 7):
        now = load_file(tmp_path / f"whole/checkpoints/step-{step}/model.safetensors")
        average = {name: tensor.lerp(now[name], 0.5) for name, tensor in average.items()}
    used = checkpoint.load(tmp_path / "whole").model.state_dict()
    assert all(torch.allclose(used[name], tensor, atol=1e-7) for name, tensor in average.items())
    train_and_stop(train, monkeypatch, 4, words, run="again")
    again = train(f"{words} --resume", run="again")
    assert again.ranking == whole.ranking
    assert same(*(load_file(tmp_path / run / "last/ema.safetensors") for run in ("whole", "again")))


@pytest.mark.every(2)
@pytest.mark.parametrize("late", [False, True])
def test_the_last_updates_are_averaged(train, tmp_path, toy_data, monkeypatch, late):
    """Of eight updates the last half; before it the average is what was trained."""
    monkeypatch.setattr(loop, "can_defer", lambda run: late)
    words = f"--max-steps 8 --average-last 0.5 --valid {toy_data / 'text'} --save-every 1"
    train(f"{words} --keep-last 9", run="whole")
    steps = [tmp_path / f"whole/checkpoints/step-{step}" for step in range(1, 9)]
    trained = [load_file(step / "model.safetensors") for step in steps]
    for step, here in zip(steps[:5], trained[:5], strict=True):
        assert same(load_file(step / "ema.safetensors"), here)
    used = checkpoint.load(tmp_path / "whole/last").model.state_dict()
    for name, tensor in used.items():
        assert_near(tensor, sum(here[name] for here in trained[4:]) / 4)
    train_and_stop(train, monkeypatch, 6, words, run="again")
    train(f"{words} --resume", run="again")
    assert same(*(load_file(tmp_path / run / "last/ema.safetensors") for run in ("whole", "again")))


def test_the_first_checkpoint_is_that_of_an_update(train, tmp_path):
    train("--max-steps 3 --save-every 2 --keep-last 9")
    assert RunFolder(tmp_path / "run").steps() == [3, 2]


def test_deterministic_operations_exist_for_all_there_is_to_compute(train, curve):
    train("--max-steps 2", run="a")
    train("--max-steps 2 --deterministic on", run="b")
    assert torch.are_deterministic_algorithms_enabled() and curve("a") == curve("b")
    train("--max-steps 1 --deterministic off", run="c")
    assert not torch.are_deterministic_algorithms_enabled()


def test_a_run_goes_on_with_other_data(train, toy_data):
    first = train("--max-steps 3 --lr-schedule constant")
    assert (first.epoch, first.cursor > 0) == (0, True)
    more = "--lr-schedule constant --resume --block-size 32"
    with pytest.raises(UsageError, match="--block-size is 32, .*change.* --new-data"):
        train(f"{more} --max-steps 5")
    other = f"{more} --new-data --data {toy_data / 'text'}=2"
    with pytest.raises(UsageError, match="--data: .*--new-data begins"):
        train(f"--resume --max-steps 5 --data {toy_data / 'text'}=2")
    whole = train(f"{other} --max-steps 7")
    assert (whole.epoch, whole.step) == (1, 7)  # the epoch that was begun is left
    cursor = whole.cursor
    # the same command again is no other data
    again = train(f"{other} --max-steps 9")
    assert again.epoch == 1 and again.cursor > cursor
    with pytest.raises(UsageError, match="--new-data .*no effect.* --resume"):
        train("--max-steps 1 --new-data", run="b")


def test_an_error_waits_for_the_checkpoint_that_is_being_written(train, tmp_path, monkeypatch):
    write = saver.write

    def slow(path, snapshot):
        time.sleep(0.5)
        write(path, snapshot)

    monkeypatch.setattr(saver, "write", slow)
    poison(monkeypatch, {1})
    with pytest.raises(NonFiniteError):
        train("--max-steps 3 --save-every 1 --on-nonfinite stop")
    assert RunFolder(tmp_path / "run").newest() == RunFolder(tmp_path / "run").step(1)


@pytest.fixture
def scaled(monkeypatch):
    """Scaling as with fp16 on CUDA, over fp32: powers of two change nothing but overflows."""
    fp32 = loop.compute_in
    monkeypatch.setattr("unitk.training.run.choose_precision", lambda config, device: "fp16")
    monkeypatch.setattr(
        loop, "compute_in", lambda device, precision, *rest: fp32(device, "fp32", *rest)
    )


def test_a_scaled_loss_gives_the_same_updates(train, curve, tmp_path, monkeypatch, request):
    words = "--max-steps 12 --clip-norm 0.5"
    train(f"{words} {EXACT}", run="plain")
    request.getfixturevalue("scaled")
    train(words, run="scaled")
    assert same(weights(tmp_path / "plain"), weights(tmp_path / "scaled"))
    for value in ("train/loss", "gnorm", "noise_scale"):
        assert curve("plain", value) == curve("scaled", value)
    assert curve("scaled", "loss_scale") == [(step, 65536.0) for step in range(1, 13)]


def test_an_overflow_is_skipped_and_lowers_the_scale(
    train, curve, tmp_path, monkeypatch, caplog, scaled
):
    """Gradients overflow where the scale is above 2^14; the losses are finite."""
    unscale = guard.unscale

    def overflowing(parameters, scale):
        if scale > 2**14:
            parameters[0].grad[0] = math.inf
        unscale(parameters, scale)

    monkeypatch.setattr(guard, "unscale", overflowing)
    monkeypatch.setattr(guard, "GROWTH", 3)
    words = "--max-steps 10 --lr-schedule constant --on-nonfinite stop"
    at = train(words, run="whole")
    # skipped at steps 1 and 2; then it doubles after three good updates, in vain
    found = [2**15, 2**14, 2**14, 2**14, 2**15, 2**14, 2**14, 2**14, 2**15, 2**14]
    assert at.scale == 2**14 and at.bad_steps == 4 and at.bad_row == 0
    assert caplog.text.count("fp16 overflow: skipped, loss scale 16384") == 3
    logged = dict(curve("whole", "loss_scale"))
    assert [logged[step] for step in range(1, 11)] == found
    train_and_stop(train, monkeypatch, 4, words, run="again")
    again = train(f"{words} --resume", run="again")
    assert (again.scale, again.unscaled) == (at.scale, at.unscaled)
    assert same(weights(tmp_path / "whole"), weights(tmp_path / "again"))


def test_fp16_needs_a_gpu(start):
    with pytest.raises(UsageError, match="--precision fp16 needs CUDA"):
        Trainer(start("--max-steps 1 --precision fp16 --device cpu"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_fp16_learns_what_fp32_learns(train, curve):
    """On a GPU, with a loss scale; an overflow may cost some updates."""
    for precision in ("fp32", "fp16"):
        at = train(f"--max-steps 30 --arch.dropout 0 --precision {precision}", run=precision)
    assert at.bad_steps < 5 and len(curve("fp16", "loss_scale")) == 30
    full, half = (np.mean([loss for _, loss in curve(run)[20:]]) for run in ("fp32", "fp16"))
    assert half == pytest.approx(full, rel=0.03)


def test_a_log_that_is_removed_is_told(train, tmp_path, monkeypatch, caplog):
    update = Trainer.update

    def removing(self, one):
        (tmp_path / "run/log.jsonl").unlink(missing_ok=True)
        update(self, one)

    monkeypatch.setattr(Trainer, "update", removing)
    assert train("--max-steps 3").step == 3
    assert (
        caplog.text.count("log cannot be written: log.jsonl was removed; training continues") == 1
    )


def test_a_run_folder_that_is_removed_does_not_come_back(train, tmp_path, monkeypatch):
    update = Trainer.update

    def removing(self, one):
        shutil.rmtree(tmp_path / "run", ignore_errors=True)
        update(self, one)

    monkeypatch.setattr(Trainer, "update", removing)
    with pytest.raises(CheckpointError, match="removed while.*goes"):
        train("--max-steps 3")
    assert not (tmp_path / "run").exists()


def test_texts_beyond_max_tokens_are_told(train, caplog):
    train("--max-steps 1 --max-tokens 3 --batch-tokens 50")
    assert re.search(r"train: 200 texts above --max-tokens 3: .* of up to \d+ slots", caplog.text)
    caplog.clear()
    train("--max-steps 1", run="b")
    assert "texts above" not in caplog.text


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_an_update_on_a_cpu_is_made_in_the_memory_of_those_before(toy_data, tmp_path):
    program = """
import resource, sys
from unitk.training.loop import Trainer
from unitk.training.start import parse_train, prepare
trainer = Trainer(prepare(parse_train(sys.argv[1:])))
found, updates = [], trainer.updates()
for update, _, _ in (next(updates) for _ in range(8)):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    trainer.update(update)
    found.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(found[3:]), sum(p.nbytes for p in trainer.plan.parameters) // resource.getpagesize())
"""
    words = (
        # matrices of 40 MB: above every threshold that glibc sets by itself
        "--task lm --arch gpt2_tiny --arch.width 512 --arch.ffn-width 20000 --arch.num-layers 1"
        f" --data {toy_data / 'text'} --blocks line"
        f" --save-dir {tmp_path / 'run'} --valid none --device cpu --threads 1 --precision fp32"
        " --writers none --max-steps 8 --batch-tokens 100"
    )
    command = [sys.executable, "-c", program, *words.split()]
    done = subprocess.run(command, capture_output=True, text=True)
    faults, pages = map(int, done.stdout.split())
    assert faults < pages / 10, done.stderr  # gradients alone have as many pages as the weights
