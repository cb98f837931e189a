"""A run on disk: checkpoints that are whole or not there at all. Nothing here needs torch.

    RUN/README.md  config.yaml  log.jsonl  sources.json
    RUN/last -> checkpoints/step-200  best -> checkpoints/step-150  words_1M -> (--save-at-words)
    RUN/checkpoints/step-150/  step-200/     each with manifest.json: size and SHA-256 of every file

A checkpoint is written to a temporary folder beside them, synced and renamed, so a process that is
killed leaves at most a temporary folder, which the next start removes. A checkpoint is good if its
files are what its manifest says, whatever its name is.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from unitk import files, pretrained
from unitk.errors import CheckpointError, DataError, UsageError, refusal, require
from unitk.files import MANIFEST, TEMPORARY, damage, hold_lock, seal

DAMAGED = "damaged-"
OPTIMIZER, SHARDED = "optim.safetensors", ".sharded"
LOCK = ".lock"
CONFIG, SOURCES, SEEDS = "config.yaml", "sources.json", "seeds.json"
TRIES, PAUSE = 200, 0.01
"""Attempts to find a checkpoint while its run saves, and the seconds between two of them."""

_held: dict[Path, ExitStack] = {}

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunFolder:
    """The folder given as `--save-dir`."""

    path: Path
    remote: files.RemotePath | None = None
    """The address in a store at which the folder is mirrored, if `--save-dir` is one."""

    @classmethod
    def at(cls, path: Path, resume: bool) -> RunFolder:
        """The folder of a run; for a run in a store, its up-to-date copy on this machine."""
        if isinstance(path, files.RemotePath):
            return cls(path.run(resume), path)
        return cls(path)

    def mirror(self) -> None:
        """Make the mirror, if there is one, equal to the folder; raises OSError."""
        if self.remote is not None:
            self.remote.mirror(self.path)

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    def check(self, resume: bool) -> None:
        """Raise an error if the folder is used without `--resume`, or cannot be written to."""
        # a run that has failed before its first line of the log leaves nothing to lose
        begun = "checkpoints/*" if self.checkpoints.exists() else CONFIG
        marks = [*self.path.glob(begun), *self.path.glob("log.jsonl")]
        require(
            resume or not any(mark.stat().st_size for mark in marks),
            f"--save-dir {self.path} holds a run: --resume continues it, otherwise name another",
        )
        own = [*self.path.glob(MANIFEST), *self.path.glob(f"train/**/{MANIFEST}")]
        require(not own, f"--save-dir {self.path} holds a corpus or a checkpoint; name another")
        whole = self.path.absolute()  # the nearest folder that exists decides
        existing = next(path for path in (whole, *whole.parents) if os.path.lexists(path))
        if not existing.is_dir() or not os.access(existing, os.W_OK | os.X_OK):
            why = "no permission" if existing.is_dir() else "not a folder"
            raise UsageError(f"--save-dir {self.path} cannot be written to: {existing}: {why}")

    def create(self, config: str) -> None:
        """Create the folder with its config.yaml; remove what a killed process left unfinished."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        files.write(self.path / CONFIG, config)
        if pretrained.fetched:  # the files of names in config.yaml
            files.write(self.path / SOURCES, json.dumps(pretrained.fetched, indent=1) + "\n")
        for folder in (self.path, self.checkpoints):
            for left in folder.glob(f"{TEMPORARY}*"):
                files.discard(left, folder)

    def lock(self) -> AbstractContextManager[None]:
        """Keep other processes from training into this folder; the lock ends with the process."""
        self.path.mkdir(parents=True, exist_ok=True)
        return hold_lock(self.path / LOCK, f"--save-dir {self.path}")

    def describe(self, text: str) -> None:
        """Write README.md; a disk error is only logged."""
        try:
            files.write(self.path / "README.md", text)
        except OSError as error:
            log.warning("README.md cannot be written: %s", refusal(error))

    def steps(self) -> list[int]:
        """The steps that have checkpoints, good or damaged, newest first."""
        texts = {entry.name[5:] for entry in self.checkpoints.glob("step-*")}
        numbers = (int(text) for text in texts if text.isdecimal() and text == str(int(text)))
        return sorted(numbers, reverse=True)

    def step(self, number: int) -> Path:
        """The path of the checkpoint of a step."""
        return self.checkpoints / f"step-{number}"

    def newest(self, hashed: Callable[[str], bool] = lambda name: True) -> Path | None:
        """The newest good checkpoint, or None; every damaged one is logged.

        Files that are not `hashed` are not read. Raises `CheckpointError` if there are checkpoints
        but all are damaged.
        """
        paths = [self.step(number) for number in self.steps()]
        for path in paths:
            with hold(path) or nullcontext():
                fault = damage(path, hashed)
            if fault is None:
                return path
            if path.exists():
                pass_over(path.resolve(), fault)
        if not all(path.exists() for path in paths):  # a run that saves has removed some
            return self.newest(hashed)
        if paths:
            raise CheckpointError(f"{self.path} has no good checkpoint; damaged: {len(paths)}")
        return None

    def rewind(self, number: int) -> None:
        """Put the checkpoints after a step aside, because a run continues from there."""
        for later in self.steps():
            if later > number:
                path, aside = self.step(later), self.checkpoints / f"{DAMAGED}step-{later}"
                files.move(path, aside)
                log.warning("checkpoint %s was moved to %s", path, aside)

    def publish(self, number: int, write: Callable[[Path], None]) -> Path:
        """Write the checkpoint of a step: `write` fills a folder, which then appears in one rename.

        Raises OSError if the disk does; everything that existed before is unchanged.
        """
        final = self.step(number)
        if not self.checkpoints.is_dir():  # it would come back without its lock
            raise FileNotFoundError(errno.ENOENT, "removed while the run goes on", self.checkpoints)
        with files.fill_whole(final, folder=True) as temporary:
            write(temporary)
            seal(temporary)
        return final

    def link(self, name: str, number: int | None) -> None:
        """Point RUN/`name` at the checkpoint of a step in one rename, or remove the link."""
        path = self.path / name
        if number is None or not self.step(number).exists():
            path.unlink(missing_ok=True)
        else:
            files.link(path, self.step(number).relative_to(self.path))

    def prune(self, keep_last: int, best: Collection[int], named: Collection[int] = ()) -> None:
        """Remove checkpoints except the newest `keep_last` and those of the steps `best`; `named`
        ones lose only the optimizer's state."""
        for number in self.steps()[keep_last:]:
            path = self.step(number)
            # one that is being read is left to the next time
            if number in best or (reader := hold(path, alone=True)) is None:
                continue
            with reader:
                if number in named:
                    for name in files.sealed_files(path):
                        if not is_used(name):
                            files.leave_out(path, name)
                    continue
                # renamed first: a checkpoint that is half removed must not look like one
                doomed = self.checkpoints / f"{TEMPORARY}old-step-{number}"
                files.move(path, doomed)
                files.discard(doomed, self.checkpoints)


