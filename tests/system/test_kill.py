"""Processes that are really killed: what is left is readable, the curve what it would be."""

import json
import multiprocessing
import os
import random
import signal
import time

import pytest
import torch

from unitk.train.checkpoint import load
from unitk.train.loop import train
from unitk.train.start import parse_train, prepare

pytestmark = pytest.mark.slow
STEPS = 60


@pytest.fixture
def words(toy_data):
    return (
        "--task glm_infill --arch glm_tiny --arch.dropout 0.1 --blocks line --block-size 64"
        f" --max-tokens 400 --batch-tokens 800 --log-every 1 --lr 1e-2 --save-every 3"
        f" --valid-every 10 --max-steps {STEPS} --data {toy_data / 'text'} --resume"
    ).split()


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Everything a run imports late, so that the forks start at once."""
    import torch.utils.tensorboard  # noqa: F401

    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])


def spawn(words, run):
    """The run in a fork of this process, which has everything imported."""

    def child():
        os.environ["OMP_NUM_THREADS"] = "1"
        torch.set_num_threads(1)
        train(prepare(parse_train([*words, f"--save-dir={run}"])))
        os._exit(0)

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    return process


def events(run):
    lines = (run / "log.jsonl").read_text().splitlines()
    wanted = ("kind", "step", "train/loss", "valid/loss", "gnorm", "tokens")
    return [{k: v for k, v in json.loads(line).items() if k in wanted} for line in lines]


@pytest.fixture
def whole(words, tmp_path):
    """The run undisturbed."""
    process = spawn(words, tmp_path / "whole")
    process.join()
    assert process.exitcode == 0
    return tmp_path / "whole"


def interrupt(words, run, chance, number):
    """Send a signal after a random number of updates, somewhere in the next; the exit code."""
    process = spawn(words, run)
    log, updates = run / "log.jsonl", chance.randint(4, 20)
    before = log.stat().st_size if log.exists() else 0
    while process.is_alive():
        now = log.stat().st_size if log.exists() else 0
        before = min(before, now)  # a resumed run cuts its log
        if now > before + 300 * updates:
            time.sleep(chance.uniform(0, 0.03))
            os.kill(process.pid, number)
            break
        time.sleep(0.001)
    process.join(60)
    return process.exitcode


def check_equal(run, other):
    assert events(run) == events(other)
    a, b = (load(path / "last").model.state_dict() for path in (run, other))
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143)])
def test_ended_at_random_moments(words, whole, tmp_path, number, code):
    chance, run, codes = random.Random(number), tmp_path / "run", []
    while not codes or codes[-1] != 0:
        codes.append(interrupt(words, run, chance, number))
        assert len(codes) < 60, "no progress"
    assert len(codes) > 2 and set(codes) == {code, 0}
    check_equal(run, whole)
    assert not list((run / "checkpoints").glob(".tmp*"))
