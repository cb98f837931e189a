"""Files and folders that are whole or not there at all, and manifests of what a folder holds.

    .tmp-PID-NAME    what process PID has written of NAME; synced and renamed when it is done
    .old-PID-NAME    the folder that it replaces, for the time of two renames
    .NAME.lock       held by the process that writes NAME, and removed with it

Whatever a killed process leaves of these, the next writer of NAME removes or, if NAME is gone, puts
back. Nothing is written through a link: who may put one into a folder could have any file of
the user replaced. Only this file opens files to write (`create`, `open_plain`).
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
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PosixPath
from typing import IO, Any

from unitk.errors import CheckpointError, DataError, UnitkError, UsageError, require
from unitk.foreign import read_json, require_file

fcntl: Any
try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

VERSION = "0.1.0"  # of the package; checkpoints record it
MANIFEST = "manifest.json"
TEMPORARY, OLD = ".tmp-", ".old-"
NO_LINK = os.O_NOFOLLOW | os.O_NONBLOCK if fcntl else 0  # a pipe must not be waited for
NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP)  # what a disk answers that knows no locks

SETTLED = 2 * 10**9
"""Nanoseconds after which a time stamp tells a file from what is written into it later."""

INSTEAD = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
"""The kinds of things that may be in the place of a file."""

_digests: dict[tuple[int, ...], str] = {}
log = logging.getLogger(__name__)


class RemotePath(PosixPath):
    """A path in a store of objects, read as any other; unitk/remote/paths.py has what it does."""

    staged: Callable[[], Path]
    """Returns where on this machine a file or folder is written that is then uploaded."""
    upload: Callable[[Path], None]
    """Puts a file or folder of this machine here, and removes it there."""
    match_files: Callable[[], list[Path]]
    """Returns the files that a path with wildcards stands for."""
    blocks: Callable[[bytes, Any], Any]
    """Returns an array of this file, whose blocks have these SHA-256 and are read when used."""
    run: Callable[[bool], Path]
    """Returns the folder on this machine of the run that is mirrored here; True: to resume it."""
    mirror: Callable[[Path], None]
    """Makes what is here equal to a run folder of this machine; raises OSError."""


def check_plain(path: Path, what: str = "", hint: str = "") -> None:
    """Raise a `UsageError` if there is something at `path` that is no plain file, such as a link.

    `what` names it in the message, which `hint` ends. Folders may be links, and /dev holds some.
    """
    try:
        mode = path.stat().st_mode if path.parent == Path("/dev") else path.lstat().st_mode
    except OSError:  # nothing is there, or who opens it will say
        return
    if not stat.S_ISREG(mode):
        kind = INSTEAD.get(stat.S_IFMT(mode), "something else")
        leads = f" (to {os.readlink(path)})" if stat.S_ISLNK(mode) else ""
        raise UsageError(f"{what or path} is not a file but {kind}{leads}{hint}")


def open_plain(path: Path, mode: str, newline: str | None = None) -> IO[Any]:
    """Open a plain file for writing, which is made if it is not there; text is UTF-8.

    Raises a `UsageError` for links, pipes and the like, and for a file that has another name too
    (a hard link).
    """

    def opener(name: str, flags: int) -> int:
        descriptor = os.open(name, flags & ~os.O_TRUNC | NO_LINK, 0o666)
        try:
            status = os.fstat(descriptor)
            require(stat.S_ISREG(status.st_mode), f"{path} is not a file")
            require(status.st_nlink < 2, f"{path} is another file, too (a hard link): remove it")
            if flags & os.O_TRUNC:
                os.ftruncate(descriptor, 0)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    check_plain(path)
    encoding = None if "b" in mode else "utf-8"
    return open(path, mode, encoding=encoding, newline=newline, opener=opener)


def create(path: Path, content: str | bytes = b"") -> Path:
    """Make a file, in the place of any file or link that is there; returns its path."""
    path.unlink(missing_ok=True)
    with open_plain(path, "xb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    return path


def copy(source: Path, dest: Path) -> None:
    """Copy the content of a file to a file that is made for it."""
    with source.open("rb") as read, open_plain(dest, "wb") as written:
        shutil.copyfileobj(read, written, 1 << 20)


def link_or_copy(source: Path, dest: Path) -> None:
    """Link `dest` to a file that never changes, or copy it if the disk has no hard links."""
    try:
        dest.hardlink_to(source)
    except OSError:
        copy(source, dest)


@contextmanager
def new_file(
    dest: Path, option: str, fault: type[UnitkError] = DataError, replace: bool = True
) -> Iterator[Path]:
    """A file to write, which becomes `dest` if all goes well and is removed if not.

    It has the ending of `dest`. An error of the disk is a `fault` that names the option;
    `UsageError` where another process writes `dest`, or has written it and it is not to `replace`.
    """
    check_plain(dest, f"{option} {dest}")
    with _in_one_line(dest, option, fault), reserve(dest, option) as real:
        check_free(dest, option, replace)
        with fill_whole(real) as part:
            yield part
        _deliver(real, dest)


def check_folder(path: Path, option: str) -> None:
    """Raise a `UsageError` if the folder of a file cannot be written into, before any work."""
    if isinstance(path, RemotePath):  # a store is not asked whether it would take a file
        return
    folder = path.absolute().parent
    writable = folder.is_dir() and os.access(folder, os.W_OK)
    require(writable, f"{option} {path}: cannot write into {folder}")


def is_vacant(folder: Path) -> bool:
    """Whether there is nothing at this path, or an empty folder."""
    return not folder.exists() or (folder.is_dir() and not any(folder.iterdir()))


def check_free(dest: Path, option: str, replace: bool) -> None:
    """Raise a `UsageError` for a file that holds something and is not to be replaced."""
    free = replace or not dest.exists() or not dest.stat().st_size
    require(free, f"{option} {dest} exists already; --overwrite replaces it")


@contextmanager
def new_folder(
    dest: Path, option: str, fault: type[UnitkError] = DataError, replace: bool = False
) -> Iterator[Path]:
    """A folder to fill, like `new_file`; only with `replace` may `dest` hold something."""
    if dest.is_symlink():
        raise UsageError(f"{option} {dest} is a link: name {os.readlink(dest)} itself")
    real = real_path(dest)
    require(not os.path.ismount(real), f"{option} {dest} is a disk: name a folder in it")
    parents = [folder for folder in real.parents if not folder.exists()]
    with _in_one_line(dest, option, fault):
        try:
            if parents:
                real.parent.mkdir(parents=True, exist_ok=True)
            with reserve(dest, option):
                folder = dest if isinstance(dest, RemotePath) else real
                require(replace or is_vacant(folder), f"{option} {dest} exists already")
                with fill_whole(real, folder=True) as part:
                    yield part
                _deliver(real, dest)
        finally:
            for folder in parents:
                with suppress(OSError):  # it holds `dest`, or somebody else uses it
                    folder.rmdir()


def real_path(dest: Path) -> Path:
    """The path without links among its folders; for a store, the local path that is uploaded."""
    if isinstance(dest, RemotePath):
        return dest.staged()
    if dest.name in ("", "..") or dest.parent == Path("/dev"):
        return dest.resolve()
    return dest.parent.resolve() / dest.name


@contextmanager
def reserve(dest: Path, option: str) -> Iterator[Path]:
    """The real path of `dest`, which no other process writes meanwhile: it gets a `UsageError`."""
    real = real_path(dest)
    name = re.escape(real.name)
    left = re.compile(rf"\.(tmp|old)-\d+-({name}|\.{name}\.progress)")
    with hold_lock(real.with_name(f".{real.name}.lock"), f"{option} {dest}"):
        for path in list(real.parent.iterdir()):
            if left.fullmatch(path.name):
                discard(path, real)
        yield real


@contextmanager
def hold_lock(lock: Path, what: str) -> Iterator[None]:
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


def _lock(path: Path) -> IO[str] | None:
    """Open and lock a file; None if another process holds it."""
    if fcntl is None:  # Windows removes no file that a process has open
        try:
            path.unlink(missing_ok=True)
            return path.open("x", encoding="utf-8")
        except (PermissionError, FileExistsError):
            return None
    while True:
        file = open_plain(path, "a")
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
            if os.path.samestat(os.fstat(file.fileno()), path.lstat()):
                return file
        file.close()  # the process that held the lock has removed the file


@contextmanager
def fill_whole(real: Path, folder: bool = False) -> Iterator[Path]:
    """A file or folder to fill, which becomes `real` in one rename; nobody else may write there."""
    part = real.with_name(f"{TEMPORARY}{os.getpid()}-{real.name}")
    old = real.with_name(f"{OLD}{os.getpid()}-{real.name}")
    try:
        if folder:
            part.mkdir()
        else:
            create(part)
        mode = part.stat().st_mode & 0o666
        yield part
        for path in [path for path in (part, *part.rglob("*")) if not path.is_symlink()]:
            if not path.is_dir():
                path.chmod(mode)  # libraries write some that only their owner may read
            _sync(path)
        if folder and os.path.lexists(real):  # a folder is replaced by no single rename
            real.replace(old)
        part.replace(real)
        _sync(real.parent)
    finally:
        for left in (part, old):
            discard(left, real)


def write(path: Path, text: str) -> None:
    """Replace the text of a file that no other process writes; an OSError of the disk names it."""
    real = real_path(path)
    try:
        with fill_whole(real) as part, open_plain(part, "w", newline="") as file:
            file.write(text)
    except OSError as error:
        error.filename = str(path)  # the system names no file that is open
        raise
    _deliver(real, path)


def move(path: Path, aside: Path) -> None:
    """Move a folder in one rename, over whatever folder is there."""
    discard(aside, path)
    path.rename(aside)


def finish(part: Path, dest: Path) -> None:
    """Rename a finished file to `dest`, in one step; a link there is replaced."""
    part.replace(real := real_path(dest))
    _deliver(real, dest)


def _deliver(real: Path, dest: Path) -> None:
    """Upload what was written for a path in a store."""
    if isinstance(dest, RemotePath):
        dest.upload(real)


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
    """Remove a leftover of writing `real`; the old `real` is put back if there is no new one."""
    link = left.is_symlink()
    if left.name.startswith(OLD) and left.exists() and not link and not os.path.lexists(real):
        left.replace(real)
    elif left.is_dir() and not link:
        shutil.rmtree(left, ignore_errors=True)
    else:
        left.unlink(missing_ok=True)


@contextmanager
def _in_one_line(dest: Path, option: str, fault: type[UnitkError]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        name = str(error.filename or TEMPORARY)
        own = TEMPORARY in name or name.endswith(".lock") or Path(name) in dest.resolve().parents
        what = f"{option} {dest}" if own else name
        raise fault(f"{what}: {error.strerror or error}") from error


def digest(path: Path) -> str:
    """SHA-256 of a file; a file that does not change is read once in a process."""
    require_file(path)
    with path.open("rb") as file:
        at = os.fstat(file.fileno())
        key = at.st_dev, at.st_ino, at.st_size, at.st_mtime_ns, at.st_ctime_ns
        if key in _digests:
            return _digests[key]
        hexdigest = hashlib.file_digest(file, "sha256").hexdigest()
    # what was written a moment ago may be written again without another time stamp
    if time.time_ns() - max(at.st_mtime_ns, at.st_ctime_ns) > SETTLED:
        _digests[key] = hexdigest
    return hexdigest


def entry(path: Path) -> dict[str, Any]:
    """The entry of a file in a manifest: its size and SHA-256."""
    return {"size": path.stat().st_size, "sha256": digest(path)}


def below(folder: Path) -> dict[str, Path]:
    """Every file below a folder except its manifest, by its name in the manifest."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {name: path for name, path in paths.items() if path.is_file() and name != MANIFEST}


