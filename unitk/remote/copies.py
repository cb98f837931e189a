"""The cache of this machine: copies of files and folders, and blocks of corpora, up to a size.

    CACHE/copies/KEY/...    a folder or file as it was: the key is that of its names, sizes and tags
    CACHE/blocks/ab/ab...   a block by its SHA-256, for all corpora and processes
    CACHE/runs/s3/...       run folders that are mirrored; CACHE/written/ what is to be uploaded

Of copies and blocks, those that were used longest ago are removed when there are more than
UNITK_CACHE_SIZE bytes. A copy that a process uses is kept: the process holds its lock file.
"""

from __future__ import annotations

import functools
import hashlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from unitk import files
from unitk.errors import CheckpointError, DataError, UsageError
from unitk.files import MANIFEST
from unitk.remote.store import Store, store_of

DIR, SIZE = "UNITK_CACHE_DIR", "UNITK_CACHE_SIZE"
"""Environment variables: the folder of the cache, and its most bytes (with k, M, G or T)."""
DEFAULT_SIZE = "100G"
UNITS = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
INDEX = "remote.json"
"""File of a mirrored run: its identity, and what the links in the run folder lead to."""
OPTIMIZER = ("optim.safetensors", "optim.sharded")
TOKENS, BLOCKS, ELSEWHERE = "tokens.bin", "blocks.sha256", ".remote"
"""Files of a corpus: tokens, the hashes of their blocks, and in a copy the tokens' address."""
HEAVY = (".safetensors", ".bin", ".npy", ".sha256", ".jsonl", ".pt")
"""Endings of files that no vocabulary has."""
TAGS = "ETag", "etag", "mtime", "LastModified", "last_modified", "md5Hash", "content_settings"
"""Names of the field that identifies a file's content in stores."""
CHECK_EVERY = 256 << 20
"""Bytes that a process adds before it looks at the size of the cache again."""

_held: list[IO[Any]] = []
_added = CHECK_EVERY
log = logging.getLogger(__name__)


def cache_dir(kind: str, address: str = "") -> Path:
    """The folder of a kind of content in the cache, or what is in it of an address."""
    home = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    root = Path(os.environ.get(DIR) or Path(home, "unitk")).expanduser()
    if not address:
        return root / kind
    protocol, _, rest = address.partition("://")
    return root.joinpath(kind, protocol, *rest.strip("/").split("/"))


def most_bytes() -> int:
    """The size that the cache is kept below."""
    text = os.environ.get(SIZE) or DEFAULT_SIZE
    digits = text.rstrip("".join(UNITS))
    if not digits.isdecimal() or len(text) - len(digits) > 1:
        raise UsageError(f"--cache-size must be a number such as 100G, got {text!r}")
    return int(digits) * UNITS.get(text[-1:], 1)


