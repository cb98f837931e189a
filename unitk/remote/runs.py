"""Run folders that are mirrored: written on this machine, complete in a store, continued from it.

    RUN/config.yaml  README.md  log.jsonl  ...    as on this machine when a checkpoint was saved
    RUN/checkpoints/step-200/...                  its files, and at last its manifest.json
    RUN/remote.json                               identity of the run, and where its links lead

A checkpoint without a manifest is none. So files are uploaded before the manifest, and the manifest
is removed before files. What the store has is the run; only where this machine has a later
checkpoint of the same run that could not be uploaded, the run continues from that one.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from unitk import files
from unitk.errors import UsageError, require
from unitk.files import MANIFEST, OLD, TEMPORARY
from unitk.remote import copies
from unitk.remote.copies import INDEX
from unitk.remote.store import Store, store_of

FORMAT = 1
CONFIG = "config.yaml"
IDENTITY = ".mirrored"
"""File of a run folder on this machine: the identity of the run that it is a part of."""
OWN = (TEMPORARY, OLD, "damaged-", ".lock", IDENTITY, ".bring")
"""How the names of files and folders begin that are not mirrored."""

_sent: dict[tuple[str, str], tuple[int, int]] = {}
"""(Run, name) -> size and time stamp of a file as it was uploaded by this process."""
_brought: set[str] = set()
_told: set[str] = set()
log = logging.getLogger(__name__)


def bring(address: str, resume: bool) -> Path:
    """The local folder of a mirrored run; with `resume`, made equal to the run in the store.

    Raises `UsageError` if the store does not answer.
    """
    folder = copies.cache_dir("runs", address)
    if address in _brought:
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with files.open_plain(folder / ".bring", "a") as lock:
        files.fcntl.flock(lock, files.fcntl.LOCK_EX)  # ranks of this machine: one of them brings it
        try:
            _fetch(store_of(address), address, folder, resume)
        except OSError as error:
            raise UsageError(f"--save-dir {address} cannot be read: {error.strerror}") from error
    if resume:
        _brought.add(address)
    return folder


def _fetch(store: Store, address: str, folder: Path, resume: bool) -> None:
    """Make a folder equal to the run in the store, unless the folder has a later checkpoint."""
    names = store.names(address, deep=True)
    stored = copies.checkpoints(names)
    refusal = f"--save-dir {address} holds a run: --resume continues it, otherwise name another"
    require(resume or not ({CONFIG, "log.jsonl"} & set(names) or stored), refusal)
    index = copies.index_of(store, address) if names else {}
    identity = folder / IDENTITY
    run = identity.read_text(encoding="utf-8") if identity.exists() else None
    if run is not None and run != index.get("run"):  # removed in the store, or another run now
        _clear(folder)
    elif run is None and names:
        _clear(folder)
    if not names:
        require(resume or not (folder / CONFIG).exists(), f"{refusal} (it is in {folder})")
        return
    numbers = [path.name[5:] for path in folder.glob("checkpoints/step-*")]
    local = [int(number) for number in numbers if number.isdecimal()]
    alone = os.environ.get("WORLD_SIZE", "1") == os.environ.get("LOCAL_WORLD_SIZE", "1")
    # ranks of several machines must agree on where they go on: on what the store has
    if run is not None and alone and max(local, default=0) > max(stored, default=0):
        log.info("%s lacks step %d, which is in %s", address, max(local), folder)
        return
    # later ones of a run that went on elsewhere, and what was pruned meanwhile
    for step in set(local) - set(stored):
        files.discard(folder / "checkpoints" / f"step-{step}", folder)
    _download(store, address, folder, names)
    for name, target in index.get("links", {}).items():
        files.link(folder / name, Path(target))
    if "run" in index:
        files.create(identity, index["run"])


def _download(store: Store, address: str, folder: Path, names: dict[str, Any]) -> None:
    """Download the checkpoints and the other files of a run, whose names in the store these are."""
    for name in copies.checkpoints(names).values():
        _checkpoint(store, f"{address}/{name}", folder / name, _names_in(names, name))
    for name in names:
        if _is_mirrored(name) and not name.startswith("checkpoints/") and name != INDEX:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            with files.fill_whole(folder / name) as path:
                store.download(f"{address}/{name}", path)


def _names_in(names: Iterable[str], folder: str) -> list[str]:
    return [name.removeprefix(f"{folder}/") for name in names if name.startswith(f"{folder}/")]


def _checkpoint(store: Store, address: str, folder: Path, names: list[str]) -> None:
    """Make a checkpoint on this machine equal to the one in the store."""
    manifest = store.read(f"{address}/{MANIFEST}")
    # hashes of all files: what is good here need not be downloaded
    same = (folder / MANIFEST).exists() and (folder / MANIFEST).read_bytes() == manifest
    if same and files.damage(folder) is None:
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with files.fill_whole(folder, folder=True) as path:
        # what is not listed was left out of it, or belongs to one that is being replaced
        for name in [*json.loads(manifest)["files"]]:
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            if name in names:  # what is missing makes it a damaged one, which is passed over
                store.download(f"{address}/{name}", path / name)
        files.create(path / MANIFEST, manifest)


def _clear(folder: Path) -> None:
    """Remove what belongs to another run."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        elif path.name not in (".lock", ".bring"):
            path.unlink()


