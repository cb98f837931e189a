"""A store of objects: what is asked of it, again and again until it answers.

A request that fails is repeated after pauses that double. What repeating cannot cure, such as a
name that is not there or a refused key, is not repeated. The last error is an OSError whose file is
the address and whose text is one line without credentials.
"""

from __future__ import annotations

import errno
import functools
import importlib.util
import logging
import os
import random
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from unitk.errors import UsageError, require
from unitk.files import TEMPORARY

PACKAGES = {"s3": "s3fs", "gs": "gcsfs", "az": "adlfs", "https": "aiohttp", "http": "aiohttp"}
"""Protocol -> the package that fsspec needs for it, beside itself."""
PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds between the tries of a request; each is drawn between half and one and a half of it."""
ANSWER, SLOWEST = 60.0, 1e6
"""Seconds that a try may take, and bytes a second that a file must come or go with beside them."""
LASTING = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)
UNSIGNED = "NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"
"""Errors that stay however often one asks: types, and names of types of other packages."""
FAILURES = {
    "aiohttp": ("ClientError",),
    "botocore.exceptions": ("BotoCoreError", "ClientError"),
    "gcsfs.retry": ("HttpError",),
    "google.auth.exceptions": ("GoogleAuthError",),
    "azure.core.exceptions": ("AzureError",),
}
"""Module -> errors of stores that are no OSError."""
SECRET = re.compile("key|token|secret|password|credential|signature|^sig$", re.IGNORECASE)
USER = re.compile(r"^[\w+.-]+://[^/@]*:[^/@]*@")
QUERY = re.compile(r"(https?://[^\s?'\"]+)\?[^\s'\"]*")

T = TypeVar("T")
log = logging.getLogger(__name__)


def check_address(address: str) -> None:
    """Refuse an address that has credentials in it: it is in logs and configurations."""
    query = re.findall(r"[?&]([^=&]+)=", address)
    # not even the error may have them: it is logged
    if USER.match(address) or any(map(SECRET.search, query)):
        shown = QUERY.sub(r"\1?...", USER.sub("...@", address))
        raise UsageError(
            f"{shown}: an address has no credentials in it; the environment or its tool's own "
            "files have them (AWS_PROFILE, ...)"
        )


def filesystem(protocol: str) -> Any:
    """fsspec's file system of a protocol; `UsageError` that names the package that is missing."""
    for package in ("fsspec", PACKAGES.get(protocol, "fsspec")):
        if importlib.util.find_spec(package) is None:
            cure = f"pip install 'unitk[remote]' {PACKAGES.get(protocol, '')}".rstrip()
            raise UsageError(f"{protocol}:// needs the package {package}: {cure}")
    import fsspec

    # what another process has written must be seen
    options: dict[str, Any] = {"use_listings_cache": False}
    if protocol == "s3":  # `request` is who asks again
        options |= {"config_kwargs": {"retries": {"max_attempts": 1, "mode": "standard"}}}
    if protocol == "file":
        options = {"auto_mkdir": True}
    return fsspec.filesystem("abfs" if protocol == "az" else protocol, **options)


def request(address: str, call: Callable[[], T]) -> T:
    """Make a request, repeated while it fails; raises OSError after the last try."""
    began = time.monotonic()
    for number, pause in enumerate((*PAUSES, None), 1):
        try:
            return call()
        except _failures() as error:
            lasts = isinstance(error, LASTING) or type(error).__name__ in UNSIGNED
            if lasts or pause is None:
                raise _to_os_error(error, address, number, time.monotonic() - began) from None
            log.info("%s: %s; trying again", address, reason(error))
            # not the generator of a run, whose draws must not depend on a store
            time.sleep(pause * random.SystemRandom().uniform(0.5, 1.5))
    raise AssertionError(address)


def _failures() -> tuple[type[BaseException], ...]:
    """The errors of stores whose packages are imported."""
    imported = (
        (sys.modules[name], types) for name, types in FAILURES.items() if name in sys.modules
    )
    return OSError, *(vars(module)[name] for module, types in imported for name in types)


def _to_os_error(error: BaseException, address: str, tries: int, seconds: float) -> OSError:
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "there is no such file or bucket", address)
    if isinstance(error, PermissionError) or type(error).__name__ in UNSIGNED:
        return PermissionError(errno.EACCES, f"no permission ({reason(error)})", address)
    if isinstance(error, LASTING):
        return type(error)(error.errno or errno.EINVAL, reason(error), address)
    # a disk that is full says so by its number, on which callers act
    number = error.errno if isinstance(error, OSError) and error.errno else errno.EIO
    return OSError(number, f"{reason(error)}; tried {tries} times in {seconds:.0f} s", address)