def make_room(added: int) -> None:
    """Count `added` bytes; if the cache is too large, remove the least recently used entries."""
    global _added
    _added += added
    # to look at every file takes a while: not for each block
    if _added < min(CHECK_EVERY, most_bytes() // 8):
        return
    _added = 0
    copies: list[tuple[float, int, Path]] = []
    # time stamps of blocks, and of the lock files of copies, say when they were used last
    for path in cache_dir("blocks").glob("*/*"):
        with _ignore_missing():
            status = path.stat()
            copies.append((status.st_mtime, status.st_blocks * 512, path))
    for path in cache_dir("copies").glob("*.lock"):
        with _ignore_missing():
            copy = path.with_suffix("")
            size = sum(file.lstat().st_blocks * 512 for file in copy.rglob("*"))
            copies.append((path.stat().st_mtime, size, path))
    total = sum(size for _, size, _ in copies)
    for _, size, path in sorted(copies):
        if total <= most_bytes():
            break
        if path.suffix != ".lock":
            path.unlink(missing_ok=True)  # who has it mapped keeps it
        elif not _remove_copy(path):
            continue
        total -= size


@contextmanager
def _ignore_missing() -> Iterator[None]:
    """A context that ignores files which another process has removed."""
    try:
        yield
    except FileNotFoundError:
        pass


def _remove_copy(lock: Path) -> bool:
    """Remove a copy and its lock file, unless a process uses it."""
    with lock.open("rb") as file:
        try:
            files.fcntl.flock(file, files.fcntl.LOCK_EX | files.fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        shutil.rmtree(lock.with_suffix(""), ignore_errors=True)
        lock.unlink(missing_ok=True)
    return True


def fill_once(key: str, size: int, fill: Callable[[Path], None]) -> Path:
    """The folder of a key in the cache, which `fill` fills if it is not there.

    Processes of this machine wait for the one that fills it. It stays as long as this process runs.
    """
    folder = cache_dir("copies") / hashlib.sha256(key.encode()).hexdigest()[:24]
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = folder.with_name(f"{folder.name}.lock")
    while True:
        file = files.open_plain(lock, "a")
        files.fcntl.flock(file, files.fcntl.LOCK_EX)
        with _ignore_missing():
            if os.path.samestat(os.fstat(file.fileno()), lock.stat()):
                break
        file.close()  # it was removed with its copy
    os.utime(lock)
    if not folder.exists():
        make_room(size)
        with files.fill_whole(folder, folder=True) as path:
            fill(path)
    # held until the process ends, and never closed: nobody may remove the copy
    files.fcntl.flock(file, files.fcntl.LOCK_SH)
    _held.append(file)
    return folder


@functools.cache
def fetch_file(address: str) -> Path:
    """A copy of a file, under its own name."""
    store = store_of(address)
    name = address.rstrip("/").rpartition("/")[2] or "file"
    if (info := store.info(address)) is None:
        raise FileNotFoundError(2, "there is no such file", address)
    key = json.dumps([address, _tag(info)])

    def fill(folder: Path) -> None:
        store.download(address, folder / name)

    return fill_once(key, info.get("size") or 0, fill) / name


def _tag(info: dict[str, Any]) -> list[str]:
    return [str(info.get(name)) for name in ("size", *TAGS) if info.get(name) is not None]


@functools.cache
def fetch_part(address: str, kind: str) -> Path:
    """Copy a folder to this machine, as far as its use as `kind` needs it: a "checkpoint", a
    "vocab", a "corpus", or all "files". A single file is copied as it is."""
    store = store_of(address)
    info = store.info(address)
    if info is not None and info["type"] == "file":
        return fetch_file(address)
    names = store.names(address, deep=True)
    if not names and (target := _follow_link(store, address)):
        return fetch_part(target, kind)
    if not names:
        fault = DataError if kind == "corpus" else CheckpointError
        raise fault(f"{address}: there is no such file or folder")
    if kind != "corpus" and (INDEX in names or any(n.startswith("checkpoints/") for n in names)):
        return fetch_part(_best(store, address, names), kind)
    return fetch_folder(store, address, names, kind)


def _follow_link(store: Store, address: str) -> str:
    """The checkpoint that a link such as RUN/best leads to; "" if there is no such run."""
    run, _, name = address.rstrip("/").rpartition("/")
    target = index_of(store, run).get("links", {}).get(name)
    return f"{run}/{target}" if target else ""


def _best(store: Store, address: str, names: dict[str, Any]) -> str:
    """The best checkpoint of a run, else its newest one; one that is there has its manifest."""
    complete = checkpoints(names)
    if not complete:
        raise CheckpointError(f"the run {address} has no checkpoint yet")
    # the index may be older than the checkpoints: its best one may be gone
    best = index_of(store, address).get("links", {}).get("best", "")
    return f"{address}/{best if best in complete.values() else complete[max(complete)]}"


def checkpoints(names: dict[str, Any]) -> dict[int, str]:
    """Step -> name of the folder of each checkpoint of a run that is complete."""
    folders = dict[int, str]()
    for name in names:
        # such as checkpoints/step-200/manifest.json
        if match := re.fullmatch(rf"([^/]*/step-(\d+))/{re.escape(MANIFEST)}", name):
            folders[int(match[2])] = match[1]
    return folders


def index_of(store: Store, run: str) -> dict[str, Any]:
    """The index of a mirrored run; empty if there is none."""
    try:
        index: dict[str, Any] = json.loads(store.read(f"{run}/{INDEX}"))
    except (FileNotFoundError, ValueError):
        return {}
    return index


def fetch_folder(store: Store, address: str, names: dict[str, Any], kind: str) -> Path:
    """A copy of a folder without what its use as `kind` does not need.

    Of a checkpoint the optimizer's tensors are left out, of a corpus its tokens, which are read by
    blocks: files of the same sizes without content stand for them.
    """

    def left_out(name: str) -> bool:
        last = name.rpartition("/")[2]
        if kind == "corpus":
            return last == TOKENS and name.replace(TOKENS, BLOCKS) in names
        return kind == "checkpoint" and not set(OPTIMIZER).isdisjoint(name.split("/"))

    if kind == "vocab":
        names = {name: info for name, info in names.items() if not name.endswith(HEAVY)}

    def fill(folder: Path) -> None:
        log.info("%s is copied into the cache", address)
        for name, info in names.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if not left_out(name):
                store.download(f"{address}/{name}", path)
                continue
            with files.open_plain(path, "wb") as empty:
                empty.truncate(info["size"])
            if kind == "corpus":
                files.create(path.with_name(ELSEWHERE), f"{address}/{name}")

    # what changes in the store is another key: a copy is never written to
    key = json.dumps([address, kind, {name: _tag(info) for name, info in names.items()}])
    size = sum(info.get("size") or 0 for name, info in names.items() if not left_out(name))
    return fill_once(key, size, lambda folder: fill(folder / "x")) / "x"
