"""Signals that end a run tidily: the step in progress is finished and saved first."""

from __future__ import annotations

import os
import signal
from types import FrameType, TracebackType
from typing import Any

EXIT: dict[int, int] = {signal.SIGTERM: 143, signal.SIGINT: 130, signal.SIGUSR1: 75}
"""Signal -> exit code; 75 asks a batch system to queue the job again."""


class Signals:
    """While entered, `received` tells which signal came; a second Ctrl-C ends at once."""

    def __init__(self) -> None:
        self.received: int | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        for number in EXIT:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        # a handler may interrupt anything: it notes the signal and prints past all buffers
        self.received = number
        name = signal.Signals(number).name
        os.write(2, f"\n{name}: finishing this update, then saving\n".encode())
        if number == signal.SIGINT:
            signal.signal(signal.SIGINT, signal.default_int_handler)
