"""An address as a path: it is read as any other, and what is written there is uploaded.

open            streams a file, in ranges of 8 MB
os.fspath       a copy of the file in the cache, for libraries that want one
located(path)   a copy of the folder in the cache: a checkpoint, a corpus, a vocabulary
upload          what `files.new_file` and `new_folder` have written on this machine
"""

from __future__ import annotations

import errno
import fnmatch
import io
import os
import stat
from collections.abc import Generator
from pathlib import Path
from typing import IO, Any

from unitk import files
from unitk.files import MANIFEST, RemotePath
from unitk.registry import register
from unitk.remote import copies, runs
from unitk.remote.blocks import Blocks
from unitk.remote.store import Store, check_address, store_of

RANGE = 8 << 20
"""Bytes that are asked for at a time."""


class Address(RemotePath):
    """A path in a store; messages and configurations show it as the address that it is."""

    def __str__(self) -> str:
        return as_address(super().__str__())

    def __fspath__(self) -> str:
        return str(copies.fetch_file(str(self)))

    @property
    def store(self) -> Store:
        """The store that it is in."""
        return store_of(str(self))

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        """Kind and size."""
        if (info := self.store.info(str(self))) is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", str(self))
        kind = stat.S_IFDIR if info["type"] == "directory" else stat.S_IFREG
        return os.stat_result((kind | 0o644, 0, 0, 1, 0, 0, info.get("size") or 0, 0, 0, 0))

    def lstat(self) -> os.stat_result:
        return self.stat()

    def exists(self, *, follow_symlinks: bool = True) -> bool:
        return self.store.info(str(self)) is not None

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return (self.store.info(str(self)) or {}).get("type") == "file"

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return (self.store.info(str(self)) or {}).get("type") == "directory"

    def is_symlink(self) -> bool:
        return False

    def is_fifo(self) -> bool:
        return False

    def is_char_device(self) -> bool:
        return False

    def absolute(self) -> Address:
        return self

    def resolve(self, strict: bool = False) -> Address:
        return self

    def is_absolute(self) -> bool:
        return False  # it names no folder of this machine

    def mkdir(self, mode: int = 0o777, parents: bool = False, exist_ok: bool = False) -> None:
        """A store has no folders beside those that names make."""

    def iterdir(self) -> Generator[Address, None, None]:
        """The files and folders in a folder."""
        yield from (self / name for name in self.store.names(str(self)))

    def glob(self, pattern: str) -> Generator[Address, None, None]:
        """The files below a folder whose names match, and the folders that are complete."""
        names = [*self.store.names(str(self), deep=True)]
        names += [name[: -len(MANIFEST) - 1] for name in names if name.endswith(f"/{MANIFEST}")]
        # fnmatch lets a star stand for strokes, too: the depth decides
        deep = "**/" in pattern
        parts = pattern.count("/")
        for name in names:
            if fnmatch.fnmatchcase(name, pattern) and (deep or name.count("/") == parts):
                yield self / name

    def match_files(self) -> list[Path]:
        """The files that an address with wildcards stands for."""
        return [Address(address) for address in self.store.match(str(self))]

    def open(self, mode: str = "r", *_: Any, encoding: str | None = None, **__: Any) -> IO[Any]:  # type: ignore[override]
        """Read the file as a stream; `files.new_file` writes."""
        assert "w" not in mode and "a" not in mode and "+" not in mode, mode
        info = self.store.info(str(self))
        if info is None:
            raise FileNotFoundError(errno.ENOENT, "there is no such file", str(self))
        if info.get("size") is None or info.get("partial") is False:
            return open(os.fspath(self), mode, encoding=encoding)  # a server without ranges
        # the buffer is what is asked for at a time
        raw = io.BufferedReader(Ranges(self.store, str(self), info["size"]), RANGE)
        return raw if "b" in mode else io.TextIOWrapper(raw, encoding or "utf-8")

    def staged(self) -> Path:
        """Where on this machine a file or folder is written that is then uploaded."""
        path = copies.cache_dir("written", str(self))
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def upload(self, path: Path) -> None:
        """Put a file or folder of this machine in the place of what is there, and remove it here.

        Of a folder, manifests are first taken away and last put: who reads it meanwhile sees none.
        """
        if path.is_file():
            self.store.upload(path, str(self))
        else:
            # a folder that is half there must look like none at any moment
            old = self.store.names(str(self), deep=True)
            for name in sorted(old, key=lambda name: not name.endswith(MANIFEST)):
                self.store.remove(f"{self}/{name}")
            self.store.forget_folder(str(self))
            names = [
                file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()
            ]
            for name in sorted(names, key=lambda name: (name.endswith(MANIFEST), -name.count("/"))):
                self.store.upload(path / name, f"{self}/{name}")
        files.discard(path, path)

    def blocks(self, hashes: bytes, dtype: Any) -> Blocks:
        """The tokens of a corpus, whose file this is; `hashes` are those of its blocks."""
        return Blocks(str(self), self.stat().st_size, hashes, dtype)

    def run(self, resume: bool) -> Path:
        """The folder on this machine of the run that is mirrored here."""
        return runs.bring(str(self), resume)

    def mirror(self, folder: Path) -> None:
        """Make what is here equal to the run folder on this machine."""
        runs.mirror(folder, str(self))


class Ranges(io.RawIOBase):
    """A file of a store, read in ranges."""

    def __init__(self, store: Store, address: str, size: int) -> None:
        self.store = store
        self.address = address
        self.size = size
        self.at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self.at = offset + (0, self.at, self.size)[whence]
        return self.at

    def readinto(self, buffer: Any) -> int:
        stop = min(self.at + len(buffer), self.size)
        if stop <= self.at:
            return 0
        data = self.store.read(self.address, self.at, stop)
        buffer[: len(data)] = data
        self.at = stop
        return len(data)


def as_address(text: str) -> str:
    """`s3:/bucket/key`, as a path shows it, as an address."""
    protocol, _, rest = text.partition(":")
    root = "/" if protocol == "file" else ""
    return f"{protocol}://{root}{rest.lstrip('/')}"


class Addresses:
    """A hub whose names are addresses of a protocol."""

    def __init__(self, name: str, about: str) -> None:
        self.name, self.about = name, f"{about}, {name}://..."

    def __call__(self, name: str, part: str) -> Path:
        """The path of an address; a `part` of a folder is copied, a file is read where it is."""
        address = as_address(f"{self.name}:{name}")
        check_address(address)
        # nothing is asked of the store yet: an option is no reason to wait for a network
        return Address(address) if part == "file" else copies.fetch_part(address, part)


register("hub", "s3")(Addresses("s3", "Objects of Amazon S3"))
register("hub", "gs")(Addresses("gs", "Objects of Google Cloud Storage"))
register("hub", "az")(Addresses("az", "Objects of Azure Blob Storage"))
register("hub", "https")(Addresses("https", "Files of a web server"))
register("hub", "http")(Addresses("http", "Files of a web server, without encryption"))
register("hub", "file")(Addresses("file", "Files of this machine"))
