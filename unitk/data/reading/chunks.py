"""CNN/DailyMail as See et al. 2017 chunked it (arXiv 1704.04368): `.bin` files of tf.train.Example.

A file is records, each an int64 (little-endian) of its size and so many bytes: a protocol buffer
whose field 1 is a map (field 1 again) of names to lists of bytes. TensorFlow is not needed.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

from unitk.data.reading.sources import PairText, pieces
from unitk.errors import DataError

SENTENCE = re.compile(r"<s>(.*?)</s>", re.DOTALL)
FIXED = {1: 8, 5: 4}
"""Bytes of the wire types of a fixed size; 0 is a varint, 2 has its size before it."""


def read_chunk(path: Path) -> Iterator[PairText]:
    """The pairs of a file: article -> the sentences of its abstract, one a line."""
    data, at = b"".join(piece for piece, _ in pieces(path)), 0
    while at < len(data):
        where = f"{path}, byte {at}"
        size = struct.unpack("<q", data[at : at + 8].ljust(8, b"\0"))[0]
        record, at = data[at + 8 : at + 8 + size], at + 8 + size
        try:
            if not 0 <= size == len(record):
                raise IndexError
            found = features(record)
            article, abstract = (found[name].decode() for name in ("article", "abstract"))
        except (IndexError, KeyError, UnicodeDecodeError) as error:
            raise DataError(f"{where}: no tf.train.Example of article and abstract") from error
        lines = [one.strip() for one in SENTENCE.findall(abstract)]
        yield PairText([article.strip()], "\n".join(lines or [abstract.strip()]))


def features(record: bytes) -> dict[str, bytes]:
    """The features of a tf.train.Example that are bytes, and of each the first value."""
    found = {}
    for entry in _inside(b"".join(_inside(record))):
        key, value = (b"".join(_inside(entry, number)) for number in (1, 2))
        found[key.decode()] = next(_inside(b"".join(_inside(value))), b"")
    return found


def _inside(message: bytes, wanted: int = 1) -> Iterator[bytes]:
    """The values of one field of a message; raises IndexError where it is cut off."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        number, kind = tag >> 3, tag & 7
        if kind == 0:
            _, at = _varint(message, at)
            continue
        size, at = _varint(message, at) if kind == 2 else (FIXED.get(kind, len(message)), at)
        if at + size > len(message):
            raise IndexError
        if kind == 2 and number == wanted:
            yield message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    value = shift = 0
    while True:
        byte = message[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at
