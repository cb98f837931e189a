"""The tokens of a corpus that stays in a store, read by blocks of 1 MB.

A block is named by its SHA-256, which the corpus lists, so that the cache may have it from any
process, run or corpus, and one that is damaged is fetched again. Reading a text maps the one or two
blocks that it is in.
"""

from __future__ import annotations

import hashlib
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unitk import files
from unitk.errors import DataError
from unitk.remote import copies
from unitk.remote.store import store_of

BLOCK = 1 << 20
"""Bytes of a block, as `blocks.sha256` of a corpus counts them."""
MAPPED = 512
"""Blocks that a process has mapped at a time."""


class Blocks:
    """An array of tokens, of which a slice is read when it is asked for."""

    def __init__(self, address: str, size: int, hashes: bytes, dtype: npt.DTypeLike) -> None:
        self.address = address
        self.nbytes = size
        self.dtype = np.dtype(dtype)
        self.hashes = [hashes[i : i + 32] for i in range(0, len(hashes), 32)]
        self._mapped: OrderedDict[int, npt.NDArray[Any]] = OrderedDict()

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    def __len__(self) -> int:
        return self.nbytes // self.itemsize

    def __getitem__(self, where: slice | int) -> Any:
        if not isinstance(where, slice):
            return self[where : where + 1][0]
        start, stop, _ = where.indices(len(self))
        # ids have 2 or 4 bytes, so none is cut by the end of a block
        items = BLOCK // self.itemsize
        parts = []
        for number in range(start // items, -(-stop // items) if stop > start else 0):
            low = number * items
            parts.append(self._block(number)[max(start - low, 0) : stop - low])
        if len(parts) == 1:
            return parts[0]
        return np.concatenate(parts) if parts else np.empty(0, self.dtype)

    def _block(self, number: int) -> npt.NDArray[Any]:
        if number in self._mapped:
            self._mapped.move_to_end(number)
            return self._mapped[number]
        name = self.hashes[number].hex()
        path = copies.cache_dir("blocks") / name[:2] / name
        block = self._read_block(path, number)
        if block is None:
            self._fetch(path, number)
            block = self._read_block(path, number)
        if block is None:
            raise DataError(f"{path}: the cache does not keep what is written into it")
        self._mapped[number] = block
        if len(self._mapped) > MAPPED:
            self._mapped.popitem(last=False)
        return block

    def _read_block(self, path: Path, number: int) -> npt.NDArray[Any] | None:
        """A block of the cache; None if it is not there or damaged."""
        try:
            block = np.asarray(np.memmap(path, self.dtype, "r"))
            os.utime(path)
        except (FileNotFoundError, ValueError):
            return None
        # a block is hashed whenever it is mapped: a disk that lost power may have anything
        return block if hashlib.sha256(block.data).digest() == self.hashes[number] else None

    def _fetch(self, path: Path, number: int) -> None:
        start = number * BLOCK
        stop = min(start + BLOCK, self.nbytes)
        data = store_of(self.address).read(self.address, start, stop)
        if hashlib.sha256(data).digest() != self.hashes[number]:
            raise DataError(
                f"{self.address} was altered: its bytes from {start:,} on are not those of "
                f"{copies.BLOCKS}"
            )
        # not synced: a block is hashed before it is used
        copies.make_room(len(data))
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f"{files.TEMPORARY}{os.getpid()}-{path.name}")
        files.create(part, data)
        files.finish(part, path)