def hold(checkpoint: Path, alone: bool = False) -> AbstractContextManager[Any] | None:
    """Keep the run from removing a checkpoint until the context ends; None if it is gone.

    With `alone`, it is also None if somebody else holds the checkpoint. Without a manifest, or on a
    disk without locks, the context protects nothing.
    """
    fcntl = files.fcntl
    manifest = checkpoint / MANIFEST
    try:
        file = manifest.open("rb")
    except OSError as error:  # `damage` says what is wrong with it
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        return nullcontext() if checkpoint.exists() else None
    if fcntl is None:  # Windows removes no file that a process has open
        if alone:
            file.close()
        return nullcontext() if alone else file
    try:
        fcntl.flock(file, (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        return None
    except OSError as error:
        if error.errno not in files.NO_LOCKS:
            raise
    with suppress(OSError):
        if os.path.samestat(os.fstat(file.fileno()), manifest.stat()):
            return file
    file.close()  # the run has removed it meanwhile
    return None


@contextmanager
def hold_checkpoint(path: Path) -> Iterator[Path]:
    """The checkpoint that `path` names, which its run does not remove within the context.

    `path` is a checkpoint, a run folder (its best checkpoint, else its newest good one), or the
    name of a bundled model. The optimizer's tensors are not read. Raises `CheckpointError`, which
    names the damage, if there is no good checkpoint.
    """
    path = pretrained.locate(path)
    for _ in range(TRIES):
        before = _state_of(path)
        try:
            folder, reader = _find(path)
        except CheckpointError:
            if _state_of(path) == before:
                raise
            continue  # the run saved meanwhile
        if reader is not None:
            with reader:
                yield folder
            return
        time.sleep(PAUSE)
    raise CheckpointError(f"{path}: the run removed each checkpoint before it was read; try again")


def find_checkpoint(path: Path) -> Path:
    """The checkpoint that `path` names (`hold_checkpoint`); it is held until this process ends."""
    inner = ExitStack()
    checkpoint = inner.enter_context(hold_checkpoint(path))
    if checkpoint in _held:  # once is enough
        inner.close()
    else:
        _held[checkpoint] = inner
    return checkpoint


def _state_of(path: Path) -> tuple[object, ...]:
    """A value that changes whenever a run saves: its checkpoints, and the targets of links."""
    links = [os.readlink(link) for link in (path, path / "best") if link.is_symlink()]
    return path.exists(), RunFolder(path).steps(), links


def _find(path: Path) -> tuple[Path, AbstractContextManager[Any] | None]:
    """A good checkpoint and the context that holds it; None if it was removed meanwhile."""
    if not path.exists():
        why = " (its checkpoint is gone)" if path.is_symlink() else pretrained.hint(path)
        raise CheckpointError(f"{path}: there is no such run or checkpoint{why}")
    if not (path / "checkpoints").is_dir():
        if runs := sorted(path.glob("*/checkpoints")):  # those of --seeds, or of any name
            raise CheckpointError(f"{path} holds several runs: name one, such as {runs[0].parent}")
        folder, reader, fault = _check(path)
        if fault is None:
            return folder, reader
        if (folder / MANIFEST).exists():
            raise CheckpointError(f"{path} is not a good checkpoint: {fault}")
        what = "is a file" if path.is_file() else f"has no checkpoints/ and no {MANIFEST}"
        foreign = path.is_file() or any(path.glob("?*.*"))
        hint = "; `unitk convert` reads the models of other systems" if foreign else ""
        hint = f"; its run is {path.parent}" if path.name == "checkpoints" else hint
        raise CheckpointError(f"{path} is no run or checkpoint: it {what}{hint}")
    if (best := path / "best").exists():
        folder, reader, fault = _check(best)
        if fault is None:
            return folder, reader
        pass_over(folder, fault)
    newest = RunFolder(path).newest(hashed=is_used)
    if newest is None:
        raise CheckpointError(f"the run {path} has no checkpoint yet")
    return newest.resolve(), hold(newest.resolve())


@cache
def pass_over(path: Path, fault: str) -> None:
    """Warn of a damaged checkpoint, but once: each search for a good one meets it again."""
    log.warning("checkpoint %s is damaged (%s): it is passed over", path, fault)


def _check(path: Path) -> tuple[Path, AbstractContextManager[Any] | None, str | None]:
    """The checkpoint that a link points to, what holds it, and its damage.

    One that was removed meanwhile has neither.
    """
    folder = path.resolve()
    if (reader := hold(folder)) is None:
        return folder, None, None
    fault = damage(folder, is_used)
    if fault is None:
        return folder, reader, None
    with reader:  # on a disk without locks, it may be gone after all
        return folder, None, fault if folder.exists() else None


def is_used(name: str) -> bool:
    """Whether a file of a checkpoint is needed to use the model."""
    return not name.startswith("optim.")


def stored_files(checkpoint: Path) -> set[str]:
    """The names of a checkpoint's files; shards of one have the name of the whole."""
    names = (name.partition(f"{SHARDED}/") for name in files.sealed_files(checkpoint))
    return {f"{name}.safetensors" if divided else name for name, divided, _ in names}


P = ParamSpec("P")
T = TypeVar("T")


def holds_checkpoint(read: Callable[Concatenate[Path, P], T]) -> Callable[Concatenate[Path, P], T]:
    """Decorate a function that reads a checkpoint to take any path that `hold_checkpoint` takes."""

    @wraps(read)
    def reads(path: Path, /, *args: P.args, **kwargs: P.kwargs) -> T:
        for _ in range(TRIES):  # a disk without locks holds nothing
            with hold_checkpoint(path) as folder:
                try:
                    return read(folder, *args, **kwargs)
                except (CheckpointError, DataError):
                    if folder.exists():
                        raise
        raise CheckpointError(f"{path}: the run removed each checkpoint while it was read")

    return reads
