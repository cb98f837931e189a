"""A run on disk: checkpoints that are whole or not there at all. Nothing here needs torch.

    RUN/README.md  config.yaml  log.jsonl
    RUN/last -> checkpoints/step-200  best -> checkpoints/step-150
    RUN/checkpoints/step-150/  step-200/     each with manifest.json: size and SHA-256 of every file

A checkpoint is written to a temporary folder beside them, synced and renamed, so a process that is
killed leaves at most a temporary folder, which the next start removes. Nothing trusts a name alone:
a checkpoint is good when its files are what the manifest says.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import logging
import os
import shutil
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from unitk.errors import CheckpointError, UsageError

MANIFEST = "manifest.json"
TEMPORARY = ".tmp-"
DAMAGED = "damaged-"
LOCK = ".lock"
CONFIG = "config.yaml"

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunFolder:
    """The folder given as `--save-dir`."""

    path: Path

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def check(self, resume: bool) -> None:
        """Refuse a used folder without `--resume`, and a place that cannot be written to."""
        marks = (CONFIG, "log.jsonl", "checkpoints")
        if not resume and any((self.path / mark).exists() for mark in marks):
            raise UsageError(
                f"--save-dir {self.path} holds a run: --resume continues it, otherwise name another"
            )
        there = self.path.absolute()
        while not there.exists():
            there = there.parent
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            reason = "no permission" if there.is_dir() else "not a folder"
            raise UsageError(f"--save-dir {self.path} cannot be written to: {there}: {reason}")

    def create(self, config: str) -> None:
        """Make the folder with its config.yaml; remove what a killed process left half-written."""
        self.path.mkdir(parents=True, exist_ok=True)
        temporary = self.path / f"{TEMPORARY}{CONFIG}"
        temporary.write_text(config, encoding="utf-8")
        temporary.replace(self.path / CONFIG)
        self.checkpoints.mkdir(exist_ok=True)
        for left in self.checkpoints.glob(f"{TEMPORARY}*"):
            shutil.rmtree(left)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training into this folder; the system lets go of it."""
        self.path.mkdir(parents=True, exist_ok=True)
        with (self.path / LOCK).open("a+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                who = file.read().strip() or "another process"
                raise UsageError(f"--save-dir {self.path} is being written by {who}") from None
            file.truncate(0)
            file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
            file.flush()
            yield

    def describe(self, text: str) -> None:
        """Write README.md; a disk that refuses it is told."""
        try:
            (self.path / "README.md").write_text(text, encoding="utf-8")
        except OSError as error:
            log.warning("%s cannot be written: %s", self.path / "README.md", error)

    def steps(self) -> list[int]:
        """The steps there are checkpoints of, good or not, newest first."""
        names = [entry.name for entry in self.checkpoints.glob("step-*")]
        return sorted((int(name[5:]) for name in names if name[5:].isdigit()), reverse=True)

    def step(self, number: int) -> Path:
        """The checkpoint of a step."""
        return self.checkpoints / f"step-{number}"

    def newest(self) -> Path | None:
        """The newest good checkpoint; every damaged one before it is named. None if there is none.

        Raises `CheckpointError` when there are checkpoints and all are damaged.
        """
        found = [self.step(number) for number in self.steps()]
        for path in found:
            fault = damage(path)
            if fault is None:
                return path
            log.warning("checkpoint %s is damaged (%s): it is passed over", path, fault)
        if found:
            raise CheckpointError(f"all {len(found)} checkpoints of {self.path} are damaged")
        return None

    def rewind(self, number: int) -> None:
        """Put aside the checkpoints after a step: a run continues from there."""
        for later in self.steps():
            if later > number:
                aside = self.checkpoints / f"{DAMAGED}step-{later}"
                shutil.rmtree(aside, ignore_errors=True)
                self.step(later).rename(aside)
                log.warning("checkpoint %s was moved to %s", self.step(later), aside)

    def publish(self, number: int, write: Callable[[Path], None]) -> Path:
        """Make the checkpoint of a step: `write` fills a folder, which then appears in one rename.

        Raises OSError when the disk does; everything that was there before is untouched.
        """
        final = self.step(number)
        temporary = self.checkpoints / f"{TEMPORARY}{final.name}-{os.getpid()}"
        try:
            temporary.mkdir()
            write(temporary)
            seal(temporary)
            temporary.rename(final)
            _sync(self.checkpoints)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        return final

    def link(self, name: str, number: int | None) -> None:
        """Point RUN/`name` at the checkpoint of a step in one rename, or remove it."""
        link, temporary = self.path / name, self.path / f"{TEMPORARY}{name}"
        temporary.unlink(missing_ok=True)
        if number is None or not self.step(number).exists():
            link.unlink(missing_ok=True)
            return
        temporary.symlink_to(self.step(number).relative_to(self.path))
        temporary.replace(link)

    def prune(self, keep_last: int, best: Collection[int]) -> None:
        """Remove all checkpoints but the newest `keep_last` and the best ones."""
        for number in self.steps()[keep_last:]:
            if number not in best:
                # renamed first: a checkpoint that is half removed must not look like one
                doomed = self.checkpoints / f"{TEMPORARY}old-step-{number}"
                self.step(number).rename(doomed)
                shutil.rmtree(doomed)


def find(path: Path) -> Path:
    """The checkpoint that `path` means: itself, or of a run folder the best, else the newest good.

    Raises `CheckpointError` naming the damage when there is none.
    """
    if not path.exists():
        dangling = " (its checkpoint is gone)" if path.is_symlink() else ""
        raise CheckpointError(f"there is no run or checkpoint {path}{dangling}")
    if (path / "checkpoints").is_dir():
        best = path / "best"
        if best.exists() and (fault := damage(best)) is None:
            return best.resolve()
        if best.exists():
            log.warning("checkpoint %s is damaged (%s): it is passed over", best.resolve(), fault)
        newest = RunFolder(path).newest()
        if newest is None:
            raise CheckpointError(f"the run {path} has no checkpoint yet")
        return newest
    fault = damage(path)
    if fault is not None:
        raise CheckpointError(f"{path} is no good checkpoint: {fault}")
    return path.resolve()


def seal(folder: Path) -> None:
    """Write the manifest of everything in a folder and sync it all to disk."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    entries = {
        str(path.relative_to(folder)): {"size": path.stat().st_size, "sha256": digest(path)}
        for path in files
    }
    (folder / MANIFEST).write_text(_render(entries))
    for path in [*files, folder / MANIFEST, *(p for p in folder.rglob("*") if p.is_dir()), folder]:
        _sync(path)


def damage(folder: Path) -> str | None:
    """What is wrong with a sealed folder, or None."""
    try:
        text = (folder / MANIFEST).read_text()
        entries = json.loads(text)["files"]
        if text != _render(entries):
            return f"{MANIFEST} is not what was written"
        for name, entry in entries.items():
            path = folder / name
            if not path.is_file():
                return f"{name} of {MANIFEST} is missing"
            if path.stat().st_size != entry["size"]:
                size = path.stat().st_size
                return f"{name} has {size:,} bytes, not the {entry['size']:,} of {MANIFEST}"
            if digest(path) != entry["sha256"]:
                return f"{name} was altered: its SHA-256 is not that of {MANIFEST}"
    except OSError as error:
        return f"{Path(error.filename or MANIFEST).name}: {error.strerror}"
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"{MANIFEST} is not that of a checkpoint"
    return None


def _render(entries: dict[str, dict[str, object]]) -> str:
    return json.dumps({"format": 1, "files": entries}, indent=1) + "\n"


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
