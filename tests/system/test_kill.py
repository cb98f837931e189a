"""Processes that are really killed: what is left is readable, the curve what it would be."""

import json
import multiprocessing
import os
import random
import signal
import socket
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
        f" --valid-every 10 --max-steps {STEPS} --data {toy_data / 'text'} --resume --writers none"
    ).split()


@pytest.fixture(scope="module", autouse=True)
def imported():
    """Everything a run imports late, so that the forks start at once."""

    torch.optim.AdamW([torch.zeros(1, requires_grad=True)])


def spawn(words, run, world=1):
    """The run in forks of this process, which has everything imported."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]

    def child(rank):
        if world > 1:
            names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "MASTER_PORT": port}
            os.environ |= {name: str(value) for name, value in names.items()}
            os.environ["MASTER_ADDR"] = "127.0.0.1"
        torch.set_num_threads(1)
        train(prepare(parse_train([*words, f"--save-dir={run}"])))
        os._exit(0)

    fork = multiprocessing.get_context("fork")
    processes = [fork.Process(target=child, args=(rank,)) for rank in range(world)]
    for process in processes:
        process.start()
    return processes


def events(run):
    lines = (run / "log.jsonl").read_text().splitlines()
    wanted = ("kind", "step", "train/loss", "valid/loss", "gnorm", "tokens")
    return [{k: v for k, v in json.loads(line).items() if k in wanted} for line in lines]


def interrupt(words, run, chance, number, world):
    """Send one process a signal somewhere in the next updates; all exit codes."""
    processes = spawn(words, run, world)
    # what comes before the first update, or after the last one, ends a process as it ends any
    log, updates, before = run / "log.jsonl", chance.randint(number != signal.SIGKILL, 6), None
    while all(process.is_alive() for process in processes):
        now = log.read_bytes().count(b"\n") if log.exists() else 0
        before = now if before is None or now < before else before  # a resumed run cuts its log
        if before + updates <= now < STEPS - 5 and now:
            time.sleep(chance.uniform(0, 0.05))
            os.kill(chance.choice(processes).pid, number)
            break
        time.sleep(0.001)
    for process in processes:
        process.join(120)
        assert process.exitcode is not None, "a process hangs"
    return [process.exitcode for process in processes]


def check_equal(run, other):
    assert events(run) == events(other)
    a, b = (load(path / "last").model.state_dict() for path in (run, other))
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    ("number", "code", "times", "world"),
    [(signal.SIGKILL, -9, 200, 1), (signal.SIGTERM, 143, 100, 1), (signal.SIGTERM, 143, 20, 2)],
)
def test_ended_at_random_moments(words, tmp_path, number, code, times, world):
    """Whole runs, each ended again and again, until that has happened so many times."""
    chance, ended, runs = random.Random(number), 0, 0
    (tmp_path / "whole").mkdir()
    for process in (started := spawn(words, tmp_path / "whole" / "run", world)):
        process.join(240)
    assert [process.exitcode for process in started] == [0] * world
    while ended < times:
        run, codes = tmp_path / str(runs), []
        while codes != [0] * world:
            codes = interrupt(words, run, chance, number, world)
            assert set(codes) in ({code}, {0})
            ended += codes != [0] * world
        check_equal(run, tmp_path / "whole" / "run")
        assert not list((run / "checkpoints").glob(".tmp*"))
        runs += 1
