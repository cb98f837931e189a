"""What a signal does before, in and after a validation, and where there is no terminal any more."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from unitk.training import loop, signals
from unitk.training.reporting.log import Journal
from unitk.training.saving import saver


def words(data, run, more=""):
    return (
        f"train --task lm --arch gpt2_tiny --arch.num-layers 1 --blocks line --block-size 64"
        f" --data {data}/text --save-dir {run} --max-tokens 200 --precision fp32 --writers none"
        f" {more}"
    ).split()


@pytest.fixture(autouse=True)
def heard():
    """What is started ignores no signal, even where this process is a job with nohup."""
    before = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def status(process):
    return Path(f"/proc/{process}/status").read_text()


def launch(*words, **kwargs):
    return subprocess.Popen([sys.executable, "-m", "unitk_cli", *words], **kwargs)


@pytest.mark.parametrize(
    "batch", [3, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, *range(4, 11)))]
)
def test_a_signal_is_heard_within_a_batch_of_a_validation(
    train, curve, toy_data, tmp_path, monkeypatch, batch
):
    long = f"--max-steps 4 --valid-every 2 --valid {toy_data / 'text'} --max-tokens 200"
    whole = train(long, run="whole")
    fixed, read = loop.FixedBatches.__iter__, []

    def watched(self):
        for number, one in fixed(self):
            read.append(number)
            if len(read) == batch:
                os.kill(os.getpid(), signal.SIGTERM)
            yield number, one

    with monkeypatch.context() as patch, pytest.raises(SystemExit) as exit:
        patch.setattr(loop.FixedBatches, "__iter__", watched)
        train(long)
    assert (exit.value.code, read) == (143, list(range(batch)))
    state = json.loads((tmp_path / "run/last/state.json").read_text())
    assert (state["step"], state["validated"]) == (2, 0)
    again = train(f"{long} --resume")
    for value in ("train/loss", "valid/loss"):
        assert curve("run", value) == curve("whole", value)
    assert again.ranking == whole.ranking


def test_a_validation_of_some_texts(train, curve, toy_data, monkeypatch):
    shown = []
    monkeypatch.setattr(Journal, "show", lambda self, text: shown.append(text))
    some = f"--max-steps 1 --valid {toy_data / 'text'} --max-tokens 200 --valid-texts"
    losses = {}
    for texts in (1, 20, 60, 61, 10**9):
        shown.clear()
        train(f"{some} {texts}", run=str(texts))
        count = len([text for text in shown if text.startswith("validating valid ")])
        assert f"validating valid {count - 1}/{count}" in shown and count <= texts
        losses[texts] = curve(str(texts), "valid/loss")[0][1]
    train(f"{some.removesuffix('--valid-texts')}", run="all")
    assert losses[60] == losses[61] == losses[10**9] == curve("all", "valid/loss")[0][1]
    assert len({losses[1], losses[20], losses[60]}) == 3


WINDOWS = """
import builtins, enum, signal, sys
signal.Signals = enum.IntEnum("Signals", {"SIGINT": 2, "SIGTERM": 15})
for name in ("SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGKILL"):
    delattr(signal, name)
real = builtins.__import__
def without(name, globals=None, *rest, **named):
    if name in ("fcntl", "resource", "pwd", "termios", "pty"):
        if (globals or {}).get("__name__", "").startswith("unitk"):
            raise ModuleNotFoundError(name)
    return real(name, globals, *rest, **named)
builtins.__import__ = without
import pkgutil, re, unitk, unitk_cli
for package in (unitk, unitk_cli):
    for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
        if not re.search("__main__|fairseq|harness", module.name):  # these need other programs
            __import__(module.name)
from unitk_cli.main import main
main()
"""


@pytest.mark.slow
def test_nothing_is_needed_that_windows_lacks(toy_data, tmp_path):
    command = [sys.executable, "-c", WINDOWS]
    run = [*words(toy_data, tmp_path / "run", "--max-steps 1"), "--valid", "none"]
    source = tmp_path / "in.txt"
    source.write_text("the bado\n")
    generate = f"generate --checkpoint {tmp_path / 'run'} --input {source} --max-len 2"
    for some in (run, [*run, "--resume"], generate.split()):
        done = subprocess.run([*command, *some], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_before_the_first_update_ends_without_a_trace(toy_data, tmp_path, number):
    """At five moments between the reading of the options and the first update."""
    for tenths in (0, 4, 8, 16, 32):
        run = launch(
            *words(toy_data, tmp_path / str(tenths), "--max-steps 100000 --log-every 100000"),
            stderr=subprocess.PIPE,
            text=True,
        )
        while not int(re.search(r"SigCgt:\s(\w+)", status(run.pid))[1], 16) >> 14 & 1:
            time.sleep(0.01)  # until SIGTERM is caught
        time.sleep(tenths / 10)
        run.send_signal(number)
        _, said = run.communicate(timeout=60)
        assert run.returncode == signals.EXIT[number], said
        assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.parametrize(("steps", "code"), [(100_000, 129), (40, 0)])
def test_a_closed_terminal_saves(toy_data, tmp_path, steps, code):
    """The terminal goes, and with it standard output and error; SIGHUP comes, or is ignored."""
    path, run = tmp_path / "run", words(toy_data, tmp_path / "run", f"--max-steps {steps}")
    child, terminal = pty.fork()
    if child == 0:
        if code == 0:  # nohup, disown
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
        os.execv(sys.executable, [sys.executable, "-m", "unitk_cli", *run, "--log-every", "5"])
    while not (path / "log.jsonl").exists() or "loss" not in (path / "log.jsonl").read_text():
        os.read(terminal, 1 << 16)
    os.close(terminal)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == code
    step = json.loads((path / "last/state.json").read_text())["step"]
    assert step >= 5 if code else step == steps


@pytest.mark.slow
def test_a_second_interrupt_keeps_the_checkpoint_that_is_being_written(
    train, tmp_path, monkeypatch
):
    write = saver.write

    def slow(path, snapshot):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)  # the loop waits to save
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        write(path, snapshot)

    monkeypatch.setattr(saver, "write", slow)
    with pytest.raises(KeyboardInterrupt):
        train("--max-steps 9 --save-every 2")
    assert os.readlink(tmp_path / "run/last") == "checkpoints/step-2"
