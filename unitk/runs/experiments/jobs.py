"""Runs of one experiment: measured before they are trained, and trained some at a time.

`unitk scale` and `unitk mix` are made of them. Each is an ordinary run, which goes on after a stop.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from unitk.errors import NonFiniteError, RanksError, UnitkError, require
from unitk.runs.experiments.sweep import Trial, table_lines
from unitk.training.reporting.log import show_log
from unitk.training.start import parse_train, prepare

MINUTE = 60.0
"""Seconds in which a plan is measured."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class TrainingJob:
    """A run of an experiment."""

    task: str
    name: str
    tokens: int
    updates: int
    words: tuple[str, ...]
    """The options of its training."""

    @property
    def trial(self) -> Trial:
        """The run as it stands, whose options have passed all checks."""
        return Trial(self.name, {}, prepare(parse_train(self.words)))


def without_options(words: Sequence[str], *names: str) -> list[str]:
    """The words of a training without some options and their values."""
    kept = list[str]()
    inside = False
    for word in words:
        if word.startswith("--"):
            inside = word.partition("=")[0] in names
        if not inside:
            kept.append(word)
    return kept


def time_jobs(jobs: Mapping[Hashable, TrainingJob]) -> dict[Hashable, tuple[float, int]]:
    """The seconds of an update and the bytes of each job, from some updates; smallest jobs first.

    A process remembers the most memory that it ever had, hence the order. Nothing is written: a
    trainer writes its first file with its first checkpoint.
    """
    from unitk.runs.plan import peak, time_updates
    from unitk.training.loop import Trainer

    times: dict[Hashable, tuple[float, int]] = {}
    for key, job in jobs.items():
        trainer = Trainer(job.trial.start)
        try:
            seconds, _ = time_updates(trainer, MINUTE / len(jobs))
            times[key] = seconds, peak(trainer.device)
        finally:
            trainer.ranks.leave()
    return times


def check_memory(plan: Sequence[dict[str, Any]], at_a_time: int, device: str) -> None:
    """Raise a UsageError where the largest runs do not fit the memory side by side."""
    from unitk.training.device import choose_device, free_memory

    free = free_memory(choose_device(device))
    # the largest runs may meet
    sizes = sorted((row["bytes"] for row in plan), reverse=True)[:at_a_time]
    fits = sum(sizes) <= free
    require(
        fits,
        f"--jobs {at_a_time} needs {sum(sizes) / 1e9:.2g} GB of memory, but {free / 1e9:.2g} GB "
        "are free",
    )


def plan_lines(plan: Sequence[dict[str, Any]], at_a_time: int) -> list[str]:
    """A plan in lines: each row has its "seconds" and "bytes" beside what names it."""
    rows = [
        {
            **{key: value for key, value in row.items() if key not in ("seconds", "bytes")},
            "time": time_text(row["seconds"]),
            "memory": f"{row['bytes'] / 1e9:.2g} GB",
        }
        for row in plan
    ]
    total = time_text(sum(row["seconds"] for row in plan) / at_a_time)
    return [*table_lines(rows), f"all: about {total}, {at_a_time} at a time"]


def time_text(seconds: float) -> str:
    """A time in words; what is less than a minute, in seconds."""
    from unitk.training.reporting.report import duration_text

    return (
        f"{max(seconds, 1):.0f} s"
        if seconds < 60
        else duration_text(seconds).removeprefix("about ")
    )


def markdown_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Rows as a table to paste into a page; numbers are aligned to the right."""
    cells = [[markdown_cell(value) for value in row.values()] for row in rows]
    sides = ["---" if isinstance(value, str) else "---:" for value in rows[0].values()]
    return [f"| {' | '.join(row)} |" for row in ([*rows[0]], sides, *cells)]


def markdown_cell(value: Any) -> str:
    """A value as a cell."""
    if isinstance(value, str) or value is None:
        return value or ""
    return f"{value:.4f}" if isinstance(value, float) else f"{value:,}"


def train_all(jobs: Sequence[TrainingJob], at_a_time: int) -> None:
    """Train what is not trained yet; a run whose loss is not finite is left as it is."""
    left = [job for job in jobs if not job.trial.finished]
    if at_a_time == 1 or len(left) < 2:
        for job in left:
            train_job(job)
        return
    # the longest come first, so that none is left alone at the end
    waiting = sorted(left, key=lambda job: job.tokens)
    running = list[_Trainer]()
    try:
        while waiting or running:
            while waiting and len(running) < at_a_time:
                running.append(_Trainer(waiting.pop()))
            wait([one.process.sentinel for one in running])
            for over in [one for one in running if one.process.exitcode is not None]:
                running.remove(over)
                over.check()
    finally:  # a signal, or a run that failed: the others save what they have
        for one in running:
            one.end()
        for one in running:
            one.process.join()


class _Trainer:
    """A process that trains one run; SIGTERM, or the end of this process, has it save and end.

    Ctrl-C in a terminal reaches all processes. It is for this one, which ends the others.
    """

    def __init__(self, job: TrainingJob) -> None:
        # spawned, because torch's threads do not survive a fork
        context = multiprocessing.get_context("spawn")
        self.answer, told = context.Pipe(duplex=False)
        # a daemon, which Python ends at its exit: a signal may come before anybody knows of it
        self.process = context.Process(target=_work, args=(job, told), daemon=True)
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])  # the process begins with it
        try:
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
            told.close()  # or the end of the process would not end the pipe

    def end(self) -> None:
        """Have the run saved and the process end, also if it is stopped (SIGSTOP)."""
        self.process.terminate()
        if self.process.exitcode is None and self.process.pid is not None:
            os.kill(self.process.pid, signal.SIGCONT)

    def check(self) -> None:
        """Raise what ended the run early, once the process is over."""
        code = self.process.exitcode
        try:
            raise self.answer.recv()
        except EOFError:
            why = ", perhaps for want of memory: lower --jobs" * (code == -signal.SIGKILL)
            if code:
                raise RanksError(
                    f"one of --jobs was ended (exit code {code}){why}; the same command goes on"
                ) from None


def _work(job: TrainingJob, to_parent: Connection) -> None:
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:  # a parent that is killed tells nobody
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=follow, daemon=True).start()
    try:
        train_job(job)
    except UnitkError as error:
        to_parent.send(error)


def train_job(job: TrainingJob) -> None:
    """Train a run to its end."""
    from unitk.training.loop import train

    show_log()
    log.info("%s: %s", job.task, job.name)
    try:
        train(job.trial.start)
    except NonFiniteError as error:
        log.warning("%s: %s", job.name, error)
