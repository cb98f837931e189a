"""Loggers of `--writers`: tables for spreadsheets, and the trackers of other systems."""

from __future__ import annotations

import csv
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from unitk import files
from unitk.errors import UsageError
from unitk.registry import register
from unitk.training.reporting.sinks import Sink


@register("writer", "csv")
class CsvLog(Sink):
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


@register("writer", "tensorboard")
class TensorBoard(Sink):
    """Event files in tensorboard/."""

    package = "tensorboard"

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


@register("writer", "wandb")
class WandB(Sink):
    """A run of Weights & Biases with the folder's name; its environment variables configure it.

    Its number is kept in wandb/run-id. For steps that a resumed run repeats, the first values
    remain.
    """

    package = "wandb"

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


@register("writer", "trackio")
class Trackio(WandB):
    """A run of trackio with the folder's name, in the project of its environment variables.

    Its runs have the methods of those of Weights & Biases.
    """

    package = "trackio"

    def __init__(self, folder: Path, step: int) -> None:
        import trackio

        project = os.environ.get("TRACKIO_PROJECT", "unitk")
        self._run = trackio.init(project=project, name=folder.resolve().name, resume="allow")


@register("writer", "mlflow")
class MLflow(Sink):
    """A run of MLflow with the folder's name; its environment variables configure it.

    Its number is kept in mlflow-run-id, so that a resumed run is the same one.
    """

    package = "mlflow"

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
