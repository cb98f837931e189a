"""Runs that are trained side by side end with the process that trains them, and go on later."""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from unitk.errors import RanksError, UsageError
from unitk.runs.experiments.jobs import TrainingJob, train_all
from unitk.training.saving.folder import RunFolder

PROGRAM = """
import signal, sys
from unitk.runs.experiments.jobs import TrainingJob, train_all
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
try:
    train_all([TrainingJob("lm", words[-1], 1, 1, words) for words in {}], 2)
except KeyboardInterrupt:
    sys.exit(130)
"""
AT_ONCE = """
from unitk.runs.experiments import jobs
start = jobs._Trainer.__init__
def interrupted(self, job):
    start(self, job)
    raise KeyboardInterrupt
jobs._Trainer.__init__ = interrupted
"""
"""Ctrl-C as a process has been started, and before anybody knows of it."""


def words(tmp_path, toy_data, steps):
    line = f"--task lm --arch gpt2_tiny --data {toy_data}/text/train --valid none --device cpu"
    line += f" --max-tokens 400 --log-every 1 --max-steps {steps} --resume --save-dir"
    return [(*line.split(), str(tmp_path / name)) for name in ("one", "other")]


def wait_until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.05)


def have_begun(*folders):
    logs = [folder / "log.jsonl" for folder in folders]
    return all(log.exists() and "train/loss" in log.read_text() for log in logs)


def is_over(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "whole", "stops"),
    [
        ("SIGINT", True, False),
        ("SIGINT", False, False),
        ("SIGTERM", False, False),
        ("SIGTERM", False, True),
        ("SIGKILL", False, False),
    ],
)
def test_a_signal_ends_all_and_each_run_is_saved(name, whole, stops, tmp_path, toy_data):
    """Ctrl-C in a terminal is sent to all processes, another signal to the first one.

    A process that is stopped ends, too.
    """
    given = words(tmp_path, toy_data, 10**6)
    program = [sys.executable, "-c", PROGRAM.format(given)]
    done = subprocess.Popen(program, stderr=subprocess.PIPE, text=True, start_new_session=True)
    try:
        wait_until(lambda: have_begun(tmp_path / "one", tmp_path / "other"))
        if stops:
            for pid in Path(f"/proc/{done.pid}/task/{done.pid}/children").read_text().split():
                if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    os.kill(int(pid), signal.SIGSTOP)
        send = os.killpg if whole else os.kill
        send(done.pid, signal.Signals[name])
        done.wait(60)
        wait_until(lambda: is_over(done.pid))
    finally:
        if not is_over(done.pid):
            os.killpg(done.pid, signal.SIGKILL)
    for one in ("one", "other"):
        assert len(RunFolder(tmp_path / one).steps()) == 1
    assert "Traceback" not in done.stderr.read()


def test_a_process_that_nobody_knows_of_ends_with_the_others(tmp_path, toy_data):
    program = AT_ONCE + PROGRAM.format(words(tmp_path, toy_data, 10**6))
    done = subprocess.run([sys.executable, "-c", program], timeout=60, start_new_session=True)
    assert done.returncode == 130


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_what_ends_a_run_ends_the_others(killed, tmp_path, toy_data):
    """The error is that of the run; whoever is killed has none."""
    given = words(tmp_path, toy_data, 10**6)
    jobs = [TrainingJob("lm", "", 1, 1, one) for one in given]

    def harm():
        wait_until(lambda: have_begun(tmp_path / "one", tmp_path / "other"))
        one, *_ = multiprocessing.active_children()
        os.kill(one.pid, signal.SIGKILL)

    if killed:
        threading.Thread(target=harm).start()
    else:  # a folder that another process trains into
        held = RunFolder(tmp_path / "other").lock()
        held.__enter__()
    with pytest.raises(RanksError if killed else UsageError, match="--jobs" if killed else "other"):
        train_all(jobs, 2)
    assert not multiprocessing.active_children()
