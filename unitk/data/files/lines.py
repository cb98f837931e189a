"""Files as lines: packed, streamed or plain, in blocks of about a megabyte.

Memory does not grow with a file, and blocks can be parsed in parallel. Everything is UTF-8; `.gz`,
`.bz2`, `.xz` and `.zst` are unpacked everywhere. Standard input (`-`) and pipes are copied to a
temporary file first, as some readers need a second pass.
"""

from __future__ import annotations

import bz2
import errno
import functools
import lzma
import shutil
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, TypeVar

from unitk.errors import DataError
from unitk.foreign import require_file

BLOCK = 1 << 20
"""Bytes of text parsed at a time. Shards are made of whole blocks, so it is the same everywhere."""
RECORDS_IN_BLOCK = 2000  # of files that are not read by bytes
LONGEST = 16 << 20  # bytes of a line; to encode one takes forty times as much memory
WHOLE, MOST_AT_ONCE = 1 << 30, 1 << 28
"""Most unpacked bytes of a packed file that is read as a whole, and of 64 kB of any packed file."""
RECORDS = "unitk-records-"
"""How a temporary folder begins that has records of a Python program as files."""
STDIN = Path("-")
T = TypeVar("T")
MAGIC = {
    b"PAR1": "parquet",
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"(\xb5/\xfd": "zstd",
    b"PK\3\4": "zip",
    b"%PDF": "PDF",
    b"\x89PNG": "PNG",
    b"\xff\xfe\0\0": "UTF-32",
    b"\0\0\xfe\xff": "UTF-32",
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
}
"""How files begin that are no UTF-8 text."""


@dataclass(frozen=True)
class Block:
    """Whole lines of a file; `at` is where the block begins in all files, in bytes on disk.

    Where documents end at blank lines or marks, a block that is not `fresh` begins inside one.
    """

    path: Path
    line: int
    at: int
    fresh: bool
    data: bytes
    format: str = "text"
    texts: tuple[str, ...] | None = None
    """The documents of a table that is not read line by line, instead of `data`."""


def is_stream(path: Path) -> bool:
    """Whether a path can be read only once: standard input, a named pipe or a device."""
    return path == STDIN or path.is_fifo() or path.is_char_device()


def name_file(path: Path) -> str:
    """The name of a file in messages; of records in memory, the option that has them."""
    if path.parent.name.startswith(RECORDS):
        return path.stem
    return "standard input" if path == STDIN else str(path)


def _zstd() -> Any:
    try:
        import zstandard
    except ModuleNotFoundError as error:
        raise DataError(
            ".zst files need the package zstandard: pip install unitk[zstandard]"
        ) from error
    return zstandard.ZstdDecompressor().decompressobj()


UNPACK: dict[str, Callable[[], Any]] = {
    ".gz": lambda: zlib.decompressobj(31),
    ".bz2": bz2.BZ2Decompressor,
    ".xz": lzma.LZMADecompressor,
    ".zst": _zstd,
}
"""Extension -> a function that makes a decompressor."""
PACKED = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "zstd"}


def strip_packing(path: Path) -> Path:
    """A path without the ending of a packed file."""
    return path.with_suffix("") if compression_of(path) in UNPACK else path


def compression_of(path: Path) -> str:
    """The ending of a file in lower case, which tells how it is packed, if it is."""
    return path.suffix.lower()