def mirror(run_folder: Path, address: str) -> None:
    """Make the run in the store equal to the one on this machine.

    Raises OSError; a checkpoint is then complete there, or not there at all.
    """
    store = store_of(address)
    names = store.names(address, deep=True)
    local = _mirrored_files(run_folder)
    if address not in _told:
        _told.add(address)
        log.info("checkpoints are uploaded to %s", address)
    if INDEX not in names:  # what follows has an identity
        _index(store, address, run_folder)
    for name in local:
        if not name.startswith("checkpoints/"):
            _send(store, address, run_folder, name)
    folders = {"/".join(name.split("/")[:2]) for name in local if name.startswith("checkpoints/")}
    for folder in sorted(folders, key=lambda name: (len(name), name)):
        if f"{folder}/{MANIFEST}" in local:
            _upload(store, f"{address}/{folder}", run_folder / folder, _names_in(names, folder))
    # links last: they lead to checkpoints that are there
    _index(store, address, run_folder)
    removed = sorted(
        {"/".join(name.split("/")[:2]) for name in names if "/step-" in name} - folders
    )
    for folder in removed:
        _remove(store, f"{address}/{folder}", _names_in(names, folder))


def _mirrored_files(folder: Path) -> dict[str, object]:
    """The files of a run folder that are mirrored, by name."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    links = [name for name, path in paths.items() if path.is_symlink()]

    def is_kept(name: str) -> bool:
        linked = any(name == link or name.startswith(f"{link}/") for link in links)
        return not linked and _is_mirrored(name)

    return {name: path for name, path in paths.items() if path.is_file() and is_kept(name)}


def _is_mirrored(name: str) -> bool:
    return not any(part.startswith(OWN) for part in name.split("/"))


def _send(store: Store, address: str, folder: Path, name: str) -> None:
    """Upload a file, if it is not what this process uploaded last."""
    status = (folder / name).stat()
    mark = status.st_size, status.st_mtime_ns
    if _sent.get((address, name)) != mark:
        # as it is at this moment: a log may grow meanwhile
        store.put((folder / name).read_bytes(), f"{address}/{name}")
        _sent[address, name] = mark


def _upload(store: Store, address: str, folder: Path, stored: list[str]) -> None:
    """Upload a checkpoint, its manifest last: without one, it does not count as a checkpoint."""
    manifest = (folder / MANIFEST).read_bytes()
    key = address, MANIFEST
    if MANIFEST in stored:
        mark = (folder / MANIFEST).stat()
        if _sent.get(key) == (mark.st_size, mark.st_mtime_ns):
            return
        if not _extends(store.read(f"{address}/{MANIFEST}"), manifest):
            store.remove(f"{address}/{MANIFEST}")  # another one of this step: it is none until done
            stored = []
    for name in sorted(files.below(folder)):
        if name not in stored or MANIFEST not in stored:
            store.upload(folder / name, f"{address}/{name}")
    if MANIFEST not in stored or store.read(f"{address}/{MANIFEST}") != manifest:
        store.put(manifest, f"{address}/{MANIFEST}")
    for name in set(stored) - set(files.below(folder)) - {MANIFEST}:
        store.remove(f"{address}/{name}")  # the optimizer of one that is kept by name
    mark = (folder / MANIFEST).stat()
    _sent[key] = mark.st_size, mark.st_mtime_ns


def _extends(old: bytes, new: bytes) -> bool:
    """Whether a manifest lists nothing but what another one does."""
    try:
        before, now = (json.loads(manifest)["files"] for manifest in (old, new))
    except (ValueError, KeyError):
        return False
    return all(before.get(name) == entry for name, entry in now.items())


def _index(store: Store, address: str, folder: Path) -> None:
    """Write where the links of a run lead, and its identity, which is drawn once."""
    identity = folder / IDENTITY
    if not identity.exists():
        files.create(identity, uuid.uuid4().hex)
    # a store has no links
    links = {path.name: os.readlink(path) for path in sorted(folder.iterdir()) if path.is_symlink()}
    index = {"format": FORMAT, "run": identity.read_text(encoding="utf-8"), "links": links}
    data = json.dumps(index, indent=1).encode() + b"\n"
    store.put(data, f"{address}/{INDEX}")


def _remove(store: Store, address: str, names: list[str]) -> None:
    for name in sorted(names, key=lambda name: name != MANIFEST):
        store.remove(f"{address}/{name}")
    store.forget_folder(address)
