"""Files and folders that are whole or not there at all, and manifests of what a folder holds.

    .tmp-PID-NAME    what process PID has written of NAME; synced and renamed when it is done
    .old-PID-NAME    the folder that it replaces, for the time of two renames
    .NAME.lock       held by the process that writes NAME, and removed with it

Whatever a killed process leaves of these, the next writer of NAME removes or, if NAME is gone, puts
back. A link is followed: the file or folder that it leads to is replaced.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import re
import shutil
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TextIO

from unitk.errors import CheckpointError, DataError, UnitkError, UsageError, require
from unitk.foreign import read_json

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

VERSION = "0.1.0"  # of the package; checkpoints record it
MANIFEST = "manifest.json"
TEMPORARY, OLD = ".tmp-", ".old-"
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # what a disk answers that knows no locks

SETTLED = 2 * 10**9
"""Nanoseconds after which a time stamp tells a file from what is written into it later."""

_digests: dict[tuple[int, ...], str] = {}
log = logging.getLogger(__name__)


@contextmanager
def new_file(dest: Path, option: str, fault: type[UnitkError] = DataError) -> Iterator[Path]:
    """A file to write, which becomes `dest` if all goes well and is removed if not.

    It has the ending of `dest`. An error of the disk is raised as `fault`, naming the option;
    `UsageError` where another process writes `dest`.
    """
    with _in_one_line(dest, option, fault), reserved(dest, option) as real:
        require(real.is_file() or not real.exists(), f"{option} {dest} exists, and is not a file")
        with appearing(real) as part:
            yield part


def check_folder(path: Path, option: str) -> None:
    """Raise a `UsageError` unless the folder of a file that is to be written can be written into.

    For use before anything is computed.
    """
    folder = path.absolute().parent
    if not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UsageError(f"{option} {path}: cannot write into {folder}")


@contextmanager
def new_folder(
    dest: Path, option: str, fault: type[UnitkError] = DataError, replace: bool = False
) -> Iterator[Path]:
    """A folder to fill, like `new_file`; only with `replace` may `dest` hold something."""
    real = dest.resolve()
    made = [folder for folder in real.parents if not folder.exists()]
    with _in_one_line(dest, option, fault):
        try:
            if made:
                real.parent.mkdir(parents=True, exist_ok=True)
            with reserved(dest, option):
                empty = not real.exists() or (real.is_dir() and not any(real.iterdir()))
                require(empty or replace, f"{option} {dest} exists already")
                with appearing(real, folder=True) as part:
                    yield part
        finally:
            for folder in made:
                with suppress(OSError):  # it holds `dest`, or somebody else uses it
                    folder.rmdir()


@contextmanager
def reserved(dest: Path, option: str) -> Iterator[Path]:
    """The real path of `dest`, which no other process writes meanwhile: it gets a `UsageError`."""
    real = dest.resolve()
    name = re.escape(real.name)
    left = re.compile(rf"\.(tmp|old)-\d+-({name}|\.{name}\.progress)")
    with held(real.with_name(f".{real.name}.lock"), f"{option} {dest}"):
        for path in list(real.parent.iterdir()):
            if left.fullmatch(path.name):
                discard(path, real)
        yield real


@contextmanager
def held(lock: Path, what: str) -> Iterator[None]:
    """Hold a lock file, else `UsageError` that names who does; the system frees it at the end."""
    file = _lock(lock)
    if file is None:
        who = ""
        with suppress(OSError):
            who = lock.read_text(encoding="utf-8").strip()
        raise UsageError(f"{what} is being written by {who or 'another process'}")
    try:
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield
    finally:
        with suppress(OSError):
            lock.unlink()
        file.close()


def _lock(path: Path) -> TextIO | None:
    """The file, opened and locked; None where another process holds it."""
    if fcntl is None:  # Windows removes no file that a process has open
        try:
            path.unlink(missing_ok=True)
            return path.open("x", encoding="utf-8")
        except (PermissionError, FileExistsError):
            return None
    while True:
        file = path.open("a", encoding="utf-8")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        except OSError as error:
            if error.errno not in NO_LOCKS:
                raise
            log.warning("%s: this disk has no locks; a second writer is not noticed", path.parent)
            return file
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        file.close()  # who held it has removed it meanwhile


@contextmanager
def appearing(real: Path, folder: bool = False) -> Iterator[Path]:
    """A file or folder to fill, which becomes `real` in one rename; for who alone writes there."""
    part = real.with_name(f"{TEMPORARY}{os.getpid()}-{real.name}")
    old = real.with_name(f"{OLD}{os.getpid()}-{real.name}")
    try:
        part.mkdir() if folder else part.touch()
        mode = part.stat().st_mode & 0o666
        yield part
        written = [part, *part.rglob("*")]
        for path in written:
            if not path.is_dir():
                path.chmod(mode)  # libraries write some that only their owner may read
            _sync(path)
        if folder and real.exists():  # a folder is replaced by no single rename
            real.replace(old)
        part.replace(real)
        _sync(real.parent)
    finally:
        for left in (part, old):
            discard(left, real)


def write(path: Path, text: str) -> None:
    """Replace the text of a file that no other process writes; OSError where the disk refuses."""
    with appearing(path.resolve()) as part:
        part.write_text(text, encoding="utf-8")


def move(path: Path, aside: Path) -> None:
    """Move a folder in one rename, over whatever folder stands there."""
    shutil.rmtree(aside, ignore_errors=True)
    path.rename(aside)


def finish(part: Path, dest: Path) -> None:
    """Give a file that is written its name, in one rename; a link at `dest` is followed."""
    part.replace(dest.resolve())


def link(path: Path, target: Path) -> None:
    """Make a link, or point it elsewhere, in one rename."""
    temporary = path.with_name(f"{TEMPORARY}{path.name}")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(target)
    temporary.replace(path)


def _sync(path: Path) -> None:
    if fcntl is None and path.is_dir():  # Windows opens no folders
        return
    descriptor = os.open(path, os.O_RDONLY if fcntl else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def discard(left: Path, real: Path) -> None:
    """Remove what is left of writing `real`, or put it back where it is all there is."""
    if left.name.startswith(OLD) and left.exists() and not real.exists():
        left.replace(real)
    elif left.is_dir():
        shutil.rmtree(left, ignore_errors=True)
    else:
        left.unlink(missing_ok=True)


@contextmanager
def _in_one_line(dest: Path, option: str, fault: type[UnitkError]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        what, name = f"{option} {dest}", str(error.filename or TEMPORARY)
        own = TEMPORARY in name or name.endswith(".lock") or Path(name) in dest.resolve().parents
        raise fault(f"{what if own else name}: {error.strerror or error}") from error


def digest(path: Path) -> str:
    """SHA-256 of a file; one that stays as it is gets read once in a process."""
    with path.open("rb") as file:
        at = os.fstat(file.fileno())
        key = at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns
        if key in _digests:
            return _digests[key]
        found = hashlib.file_digest(file, "sha256").hexdigest()
    # what was written a moment ago may be written again without another time stamp
    if time.time_ns() - max(at.st_mtime_ns, at.st_ctime_ns) > SETTLED:
        _digests[key] = found
    return found


def entry(path: Path) -> dict[str, Any]:
    """What a manifest says of a file: its size and SHA-256."""
    return {"size": path.stat().st_size, "sha256": digest(path)}


def below(folder: Path) -> dict[str, Path]:
    """Every file below a folder but its manifest, by the name that it has in one."""
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {name: path for name, path in found.items() if path.is_file() and name != MANIFEST}


def differs(folder: Path, files: Any, hashed: Callable[[str], bool]) -> str | None:
    """What a folder has else than the entries of its manifest, or None.

    Sizes are always compared, contents of those files that are to be `hashed`.
    """
    if not isinstance(files, dict) or not files:
        return f"{MANIFEST} lists no files"
    try:
        for name, listed in files.items():
            path, size = folder / name, listed["size"]
            if not path.is_file():
                return f"{name} of {MANIFEST} is missing"
            if (found := path.stat().st_size) != size:
                return f"{name} has {found:,} bytes, not the {size:,} of {MANIFEST}"
            if hashed(name) and digest(path) != listed["sha256"]:
                return f"{name} was altered: its SHA-256 is not that of {MANIFEST}"
    except OSError as error:
        return f"{Path(error.filename or MANIFEST).name}: {error.strerror}"
    except (ValueError, KeyError, TypeError):
        return f"{MANIFEST} is damaged"
    return None


def seal(folder: Path) -> None:
    """Write the manifest of everything in a checkpoint."""
    text = _render({name: entry(path) for name, path in below(folder).items()})
    (folder / MANIFEST).write_text(text, encoding="utf-8")


def leave_out(folder: Path, name: str) -> None:
    """Remove a file of a checkpoint, which stays a good one at any moment."""
    entries = read_json(folder / MANIFEST, CheckpointError)["files"]
    if entries.pop(name, None) is not None:
        write(folder / MANIFEST, _render(entries))
    (folder / name).unlink(missing_ok=True)


def sealed(folder: Path) -> set[str]:
    """The names of the files that belong to a good checkpoint; others beside them are not read."""
    return set(read_json(folder / MANIFEST, CheckpointError)["files"])


def damage(folder: Path, hashed: Callable[[str], bool] = lambda name: True) -> str | None:
    """What is wrong with a checkpoint, or None; only files that are `hashed` are read."""
    path = folder / MANIFEST
    try:
        files = read_json(path).get("files")
        if (fault := differs(folder, files, hashed)) is not None:
            return fault
        # a byte that changed in the manifest itself: json reads much that was never written
        same = path.read_text(encoding="utf-8") == _render(files)
    except DataError as error:
        return str(error).removeprefix(f"{folder}{os.sep}")
    return None if same else f"{MANIFEST} is not what was written"


def _render(files: Any) -> str:
    return json.dumps({"format": 1, "files": files}, indent=1) + "\n"
