"""Indices of a corpus: int64 .npy files of rising offsets, written as they come and mapped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unitk.errors import DataError
from unitk.files import open_plain
from unitk.slots import Ids

CHUNK = 1 << 20


class IndexFile:
    """An int64 .npy file that is written while its length is still unknown."""

    def __init__(self, path: Path) -> None:
        self._file = open_plain(path, "wb")
        self._file.write(_header(0))
        self._count = 0

    def add(self, values: Ids) -> None:
        """Append some offsets."""
        self._file.write(np.ascontiguousarray(values, "<i8").data)
        self._count += len(values)

    def close(self) -> None:
        """Complete the header with the number of offsets."""
        self._file.seek(0)
        self._file.write(_header(self._count))
        self._file.close()


def offsets(path: Path, count: int, total: int) -> Ids:
    """The offsets in an index file: `count` + 1 of them, rising from 0 to `total`."""
    header = _header(count + 1)
    with path.open("rb") as file:
        whole = file.read(len(header)) == header
    if whole and path.stat().st_size == len(header) + 8 * (count + 1):
        found: Ids = mapped(path, "<i8", len(header))
        # a stretch at a time: differences of ten million offsets take 80 MB
        rising = all(
            (np.diff(found[start : start + CHUNK + 1]) >= 0).all()
            for start in range(0, count, CHUNK)
        )
        if found[0] == 0 and found[-1] == total and rising:
            return found
    raise DataError(f"{path} is damaged: it should lead from 0 to {total} in {count} steps")


def _header(count: int) -> bytes:
    """The header of an .npy file of `count` int64, which always has the same length."""
    # padded, so that the count can be written over when it is known
    about = f"{{'descr': '<i8', 'fortran_order': False, 'shape': ({count},), }}"
    return b"\x93NUMPY\x01\x00" + bytes([118, 0]) + about.ljust(117).encode() + b"\n"


def mapped(path: Path, dtype: npt.DTypeLike, offset: int = 0) -> npt.NDArray[Any]:
    """A file as a memory-mapped plain array; numpy's memmap class is slower to slice."""
    return np.asarray(np.memmap(path, dtype, "r", offset))
