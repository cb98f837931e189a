"""A process that dies ends what waits for it, in one line, at any moment of its life."""

import multiprocessing
import os
import signal
import sys
import time
from contextlib import closing

import pytest

from unitk.data.corpus import encode, preprocess
from unitk.data.corpus.preprocess import Options
from unitk.data.corpus.workers import Worker
from unitk.errors import UnitkError
from unitk.vocab import train
from unitk.vocab.train import train_vocab


def echo(state):
    return lambda *arguments: (len(state), *arguments)


def faulty(_):
    def fail(what):
        if what == "wait":
            time.sleep(60)
        elif isinstance(what, int):
            os.kill(os.getpid(), what)
        elif what == "usage":
            raise UnitkError("in one line")
        else:
            raise KeyError(what)

    return fail


def only_child():
    (child,) = multiprocessing.active_children()
    return child


def test_a_worker_answers_and_raises():
    with closing(Worker("", echo, "four")) as worker:
        assert worker() == (4,) and worker(1, [2]) == (4, 1, [2])
    with closing(Worker("", faulty, None)) as worker:
        with pytest.raises(UnitkError, match="^in one line$"):
            worker("usage")
        with pytest.raises(KeyError) as raised:
            worker("name")
        assert "in fail" in raised.value.__notes__[0]  # where it was raised
    assert not multiprocessing.active_children()


@pytest.mark.parametrize("argv", [10, 10**6])
def test_one_that_dies_as_it_starts_is_not_waited_for(argv, monkeypatch):
    """Neither what it is told nor the command line fits into a pipe that nobody reads."""
    monkeypatch.setattr(sys, "argv", ["x" * argv])
    with closing(Worker("do less", echo, "x" * 10**7)) as worker:
        only_child().kill()
        with pytest.raises(UnitkError, match=r"ended by SIGKILL \(out of memory\?\): do less$"):
            worker("x" * 10**7)
        with pytest.raises(UnitkError, match="SIGKILL"):
            worker()


@pytest.mark.parametrize("name", ["SIGSEGV", "SIGTERM", "SIGKILL"])
def test_one_that_dies_at_work_is_named_by_its_signal(name):
    with closing(Worker("", faulty, None)) as worker:
        with pytest.raises(UnitkError, match=f"a .*process.* {name}"):
            worker(getattr(signal, name))


@pytest.fixture
def text(tmp_path, monkeypatch, toy_vocab):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unitk.data.files.lines.BLOCK", 2000)
    monkeypatch.setattr(encode, "WORTH_A_PROCESS", 1000)
    toy_vocab.save(tmp_path / "vocab")
    (tmp_path / "x.txt").write_text("bada gebu\n" * 4000)
    return Options(
        input=("x.txt",),
        dest=tmp_path / "out",
        vocab=tmp_path / "vocab",
        workers=2,
        documents="line",
    )


@pytest.mark.parametrize("after", [0, 1, 12])
def test_preprocess_leaves_nothing_when_a_worker_dies(text, tmp_path, monkeypatch, after):
    called = []

    def call(self, *arguments):
        called.append(self)
        if len(called) == after + 1:
            self._process.kill()
        return answer(self, *arguments)

    answer = Worker.__call__
    monkeypatch.setattr(Worker, "__call__", call)
    with pytest.raises(UnitkError, match=r"ended by SIGKILL .*: try fewer --workers"):
        preprocess.preprocess(text)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["vocab", "x.txt"]
    assert not multiprocessing.active_children()


def test_a_vocabulary_trained_apart_is_the_same(monkeypatch):
    lines = [f"{a}{b} {b}{a} {a}{a}" for a in ("ba", "ge", "do") for b in ("ku", "ri", "no")] * 9
    monkeypatch.setattr(preprocess, "WORTH_A_PROCESS", 10)
    monkeypatch.setattr(preprocess, "PASSED", 7)
    both = [
        train_vocab(lines, 30, fit=fit) for fit in (train.fit_pieces, preprocess.fit_in_process)
    ]
    assert both[0].hash == both[1].hash
    with pytest.raises(UnitkError, match="--vocab-size 4000 .*large.*text"):
        train_vocab(lines, 4000, fit=preprocess.fit_in_process)
    assert not multiprocessing.active_children()


def test_ctrl_c_ends_the_training_of_a_vocabulary(monkeypatch):
    lines = [f"{i * 7919 % 100_003} {i * 104_729 % 99_991} and more" for i in range(60_000)]
    monkeypatch.setattr(preprocess, "_begin_fit", lambda: None)

    def interrupt(self, *arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(Worker, "__call__", interrupt)
    with pytest.raises(KeyboardInterrupt):
        train_vocab(lines, 3000, fit=preprocess.fit_in_process)
    assert not multiprocessing.active_children()