def reason(error: BaseException) -> str:
    """The message of an error, short and without credentials."""
    # the text of an OSError with a number repeats number and file
    silent = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
    text = getattr(error, "strerror", None) or str(error) or silent
    text = QUERY.sub(r"\1?...", " ".join(text.split()))
    for name, value in os.environ.items():  # a store may answer with what it was sent
        if SECRET.search(name) and len(value) > 7:
            text = text.replace(value, f"({name})")
    return text[:200]


class Store:
    """Requests to the store of one protocol; names are whole addresses."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol

    @property
    def fs(self) -> Any:
        """fsspec's file system; opened at each use, as one of a parent process does not work."""
        return filesystem(self.protocol)

    def limit(self, size: int = 0) -> dict[str, float]:
        """The time limit of a try that transfers `size` bytes, as an argument of fsspec's methods.

        Without it, a server that accepts a connection and sends nothing would block for ever.
        """
        return {"timeout": ANSWER + size / SLOWEST} if self.fs.async_impl else {}

    def info(self, address: str) -> dict[str, Any] | None:
        """Type, size and other properties of a file or folder; None if there is neither."""
        try:
            info: dict[str, Any] = request(address, lambda: self.fs.info(address, **self.limit()))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return info

    def names(self, address: str, deep: bool = False) -> dict[str, dict[str, Any]]:
        """Name within a folder -> what is known of it; of all files below it if `deep`."""
        fs = self.fs
        try:
            if deep:
                entries = request(address, lambda: fs.find(address, detail=True, **self.limit()))
            else:
                listed = request(address, lambda: fs.ls(address, detail=True, **self.limit()))
                entries = {entry["name"]: entry for entry in listed}
        except (FileNotFoundError, NotADirectoryError):
            return {}
        # fsspec lists names without protocol, but for https with it
        root = str(fs._strip_protocol(address)).rstrip("/")
        inside = {name.removeprefix(root).strip("/"): entry for name, entry in entries.items()}
        return {name: entry for name, entry in sorted(inside.items()) if name}

    def match(self, pattern: str) -> list[str]:
        """The addresses of the files that a pattern with wildcards stands for."""
        fs = self.fs
        matches = request(pattern, lambda: fs.glob(pattern, detail=True, **self.limit()))
        return sorted(
            str(fs.unstrip_protocol(name))
            for name, entry in matches.items()
            if entry["type"] == "file"
        )

    def read(self, address: str, start: int = 0, stop: int | None = None) -> bytes:
        """The bytes of a file, or those from `start` up to `stop`."""

        limit = self.limit((stop or 0) - start)

        def call() -> bytes:
            data: bytes = self.fs.cat_file(address, start=start or None, end=stop, **limit)
            # a connection that ends early gives fewer bytes, a server without ranges all
            if stop is not None and len(data) != stop - start:
                raise OSError(errno.EIO, f"{len(data)} bytes instead of {stop - start}", address)
            return data

        return request(address, call)

    def download(self, address: str, path: Path) -> None:
        """Write a file of the store to `path`."""
        size = (self.info(address) or {}).get("size") or 0
        request(address, lambda: self.fs.get_file(address, str(path), **self.limit(size)))

    def upload(self, path: Path, address: str) -> None:
        """Put a file into the store, where it appears as a whole."""
        fs = self.fs
        limit = self.limit(path.stat().st_size)
        self._put_whole(address, lambda part: fs.put_file(str(path), part, **limit))

    def put(self, data: bytes, address: str) -> None:
        """Put a small file into the store."""
        fs = self.fs
        limit = self.limit(len(data))
        # in one request, after which a store of objects has all of it or nothing
        self._put_whole(address, lambda part: fs.pipe_file(part, data, **limit))

    def _put_whole(self, address: str, write: Callable[[str], None]) -> None:
        if self.protocol != "file":
            request(address, lambda: write(address))
            return
        # a folder, as of a mounted disk: a file can be seen while it is written
        folder, _, name = address.rpartition("/")
        part = f"{folder}/{TEMPORARY}{os.getpid()}-{name}"
        request(address, lambda: write(part))
        request(address, lambda: self.fs.mv(part, address))

    def remove(self, address: str) -> None:
        """Remove a file, if it is there."""
        try:
            request(address, lambda: self.fs.rm_file(address, **self.limit()))
        except FileNotFoundError:
            return

    def forget_folder(self, address: str) -> None:
        """Remove the folders of files that were removed, where a store has any."""
        if self.protocol == "file" and self.fs.exists(address):
            request(address, lambda: self.fs.rm(address, recursive=True))


@functools.cache
def store(protocol: str) -> Store:
    """The store of a protocol."""
    return Store(protocol)


def store_of(address: str) -> Store:
    """The store of an address."""
    protocol, separator, _ = address.partition("://")
    require(separator, f"{address} is no address")
    return store(protocol)
