"""What a run says: log.jsonl, TensorBoard where it is installed, and the terminal (stderr).

A line of log.jsonl is an event: its kind ("train" or "valid"), the step, and values by name, such
as "train/loss", "train/lm", "valid/lm/ppl", "lr", "gnorm", "tokens/s".
"""

from __future__ import annotations

import importlib.util
import json
import logging
import math
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from unitk.errors import DataError

log = logging.getLogger(__name__)
console = Console(stderr=True)


class Terminal(logging.Handler):
    """Prints the log of unitk above the progress line."""

    def emit(self, record: logging.LogRecord) -> None:
        style = "yellow" if record.levelno >= logging.WARNING else None
        console.print(
            record.getMessage(), style=style, markup=False, highlight=False, soft_wrap=True
        )


def show_log() -> None:
    """Send what unitk logs to the terminal; a second call changes nothing."""
    logger = logging.getLogger("unitk")
    logger.setLevel(logging.INFO)
    if not any(isinstance(handler, Terminal) for handler in logger.handlers):
        logger.addHandler(Terminal())


class Journal:
    """Writes the events of a run; where the disk refuses them, it says so once and goes on."""

    def __init__(self, folder: Path, *, step: int, total: int | None) -> None:
        """Events after `step` are removed first: a resumed run repeats them."""
        self.total = total
        self._trouble = False
        path = folder / "log.jsonl"
        truncate(path, step)
        self._file: IO[str] = path.open("a", encoding="utf-8")
        self._board: Any = None
        if importlib.util.find_spec("tensorboard"):
            from torch.utils.tensorboard import SummaryWriter

            self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=step + 1)
        self._progress = Progress(
            MofNCompleteColumn(),
            BarColumn(bar_width=8),
            TimeRemainingColumn(),
            TextColumn("{task.description}"),
            console=console,
            refresh_per_second=2,
            transient=True,
            disable=not console.is_terminal,
        )
        self._bar = self._progress.add_task("training", total=total, completed=step)

    def __enter__(self) -> Journal:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self._attempt(self._file.close)
        if self._board is not None:
            self._attempt(self._board.close)

    def advance(self, step: int) -> None:
        """Move the progress line."""
        self._progress.update(self._bar, completed=step)

    def event(
        self, kind: str, step: int, values: Mapping[str, float], line: str, left: str = ""
    ) -> None:
        """Record values; `line` tells them to a person, `left` how long the run will take."""
        finite = {k: v if math.isfinite(v) else None for k, v in values.items()}
        text = json.dumps({"kind": kind, "step": step, **finite})
        self._attempt(lambda: self._file.write(text + "\n"))
        self._attempt(self._file.flush)
        if self._board is not None:
            for name, value in values.items():
                self._attempt(lambda n=name, v=value: self._board.add_scalar(n, v, step))
        if kind == "train" and console.is_terminal:
            self._progress.update(self._bar, description=line)
        else:
            place = f"{step:,}" + (f"/{self.total:,}" if self.total else "")
            log.info("step %s  %s%s", place, line, left)

    def _attempt(self, write: Any) -> None:
        try:
            write()
        except OSError as error:
            if not self._trouble:
                log.warning("the log cannot be written: %s; training goes on", error)
            self._trouble = True


def truncate(path: Path, step: int) -> None:
    """Keep the events up to a step; a line cut short by a crash goes too."""
    if not path.exists():
        return
    kept = [event for event in read_events(path) if event["step"] <= step]
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text("".join(json.dumps(event) + "\n" for event in kept), encoding="utf-8")
    temporary.replace(path)


def read_events(path: Path) -> list[dict[str, Any]]:
    """The events of a log.jsonl; an unfinished last line is left out."""
    found = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n"):
                break
            try:
                found.append(json.loads(line))
            except ValueError as error:
                raise DataError(f"{path} line {number} is no JSON: {error}") from error
    return found
