"""Files of vectors as word2vec writes them: a name and its numbers a line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from unitk.data.files.labels import split_words
from unitk.data.files.lines import read_lines
from unitk.errors import DataError


def read_vectors(path: Path) -> tuple[list[str], npt.NDArray[np.float32]]:
    """The names of a file and their vectors [N, D].

    A line has a name and D numbers; the first one may have N and D. A checkpoint's copy has D = 0.
    """
    names = list[str]()
    rows = list[npt.NDArray[np.float32]]()
    width = -1
    where = dict[str, int]()
    for number, line in enumerate(read_lines(path), 1):
        name, *values = split_words(line) or [""]
        place = f"{path}, line {number}"
        # the counts of word2vec's first line
        if number == 1 and len(values) == 1 and name.isdecimal() and values[0].isdecimal():
            width = int(values[0])
            continue
        try:
            row = np.array(values, np.float32)
        except ValueError as error:
            raise DataError(f"{place}: not a name and the numbers of its vector") from error
        width = len(row) or width if width < 0 else width
        if not name or len(row) != width or not np.isfinite(row).all():
            raise DataError(
                f"{place}: a name and {max(width, 1)} finite numbers are needed here, "
                f"got {len(row)}"
            )
        if name in where:
            raise DataError(f"{place}: {name} has a vector in line {where[name]}")
        where[name] = number
        names.append(name)
        rows.append(row)
    if not names:
        raise DataError(f"{path}: there is no vector in it")
    return names, np.stack(rows)
