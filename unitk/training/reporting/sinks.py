"""Where the values of a run are written: log.jsonl always, and loggers chosen by `--writers`.

A sink receives an event, its values by name and its step. A resumed run repeats the events after
its step, so a sink removes later events when it is opened. Loggers are registered writers.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from unitk import files, registry
from unitk.errors import DataError, UsageError
from unitk.foreign import parse_json

LOG = "log.jsonl"
VALUE = float | int | None
Event = dict[str, Any]
"""An event of a run: its kind (train, valid, panel), its step, and values by name."""


def event(kind: str, step: int, values: Mapping[str, float]) -> Event:
    """An event as a line of log.jsonl: JSON has no NaN, so NaN becomes None."""
    finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
    return {"kind": kind, "step": step, **finite}


class Sink(ABC):
    """Receives the events of a run in a folder, from the one after a step on."""

    package: ClassVar[str] = ""
    """The package that it needs, if any."""

    @abstractmethod
    def __init__(self, folder: Path, step: int) -> None:
        """Open the sink of a run that starts or resumes after a step."""

    @abstractmethod
    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Write an event of kind "train" or "valid"; OSError if it cannot be written."""

    @abstractmethod
    def close(self) -> None:
        """Close the sink; no event follows."""


class JsonLog(Sink):
    """log.jsonl: an event a line, with its kind, its step and its values."""

    def __init__(self, folder: Path, step: int) -> None:
        path = folder / LOG
        files.check_plain(path)
        if path.exists():
            kept = [record for record in read_events(path) if record["step"] <= step]
            files.write(path, "".join(json.dumps(record) + "\n" for record in kept))
        self._file = files.open_plain(path, "a")

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        self._file.write(json.dumps(event(kind, step, values)) + "\n")
        self._file.flush()
        if not os.fstat(self._file.fileno()).st_nlink:  # writing to a removed file raises nothing
            raise OSError(f"{LOG} was removed")

    def close(self) -> None:
        self._file.close()


def choose_loggers(choices: Sequence[str]) -> list[str]:
    """The loggers of `--writers`; `UsageError` if one is unknown or not installed."""
    chosen = list(choices)
    if chosen == ["none"]:
        return []
    if chosen == ["auto"]:
        return ["tensorboard"] if importlib.util.find_spec("tensorboard") else []
    known = [*registry.names("writer"), "none", "auto"]
    for name in chosen:
        package = registry.get("writer", name, "--writers", known).package
        if package and not importlib.util.find_spec(package):
            raise UsageError(f"--writers {name} needs the package {package}: pip install {package}")
    return chosen


def open_sinks(folder: Path, loggers: Sequence[str], step: int) -> list[Sink]:
    """log.jsonl and the chosen loggers, for a run that starts or resumes after `step`."""
    kinds = [JsonLog, *(registry.get("writer", name) for name in loggers)]
    return [kind(folder, step) for kind in kinds]


def read_events(path: Path) -> list[Event]:
    """The events of a log.jsonl, without an unfinished last line; none if there is no file."""
    if not path.exists():
        return []
    events = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n"):  # the process was killed while it wrote
                break
            where = f"{path} line {number}"
            events.append(check_event(parse_json(line, where), where))
    return events


def check_event(record: Any, where: str) -> Event:
    """What a line of log.jsonl holds; `DataError` if it is no event."""
    good = isinstance(record, dict) and isinstance(record.get("kind"), str)
    good = good and isinstance(record.get("step"), int)
    if good and all(isinstance(record[key], VALUE) for key in record.keys() - {"kind"}):
        return {**record}
    raise DataError(f"{where}: no event, which has a kind, a step, and numbers by their names")


def validation_at(folder: Path, step: int | None) -> dict[str, float | None]:
    """The values of a run's validation at a step; none if log.jsonl lacks it."""
    values = dict[str, float | None]()
    for logged in read_events(folder / LOG):
        if (logged.pop("kind"), logged.pop("step")) == ("valid", step):
            values |= logged
    return values