@contextmanager
def filling_temporary() -> Iterator[None]:
    """A context that writes temporary files: where the disk takes no more, errors name it."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise DataError(
            f"the temporary folder {tempfile.gettempdir()}: {error.strerror}; "
            "set the environment variable TMPDIR to another one"
        ) from error


@functools.cache
def _spool(path: Path, stdin: Any) -> IO[bytes]:
    """Copy a stream to a temporary file."""
    file = tempfile.TemporaryFile()
    with filling_temporary(), nullcontext(stdin) if stdin else path.open("rb") as stream:
        start = stream.read(BLOCK)
        if b"\0" in start and path.is_char_device():  # it may never end, as /dev/zero
            raise DataError(f"{name_file(path)} is a device of binary data, not a text")
        file.write(start)
        shutil.copyfileobj(stream, file, BLOCK)
        file.flush()
    return file


def open_file(path: Path) -> AbstractContextManager[IO[bytes]]:
    """Open a file, or the copy of a stream, at its beginning."""
    if not is_stream(path):
        require_file(path)
        return path.open("rb")
    file = _spool(path.absolute(), sys.stdin.buffer if path == STDIN else None)
    file.seek(0)
    return nullcontext(file)


def size_of(path: Path) -> int:
    """The size of a file in bytes on disk, packed if it is."""
    with open_file(path) as file:
        return file.seek(0, 2)


def read_pieces(path: Path) -> Iterator[tuple[bytes, int]]:
    """The unpacked bytes of a file in pieces, each with the bytes on disk that were read so far."""
    packed = compression_of(path)
    # zstandard takes no limit, but makes at most 32,768 bytes of each that it is given
    takes_limit = packed != ".zst"
    try:
        after = 0  # counted, as a pipe cannot tell
        size = size_of(path)
        with open_file(path) as file:
            if packed not in UNPACK:
                while piece := file.read(BLOCK >> 2):
                    after += len(piece)
                    yield piece, after
                if after < size:
                    raise DataError(f"{name_file(path)}: cut short while it was read")
                return
            # not gzip.open: how far it reads ahead is the library's business, shards depend on it
            unpack = UNPACK[packed]()
            while piece := file.read(BLOCK >> (4 if takes_limit else 9)):
                after += len(piece)
                while piece := piece.lstrip(b"\0") if unpack.eof else piece:
                    # what follows the end, and no padding, is another member
                    unpack = UNPACK[packed]() if unpack.eof else unpack
                    unpacked = unpack.decompress(piece, *[MOST_AT_ONCE] * takes_limit)
                    if len(unpacked) >= MOST_AT_ONCE:
                        raise DataError(
                            f"{path}: {len(piece):,} bytes of it are {MOST_AT_ONCE:,} or more "
                            "unpacked; unpack it yourself"
                        )
                    yield unpacked, after
                    piece = unpack.unused_data if unpack.eof else b""
            if after and not unpack.eof:
                raise DataError(f"{path}: cut off, the end of the {PACKED[packed]} data is missing")
    except _damage() as error:
        # bz2 raises an OSError without a reason
        reason = getattr(error, "strerror", None) or f"no {PACKED.get(packed)} data, or damaged"
        raise DataError(f"{name_file(path)}: {reason}") from error


def _damage() -> tuple[type[Exception], ...]:
    """The exceptions that the system and the libraries raise for files and damaged data."""
    zstd = sys.modules.get("zstandard")
    return OSError, zlib.error, lzma.LZMAError, *([zstd.ZstdError] if zstd else [])


def head(path: Path) -> bytes:
    """The beginning of a file of text, without a byte order mark."""
    start, _ = next(read_pieces(path), (b"", None))
    _check_text(path, start)
    return start.removeprefix(b"\xef\xbb\xbf")


def blocks(path: Path, end: str | None = None, base: int = 0) -> Iterator[Block]:
    """The lines of a file, about a megabyte at a time.

    `end` is what ends a document: a mark, or "" for a blank line; None: every line is one.
    """
    waiting: list[bytes] = []
    size, line, at, fresh = 0, 1, 0, True
    for piece, after in read_pieces(path):
        if not at and not waiting:
            _check_text(path, piece)
            check_ends(path, piece)
        cut = piece.rfind(b"\n") + 1  # a newline is never part of another character
        if size + cut < BLOCK or not cut:
            waiting.append(piece)
            size += len(piece)
            if size > LONGEST:
                line += b"".join(waiting).count(b"\n")
                raise DataError(
                    f"{name_file(path)}, line {line}: "
                    f"longer than {LONGEST >> 20} MB; break it into several lines"
                )
            continue
        data = b"".join([*waiting, piece[:cut]])
        yield Block(path, line, base + at, fresh, data)
        waiting = [piece[cut:]]
        size = len(piece) - cut
        line += data.count(b"\n")
        at = after
        fresh = _ends_document(data, end, fresh)
    if (data := b"".join(waiting)) not in (b"", b"\xef\xbb\xbf"):  # a mark is no line
        yield Block(path, line, base + at, fresh, data)


def _ends_document(data: bytes, end: str | None, fresh: bool) -> bool:
    """Whether a document ends after some lines; they begin a `fresh` one or go on with another."""
    if end is None:
        return True
    text = data.decode("utf-8", "replace")
    if not end:
        return not text[text.rfind("\n", 0, -1) + 1 :].strip()
    text = text.rstrip()
    return text.endswith(end) if text else fresh


def _check_text(path: Path, start: bytes) -> None:
    """Refuse a file that begins as no UTF-8 text does, with what converts it."""
    kind = "tar" * (start[257:262] == b"ustar")
    kind = next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), kind)
    # of UTF-16 without a mark, every other byte of Latin letters is 0, and of the rest hardly one
    even, odd = (start[i:1000:2].count(0) for i in (0, 1))
    if not kind and 4 * max(even, odd) > min(len(start), 1000):
        kind = "UTF-16BE" if even > 9 * odd else "UTF-16LE" if odd > 9 * even else "binary data"
    cures = {of: f"; with a name that ends in {end} it is unpacked" for end, of in PACKED.items()}
    cures |= {"tar": "; unpack it", "zip": "; unpack it, or save a spreadsheet as CSV UTF-8"}
    cure = f"; `iconv -f {kind} -t UTF-8` converts it" if "UTF" in kind else cures.get(kind, "")
    if kind:
        raise DataError(f"{name_file(path)} is {kind}, not UTF-8 text{cure}")


def check_ends(path: Path, start: bytes) -> None:
    """Refuse a beginning, or a whole file, whose lines end in carriage returns alone."""
    if b"\r" in start.strip() and b"\n" not in start:
        raise DataError(
            f"{name_file(path)}: lines end in carriage returns (\\r) alone, not in newlines; `tr "
            "'\\r' '\\n'` converts it"
        )


def lines_of(block: Block) -> list[str]:
    """The lines of a block as text."""
    # only a newline ends a line: other separators that Unicode knows may be inside a text
    return _decode(block).removesuffix("\n").split("\n")


def _decode(block: Block) -> str:
    data = text_of(block)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = block.line + data.count(b"\n", 0, error.start)
        raise DataError(
            f"{name_file(block.path)}, line {line}: not UTF-8 (byte 0x{data[error.start]:02x}); "
            "`iconv -f ENCODING -t UTF-8` converts it"
        ) from error


def number_lines(block: Block) -> Iterator[tuple[str, str]]:
    """The lines of a block, each with its place for messages."""
    name = name_file(block.path)
    for number, line in enumerate(lines_of(block), block.line):
        yield line, f"{name}, line {number}"


def numbered_lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a file, each with its place for messages."""
    return chain.from_iterable(map(number_lines, blocks(path)))


def split_in_groups(items: Iterable[T]) -> Iterator[list[T]]:
    """Records or pairs, as many at a time as a block has."""
    rest = iter(items)
    while some := list(islice(rest, RECORDS_IN_BLOCK)):
        yield some


def text_of(block: Block) -> bytes:
    """The bytes of a block without the file's byte order mark."""
    return block.data.removeprefix(b"\xef\xbb\xbf") if block.line == 1 else block.data


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a file without blanks around them."""
    return (line.strip() for line, _ in numbered_lines(path))


def read_text(path: Path) -> str:
    """The whole text of a file that cannot be read in blocks.

    Raises DataError for a packed one of more than `WHOLE` bytes, as no name tells its size.
    """
    data = bytearray()
    for piece, _ in read_pieces(path):
        data += piece
        if len(data) > WHOLE and compression_of(path) in UNPACK:
            raise DataError(f"{path}: more than {WHOLE:,} bytes unpacked; unpack it yourself")
    block = Block(path, 1, 0, True, bytes(data))
    _check_text(path, block.data)
    return _decode(block)
