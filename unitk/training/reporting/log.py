"""The log of a run: events for its sinks, and lines for the terminal (stderr).

Values have names such as "train/loss", "train/lm", "valid/lm/ppl", "lr", "gnorm", "tokens/s".
"""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import IO, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from unitk.errors import QUIET, printable, refusal, shows_progress
from unitk.progress import Lossy
from unitk.training.reporting.sinks import Event, Sink, event

log = logging.getLogger(__name__)
SOON, LONGEST = 5.0, 600.0
"""Seconds of training until something is shown; and those without a line at most, later."""
console = Console(file=cast(IO[str], Lossy()), emoji=False)  # the name of a head has colons


class Terminal(logging.Handler):
    """Prints the log of unitk above the progress line."""

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else None
        text = printable(record.getMessage())
        console.print(text, style=style, markup=False, highlight=False, soft_wrap=True)


def show_log(level: int = logging.INFO) -> None:
    """Show unitk's log in the terminal; a second call changes only the level."""
    logger = logging.getLogger("unitk")
    logger.setLevel(max(level, logging.WARNING) if QUIET in os.environ else level)
    if not any(isinstance(handler, Terminal) for handler in logger.handlers):
        logger.addHandler(Terminal())


class Journal:
    """Logs the events of a run; if they cannot be written, it warns once and continues."""

    def __init__(
        self, sinks: Sequence[Sink], *, step: int, total: int | None, shown: bool = True
    ) -> None:
        self.sinks = sinks
        self.total = total
        self._events: list[Event] = []  # that nobody has taken yet
        self._trouble = False
        self._shown = shown
        self._pause = SOON
        self._last = -1  # the step of the last line
        self._due = self._announcement = math.inf
        self._progress = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=8),
            TextColumn("{task.description}"),
            console=console,
            refresh_per_second=2,
            transient=True,
            disable=not (shown and shows_progress()),
        )
        self._bar = self._progress.add_task("training", total=total, completed=step)

    def __enter__(self) -> Journal:
        self._progress.start()
        self._due = self._announcement = time.monotonic() + SOON
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        for sink in self.sinks:
            self._attempt(sink.close)

    def advance(self, step: int, lines: Callable[[], tuple[str, str]]) -> None:
        """Move the progress line.

        Where events are far apart, the first of `lines` is shown between them, at growing distances
        in time. The other is shown once, when it is known how fast updates are.
        """
        self._progress.update(self._bar, completed=step)
        now = time.monotonic()
        waits, early = now >= self._due, now >= self._announcement
        if not self._shown or not (waits or early):
            return
        line, announcement = lines()
        if waits:
            self._show(step, line)
            self._pause = min(2 * self._pause, LONGEST)
            self._due = now + self._pause
        if early:
            self._announcement = math.inf
            if announcement:
                log.info("%s", announcement)

    def show(self, text: str) -> None:
        """Show beside the progress bar what is being done."""
        self._progress.update(self._bar, description=text)

    def event(self, kind: str, step: int, values: Mapping[str, float], line: str) -> None:
        """Record values; `line` is shown to the user."""
        self._events.append(event(kind, step, values))
        for sink in self.sinks:
            self._attempt(partial(sink.write, kind, step, values))
        if kind == "train":
            self._due = time.monotonic() + self._pause
            if step != self._last:  # `advance` may have shown it already
                self._show(step, line)
        else:
            self._print(step, line)

    def _show(self, step: int, line: str) -> None:
        self._last = step
        if shows_progress():
            self.show(line)  # beside the bar
        else:
            self._print(step, line)

    def _print(self, step: int, line: str) -> None:
        progress = f"{step:,}" + (f"/{self.total:,}" if self.total else "")
        for part in f"step {progress}  {line}".split("\n"):  # a line end within would be escaped
            log.info("%s", part)

    def take_events(self) -> Iterator[Event]:
        """The events since the last call."""
        events = self._events
        self._events = []
        yield from events

    def _attempt(self, write: Callable[[], None]) -> None:
        try:
            write()
        except OSError as error:
            if not self._trouble:
                log.warning("the log cannot be written: %s; training continues", refusal(error))
            self._trouble = True  # once: a full disk refuses every line
