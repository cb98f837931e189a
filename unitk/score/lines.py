"""Reading files of one text a line."""

from __future__ import annotations

import gzip
import sys
import zlib
from pathlib import Path

from unitk.errors import DataError


def read_lines(path: Path) -> list[str]:
    """The lines of a UTF-8 file, without line ends; `.gz` is unpacked, `-` is standard input.

    Only newlines end a line: other separators that Unicode knows may stand inside a text.
    """
    name = "standard input" if str(path) == "-" else str(path)
    try:
        data = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        if path.suffix == ".gz":
            data = gzip.decompress(data)
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{name}, line {line}: not UTF-8") from error
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{name}: no gzip file, or cut off") from error
    except OSError as error:
        raise DataError(f"{name}: {error.strerror}") from error
    if not text:
        raise DataError(f"{name} is empty")
    return [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
