"""`unitk train`: pre-train or fine-tune a model."""

from __future__ import annotations

import logging
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from unitk import registry
from unitk.api.verb import verb
from unitk.errors import REPORT, RanksError, UsageError, require
from unitk.registry import register
from unitk.training.config import LAUNCHER, MEETING, TrainConfig, is_launched, process_ranks
from unitk.training.signals import EXIT, Signals
from unitk.training.start import parse_train, prepare

POLL, GRACE = 0.05, 3.0
"""Seconds between two looks at the processes, and until those are ended that outlive another."""
LEAST = 200e6
"""Bytes that a process needs before it has a model."""
LOOPBACK = {"linux": "lo", "darwin": "lo0"}
REPORTED = "report-{}"
log = logging.getLogger(__name__)


@register("verb", "train")
@verb(TrainConfig, parses=True, cure="lower --max-tokens, or choose a smaller --arch")
def run(argv: Sequence[str]) -> None:
    """Check all options, then import torch and train, in one process or in several."""
    with Signals(saves=False):
        parsed = parse_train(argv)
        from unitk.training.reporting.log import show_log

        show_log(logging.INFO if process_ranks().rank == 0 else logging.ERROR)
        if parsed.main.seeds and not parsed.main.dry_run:
            registry.get("measure", "seeds")(parsed)
            return
        several = parsed.main.nproc > 1 and not is_launched()
        if several:
            check_processes(parsed.main.nproc)
        start = prepare(parsed)
        if parsed.main.dry_run and not several:
            registry.get("measure", "plan")(start)
        elif several:
            launch(parsed.main.nproc, argv, parsed.main.rank_timeout)
        else:
            from unitk.training import loop

            loop.train(start)


def launch(processes: int, argv: Sequence[str], timeout: float) -> None:
    """Run `unitk train ARGV` in this many processes of this machine.

    They meet in a folder that only their user can read, and speak over the loopback interface.
    Exits with the code of the process that failed, whose message is printed, or that of the signal
    received, which is passed on. `timeout` is how many seconds the processes get to write the
    checkpoint and exit before they are killed.
    """
    # -m would let files of the working directory take the place of modules
    own = [] if sys.path[0] == os.getcwd() else ["-P"]
    command = [sys.executable, *own, "-m", "unitk_cli", "train", *argv]
    children: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="unitk_") as name, received_signals() as received:
        try:
            for rank in range(processes):
                if not received:
                    env = os.environ | variables(rank, processes, Path(name))
                    # Ctrl-C in a terminal reaches this process only, which passes it on
                    children.append(subprocess.Popen(command, env=env, start_new_session=True))
            codes = watch_processes(children, received, timeout)
        except OSError as error:
            raise UsageError(f"--nproc {processes}: {error.strerror or error}") from error
        finally:
            for child in children:
                child.kill()  # of those that are over, nothing is left to kill
                child.wait()
        conclude(codes, received, Path(name))


def check_processes(processes: int) -> None:
    """Refuse more processes than fit into memory, and warn of more than there are cores."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    require(
        processes * LEAST < memory,
        f"--nproc {processes} needs more than {processes * LEAST / 1e9:,.0f} GB of memory, but "
        f"this machine has {memory / 1e9:,.0f} GB",
    )
    own = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if own else os.cpu_count() or 1
    if processes > cores:
        log.warning("--nproc %d: the processes wait for each other's cores (%d)", processes, cores)


def variables(rank: int, processes: int, folder: Path) -> dict[str, str]:
    """The environment variables of a rank, with torchrun's names where it has one."""
    ranks = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes}
    environment = {name: str(number) for name, number in ranks.items()}
    environment |= {
        "LOCAL_WORLD_SIZE": str(processes),
        MEETING: str(folder),
        LAUNCHER: str(os.getpid()),
        REPORT: str(folder / REPORTED.format(rank)),
    }
    if "OMP_NUM_THREADS" not in os.environ:
        environment["OMP_NUM_THREADS"] = "1"  # as torchrun sets it
    if interface := LOOPBACK.get(sys.platform):
        environment |= {"GLOO_SOCKET_IFNAME": interface, "NCCL_SOCKET_IFNAME": interface}
    return environment


@contextmanager
def received_signals() -> Iterator[list[int]]:
    """A context with the list of signals that have come in it; none ends the process."""
    received: list[int] = []
    # under nohup some are ignored
    heeded = [number for number in EXIT if signal.getsignal(number) != signal.SIG_IGN]
    before = {
        number: signal.signal(number, lambda signum, _: received.append(signum))
        for number in heeded
    }
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def watch_processes(
    children: Sequence[subprocess.Popen[bytes]], received: Sequence[int], timeout: float
) -> dict[int, int]:
    """Wait until all processes are over; returns their codes by rank, in the order of their ends.

    Signals are passed on. If a process fails, the others are ended, whose codes are not returned.
    After either, those that still run are killed when `timeout` seconds are over.
    """
    running = dict(enumerate(children))
    codes = dict[int, int]()
    passed_on = 0  # signals passed on
    end = math.inf
    limit = math.inf  # the time to kill
    while running:
        time.sleep(POLL)
        now = time.monotonic()
        for rank, child in [*running.items()]:
            if (code := child.poll()) is not None:
                del running[rank]
                if passed_on or limit == math.inf:
                    codes[rank] = code
                if code:
                    end = min(end, now + GRACE)
        signals = received[passed_on:]
        passed_on = len(received)
        for number in signals:
            text = f"\n{signal.Signals(number).name}: passed on to {len(running)} processes"
            with suppress(OSError):  # the terminal may be gone
                print(text, file=sys.stderr, flush=True)
        if not signals and now > end and limit == math.inf:
            signals = [signal.SIGTERM]
        for child in running.values():
            for number in signals:
                child.send_signal(number)
            if signals:
                child.send_signal(signal.SIGCONT)  # it may be stopped (SIGSTOP)
            if now > limit:
                child.kill()
        if signals:
            limit = now + timeout
    return codes


def conclude(codes: dict[int, int], received: Sequence[int], folder: Path) -> None:
    """Print the message of the process that failed first, and exit with its code.

    If none failed, exit with the code of the first signal, or return.
    """
    fine = {0, *(EXIT[number] for number in received), *(-number for number in received)}
    failed = [(rank, code) for rank, code in codes.items() if code not in fine]
    # what another process says of one that is gone is not the cause
    causes = [entry for entry in failed if entry[1] != RanksError.code] or failed
    if causes:
        rank, code = causes[0]
        report = folder / REPORTED.format(rank)
        if report.exists():
            print(report.read_text(encoding="utf-8"), end="", file=sys.stderr)
        elif code < 0:
            hint = " (out of memory?)" if -code == signal.SIGKILL else ""
            name = signal.Signals(-code).name
            print(f"unitk train: rank {rank} was ended by {name}{hint}", file=sys.stderr)
        raise SystemExit(code if code > 0 else 128 - code)
    if received:
        raise SystemExit(EXIT[received[0]])
