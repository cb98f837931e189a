"""Signals that end a run tidily: the step in progress is finished and saved first."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from unitk.errors import REPORT

CODES = {"SIGTERM": 143, "SIGINT": 130, "SIGHUP": 129, "SIGUSR1": 75}
"""Exit codes; 75 asks a batch system to queue the job again. Not every system has all of them."""
EXIT: dict[int, int] = {
    signum: CODES[signum.name] for signum in signal.Signals if signum.name in CODES
}


class Signals:
    """Inside this context, `received` is the signal that came (0: none).

    A second Ctrl-C ends at once. With `saves` off, as long as there is nothing to save, every
    signal ends the process. Outside the main thread no signal is received.
    """

    def __init__(self, saves: bool = True) -> None:
        self.received = 0
        self.saves = saves
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is not threading.main_thread():
            return self  # no other may set handlers
        for number in EXIT:
            if signal.getsignal(number) != signal.SIG_IGN or number == signal.SIGINT:  # nohup
                self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def suspend(self) -> Iterator[None]:
        """A context in which signals act as they did before."""
        self.__exit__()
        try:
            yield
        finally:
            self.__enter__()

    def _note(self, number: int, frame: FrameType | None) -> None:
        # a handler may interrupt anything: it notes the signal and prints past all buffers
        self.received = number
        name = signal.Signals(number).name
        what = "finishing this update, then saving" if self.saves else "nothing is trained yet"
        again = "; once more ends without saving" if number == signal.SIGINT and self.saves else ""
        try:
            # who passed it on has said so; of a terminal that is gone only writing to it tells
            if REPORT not in os.environ or name == "SIGHUP":
                os.write(2, f"\n{name}: {what}{again}\n".encode())
        except OSError:  # the terminal is gone: what is printed from here on goes nowhere
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
        if not self.saves:
            os._exit(EXIT[number])
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
