"""Where the values of a run are written: log.jsonl always, and loggers chosen by `--writers`.

A sink receives an event, its values by name and its step. A resumed run repeats the events after
its step, so a sink removes later events when it is opened.
"""

from __future__ import annotations

import csv
import importlib.util
import json
import math
import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from unitk import files
from unitk.errors import UsageError
from unitk.foreign import parse_json
from unitk.registry import nearest

LOG = "log.jsonl"
Event = dict[str, Any]
"""An event of a run: its kind (train, valid, panel), its step, and values by name."""


def event(kind: str, step: int, values: Mapping[str, float]) -> Event:
    """An event as a line of log.jsonl: JSON has no NaN, so NaN becomes None."""
    finite = {name: value if math.isfinite(value) else None for name, value in values.items()}
    return {"kind": kind, "step": step, **finite}


class Sink(Protocol):
    """Receives the events of a run."""

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Write an event of kind "train" or "valid"; OSError if it cannot be written."""

    def close(self) -> None:
        """Close the sink; no event follows."""


class JsonLog:
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


class CsvLog:
    """values.csv: a row for each value, which spreadsheets and R read: step, kind, name, value."""

    def __init__(self, folder: Path, step: int) -> None:
        path = folder / "values.csv"
        files.check_plain(path)
        if path.exists():
            with path.open(encoding="utf-8", newline="") as file:
                header, *rows = list(csv.reader(file)) or [[]]
            kept = [row for row in rows if len(row) == 4 and int(row[0]) <= step]
            files.write(path, "".join(",".join(row) + "\n" for row in [header, *kept]))
        new = not path.exists()
        self._file = files.open_plain(path, "a", newline="")
        self._csv = csv.writer(self._file, lineterminator="\n")
        if new:
            self._csv.writerow(["step", "kind", "name", "value"])

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        self._csv.writerows([step, kind, name, value] for name, value in values.items())
        self._file.flush()

    def close(self) -> None:
        self._file.close()


class TensorBoard:
    """Event files in tensorboard/."""

    def __init__(self, folder: Path, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        own = folder / "tensorboard"
        for path in own.glob("*"):
            files.check_plain(path)  # the package opens files by their names
        self._writer: Any = SummaryWriter(str(own), purge_step=step + 1)

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WandB:
    """A run of Weights & Biases with the folder's name; its environment variables configure it.

    Its number is kept in wandb/run-id. For steps that a resumed run repeats, the first values
    remain.
    """

    def __init__(self, folder: Path, step: int) -> None:
        import wandb

        number = folder / "wandb" / "run-id"
        number.parent.mkdir(exist_ok=True)  # a resumed run is the same one
        if not number.exists():
            files.create(number, secrets.token_hex(8))
        name = folder.resolve().name
        own = number.read_text()
        try:
            self._run: Any = wandb.init(dir=str(folder), name=name, id=own, resume="allow")
        except wandb.Error as error:
            reason = str(error).partition("\n")[0]
            raise UsageError(
                f"--writers wandb: {reason} (WANDB_MODE=offline needs no account)"
            ) from error

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()


class Trackio(WandB):
    """A run of trackio with the folder's name, in the project of its environment variables.

    Its runs have the methods of those of Weights & Biases.
    """

    def __init__(self, folder: Path, step: int) -> None:
        import trackio

        project = os.environ.get("TRACKIO_PROJECT", "unitk")
        self._run = trackio.init(project=project, name=folder.resolve().name, resume="allow")


class MLflow:
    """A run of MLflow with the folder's name; its environment variables configure it.

    Its number is kept in mlflow-run-id, so that a resumed run is the same one.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

        number = folder / "mlflow-run-id"
        self._wrong: type[Exception] = MlflowException
        try:
            self._client: Any = MlflowClient()
            if not number.exists():
                name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "Default")
                known = self._client.get_experiment_by_name(name)
                own = known.experiment_id if known else self._client.create_experiment(name)
                run = self._client.create_run(own, run_name=folder.resolve().name)
                files.create(number, run.info.run_id)
        except MlflowException as error:
            raise UsageError(f"--writers mlflow: {str(error).partition(chr(10))[0]}") from error
        self._id = number.read_text()

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        try:
            for name, value in values.items():
                self._client.log_metric(self._id, name, value, step=step)
        except self._wrong as error:
            raise OSError(f"mlflow: {error}") from error

    def close(self) -> None:
        try:
            self._client.set_terminated(self._id)
        except self._wrong as error:
            raise OSError(f"mlflow: {error}") from error


LOGGERS: dict[str, tuple[str | None, Callable[[Path, int], Sink]]] = {
    "csv": (None, CsvLog),
    "tensorboard": ("tensorboard", TensorBoard),
    "wandb": ("wandb", WandB),
    "mlflow": ("mlflow", MLflow),
    "trackio": ("trackio", Trackio),
}
"""Name -> the package it needs, and what it is."""


def choose_loggers(choices: Sequence[str]) -> list[str]:
    """The loggers of `--writers`; `UsageError` if one is unknown or not installed."""
    chosen = list(choices)
    if chosen == ["none"]:
        return []
    if chosen == ["auto"]:
        return ["tensorboard"] if importlib.util.find_spec("tensorboard") else []
    for name in chosen:
        if name not in LOGGERS:
            hint = nearest(name, LOGGERS) or f" (known: {', '.join(LOGGERS)}, none, auto)"
            raise UsageError(f"--writers: there is no writer {name!r}{hint}")
        package = LOGGERS[name][0]
        if package and not importlib.util.find_spec(package):
            raise UsageError(f"--writers {name} needs the package {package}: pip install {package}")
    return chosen


def open_sinks(folder: Path, loggers: Sequence[str], step: int) -> list[Sink]:
    """log.jsonl and the chosen loggers, for a run that starts or resumes after `step`."""
    return [JsonLog(folder, step), *(LOGGERS[name][1](folder, step) for name in loggers)]


def read_events(path: Path) -> list[Event]:
    """The events of a log.jsonl, without an unfinished last line; none if there is no file."""
    if not path.exists():
        return []
    events = []
    with path.open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, start=1):
            if not line.endswith("\n"):  # the process was killed while it wrote
                break
            events.append(parse_json(line, f"{path} line {number}"))
    return events


def validation_at(folder: Path, step: int | None) -> dict[str, float | None]:
    """The values of a run's validation at a step; none if log.jsonl lacks it."""
    values = dict[str, float | None]()
    for logged in read_events(folder / LOG):
        if (logged.pop("kind"), logged.pop("step")) == ("valid", step):
            values |= logged
    return values
