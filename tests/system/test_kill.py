"""Processes that are really ended: what is left is readable, the curve what it would be.

This process has everything imported, and each run is a fork of it: a kill costs milliseconds.
"""

import collections
import os
import random
import signal
import sys
import time

import pytest
import torch
from ranks import exit_codes, start_forks
from safetensors.torch import load_file

from unitk.files import damage
from unitk.training.loop import train
from unitk.training.reporting.sinks import read_events
from unitk.training.saving.folder import RunFolder
from unitk.training.start import parse_train, prepare

STEPS, SAVE = 60, 4


@pytest.fixture
def words(runs):
    return (
        f"{runs.words('glm_infill')} --precision fp32 --max-tokens 80 --batch-tokens 160"
        f" --log-every 1 --save-every {SAVE} --valid-every 10 --max-steps {STEPS} --resume"
    )


@pytest.fixture(scope="module", autouse=True)
def imported():
    """What an optimizer imports late, so that the forks start at once."""
    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])


def spawn(words, run, world=1):
    """The run in so many forks of this process."""

    def action(rank):
        torch.set_num_threads(1)
        train(prepare(parse_train([*words.split(), "--device=cpu", f"--save-dir={run}"])))

    return start_forks(action, world, ranked=world > 1)


def curve(run):
    wanted = ("kind", "step", "train/loss", "valid/loss", "gnorm", "tokens")
    return [{k: v for k, v in e.items() if k in wanted} for e in read_events(run / "log.jsonl")]


def interrupt(words, run, chance, number, world):
    """Send one process a signal after some updates, or after some time; all exit codes."""
    log, updates, before = run / "log.jsonl", chance.randint(1, 8), None
    processes, began = spawn(words, run, world), time.monotonic()
    # a process that has just begun, or is about to end, leaves SIGTERM to its default
    soon = chance.uniform(0, 0.3) if number == signal.SIGKILL and chance.random() < 0.25 else 999
    while all(process.is_alive() for process in processes):
        now = log.read_bytes().count(b"\n") if log.exists() else 0
        before = now if before is None or now < before else before  # a resumed run cuts its log
        if before + updates <= now < STEPS - 2 or time.monotonic() - began > soon:
            time.sleep(chance.uniform(0, 0.03))
            os.kill(chance.choice(processes).pid, number)
            break
        time.sleep(0.002)
    return exit_codes(processes)


def check_ended(run, number, told):
    """Every checkpoint is whole, and close to where the run was; counts what was seen."""
    folder = RunFolder(run)
    assert [fault for step in folder.steps() if (fault := damage(folder.step(step)))] == []
    saving = any(folder.checkpoints.glob(".tmp*"))
    log = run / "log.jsonl"
    done = max((event["step"] for event in read_events(log)), default=0) if log.exists() else 0
    redone = done - max(folder.steps(), default=0)
    if number == signal.SIGTERM:
        assert (redone, saving) == (0, False)
    # while a checkpoint waits to be written, or is written, the loop goes on, at the most until the
    # next one is due
    assert redone <= 2 * SAVE, (done, folder.steps())
    told["ended"] += 1
    told["while saving"] += saving
    told["most redone"] = max(told["most redone"], redone)


def check_equal(run, other):
    assert curve(run) == curve(other)
    a, b = (load_file(path / "last" / "model.safetensors") for path in (run, other))
    assert all(torch.equal(a[name], b[name]) for name in a)


def end_at_random(words, tmp_path, number, code, times, world):
    """Whole runs, each ended again and again, until that has happened so many times."""
    chance, told, runs = random.Random(number * world), collections.Counter(), 0
    whole = tmp_path / "whole"
    assert exit_codes(spawn(words, whole, world)) == [0] * world
    while told["ended"] < times:
        run, codes = tmp_path / str(runs), []
        while codes != [0] * world:
            if told["ended"] < times:
                codes = interrupt(words, run, chance, number, world)
            else:
                codes = exit_codes(spawn(words, run, world))
            assert set(codes) in ({code}, {0}), codes
            if codes != [0] * world:
                check_ended(run, number, told)
        check_equal(run, whole)
        assert not list((run / "checkpoints").glob(".tmp*"))
        runs += 1
    print(f"{number!r}, {world} processes: {dict(told)} in {runs} runs", file=sys.stderr)


def test_runs_that_are_killed_lose_nothing(words, tmp_path):
    end_at_random(
        words.replace("steps 60", "steps 20"), tmp_path, signal.SIGKILL, -9, times=2, world=1
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code", "times", "world"),
    [(signal.SIGKILL, -9, 200, 1), (signal.SIGTERM, 143, 100, 1), (signal.SIGTERM, 143, 100, 2)],
)
def test_runs_that_end_at_random_moments_are_equal(words, tmp_path, number, code, times, world):
    end_at_random(words, tmp_path, number, code, times, world)