def differs(folder: Path, files: Any, hashed: Callable[[str], bool]) -> str | None:
    """The first difference between a folder and the entries of its manifest, or None.

    Sizes are always compared, contents only for files that are `hashed`.
    """
    if not isinstance(files, dict) or not files:
        return f"{MANIFEST} lists no files"
    try:
        for name, listed in files.items():
            path = folder / name
            if not path.is_file():
                return f"{name} of {MANIFEST} is missing"
            if (actual := path.stat().st_size) != (size := listed["size"]):
                return f"{name} has {actual:,} bytes, not the {size:,} of {MANIFEST}"
            if hashed(name) and digest(path) != listed["sha256"]:
                return f"{name} was altered: its SHA-256 is not that of {MANIFEST}"
    except OSError as error:
        return f"{Path(error.filename or MANIFEST).name}: {error.strerror}"
    except (ValueError, KeyError, TypeError):
        return f"{MANIFEST} is damaged"
    return None


def seal(folder: Path) -> None:
    """Write the manifest of everything in a checkpoint."""
    create(folder / MANIFEST, _render({name: entry(path) for name, path in below(folder).items()}))


def leave_out(folder: Path, name: str) -> None:
    """Remove a file of a checkpoint, which is good at any moment; one that is a link keeps it."""
    if folder.is_symlink():
        return
    entries = read_json(folder / MANIFEST, CheckpointError)["files"]
    if entries.pop(name, None) is not None:
        write(folder / MANIFEST, _render(entries))
    (folder / name).unlink(missing_ok=True)


def sealed_files(folder: Path) -> set[str]:
    """The names of the files that belong to a good checkpoint; others beside them are not read."""
    return set(read_json(folder / MANIFEST, CheckpointError)["files"])


def damage(folder: Path, hashed: Callable[[str], bool] = lambda name: True) -> str | None:
    """The fault of a checkpoint as a message, or None; only `hashed` files are read whole."""
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
