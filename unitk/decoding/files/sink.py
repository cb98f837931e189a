"""The file of --output of `unitk generate` and `predict`, which keeps its lines if it is killed.

    NAME             appears, or is replaced, when all inputs are done
    .NAME.partial    the lines so far
    .NAME.progress   how many inputs and bytes of them are on disk, and what they were made from

`--resume` truncates the partial file to the recorded bytes and continues there.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import IO, Any

from unitk import files
from unitk.decoding.files.outputs import escape_controls
from unitk.errors import DataError, require
from unitk.files import open_plain
from unitk.foreign import read_json

ANEW = "without --resume it starts anew"
log = logging.getLogger(__name__)


def is_finished(path: Path) -> bool:
    """Whether the output is finished, so that nothing is left to resume; logs it if so."""
    whole = not all(map(Path.exists, partial_paths(path)))
    done = path.exists() and path.stat().st_size > 0 and whole
    if done:
        log.warning("--resume: %s is finished; --overwrite would replace it", path)
    return done


def partial_paths(path: Path) -> tuple[Path, Path]:
    """The paths of the .partial and the .progress file of an output."""
    path = files.real_path(path)
    return path.with_name(f".{path.name}.partial"), path.with_name(f".{path.name}.progress")


class Printed:
    """Standard output with the interface of an `OutputFile`."""

    done = 0

    def add(self, lines: Iterable[str], inputs: int) -> None:
        """Print the lines at once."""
        print("".join(escape_controls(line) + "\n" for line in lines), end="", flush=True)

    def close(self) -> None:
        """Nothing is left to do."""


class OutputFile:
    """An output file; `made_from` is all that its lines depend on, as text by option."""

    def __init__(self, path: Path, made_from: dict[str, str], resume: bool) -> None:
        self.path = path
        self.made_from = made_from
        self.done = 0  # inputs whose lines are written
        self.partial, self.progress = partial_paths(path)
        for file in (self.partial, self.progress):
            files.check_plain(file)
        self.size = 0
        record = self._record()
        if record and resume:
            self._check(record)
            self.done, self.size = record["inputs"], record["bytes"]
        elif record:
            done = record["inputs"]
            log.warning("%s starts anew; --resume would continue after input %d", path, done)

    def _record(self) -> dict[str, Any]:
        """The content of .progress; empty if there is nothing to continue."""
        if not self.progress.exists():
            return {}
        try:
            record = read_json(self.progress)
        except DataError as error:
            raise DataError(f"{error}; remove it") from error
        kinds = {"inputs": int, "bytes": int, "made_from": dict}
        if not all(isinstance(record.get(name), kind) for name, kind in kinds.items()):
            raise DataError(f"{self.progress} is damaged; remove it")
        return record if self.partial.exists() else {}

    def _check(self, record: dict[str, Any]) -> None:
        before = record["made_from"]
        for name in self.made_from | before:
            old = before.get(name)
            new = self.made_from.get(name)
            require(
                old == new,
                f"--resume: {self.path} was begun with --{name} {old}, not {new}; {ANEW}",
            )
        if self.partial.stat().st_size < record["bytes"]:
            raise DataError(f"--resume: {self.partial} lacks lines; {ANEW}")

    def add(self, lines: Iterable[str], inputs: int) -> None:
        """Write the lines of this many further inputs to disk, and record how many there are."""
        try:
            data = "".join(line + "\n" for line in lines).encode()
            self.file.write(data)
            self.file.flush()
            os.fsync(self.file.fileno())
            self.size += len(data)
            self.done += inputs
            record = {"inputs": self.done, "bytes": self.size, "made_from": self.made_from}
            files.write(self.progress, json.dumps(record, indent=1, ensure_ascii=False))
        except OSError as error:
            raise self._fault(error) from error

    @cached_property
    def file(self) -> IO[bytes]:
        """The partial file, which is opened where the next line begins."""
        if not self.size:  # what it says would be of other lines
            self.progress.unlink(missing_ok=True)
        file = open_plain(self.partial, "r+b") if self.size else open_plain(self.partial, "wb")
        file.truncate(self.size)
        file.seek(self.size)
        return file

    def close(self) -> None:
        """Rename the finished file to its final name."""
        try:
            self.file.close()  # opened here if a kill came between the last line and this
            files.finish(self.partial, self.path)
            self.progress.unlink()
        except OSError as error:
            raise self._fault(error) from error

    def _fault(self, error: OSError) -> DataError:
        return DataError(f"--output {self.path}: {error.strerror}")
