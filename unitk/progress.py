"""Progress: who is told of it, and a bar on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import IO, Any, cast

from unitk.errors import QUIET, say, shows_progress

LINE = 60.0
"""Seconds between the lines of a file."""

Report = Callable[[int], None]
"""Receives how many items have just been finished."""


def no_report(done: float) -> None:
    """Show nothing of what has been finished."""


class Lossy:
    """Standard error that loses what it cannot write: work goes on without its terminal."""

    def __getattr__(self, name: str) -> Any:
        # where a bar is shown, rich's own stream stands in its place
        return getattr(getattr(sys.stderr, "rich_proxied_file", sys.stderr), name)

    def write(self, text: str) -> int:
        with suppress(OSError):
            self.__getattr__("write")(text)
        return len(text)

    def flush(self) -> None:
        with suppress(OSError):
            self.__getattr__("flush")()


@contextmanager
def progress(
    total: float | None, done: Any = 0, shown: bool = True, unit: str = "sentences"
) -> Iterator[Callable[[float], None]]:
    """A bar with `unit` per second and the time left on standard error, if it is a terminal.

    A file gets a line every minute. `done` of them are finished at the start; without a `total`, no
    time left is shown.
    """
    began = perf_counter()
    if not shown or not shows_progress():
        due = LINE

        def count(more: float) -> None:
            nonlocal due, done
            done += more
            seconds = perf_counter() - began
            if seconds > due and shown and QUIET not in os.environ:
                due = seconds + LINE
                say(
                    f"{done:,.0f}{f' of {total:,.0f}' if total else ''} {unit} "
                    f"after {seconds / 60:.0f} min"
                )

        yield count
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    rate = TextColumn("{task.fields[rate]:.1f} " + f"{unit}/s")
    columns = BarColumn(), MofNCompleteColumn(), rate, Remaining()
    # standard output is for answers, which are written meanwhile
    console = Console(file=cast(IO[str], Lossy()))
    with Progress(*columns, console=console, redirect_stdout=False) as bar:
        job = bar.add_task("", total=total, completed=done, rate=0.0)

        def report(more: float) -> None:
            task = bar.tasks[job]
            # the first report may come before the clock has moved
            seconds = perf_counter() - began + 1e-9
            bar.update(job, advance=more, rate=(task.completed + more - done) / seconds)

        yield report
