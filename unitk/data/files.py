"""The files a user names, as blocks of text or pairs."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from unitk.data import sources
from unitk.data.pairs import Fields, record_blocks
from unitk.data.sources import (
    Block,
    Format,
    PairBlock,
    Reading,
    blocks,
    by_blank,
    format_of,
    pair_blocks,
    parse,
    read_squad,
)
from unitk.errors import DataError, UsageError


def expand(patterns: Sequence[str], option: str) -> list[Path]:
    """The files a user named, in order; quoted wildcards are expanded here."""
    found: list[Path] = []
    for pattern in patterns:
        path = Path(pattern)
        if path.is_file():
            found.append(path)
        elif path.is_dir():
            raise DataError(f"{option} {path} is a folder; name its files: '{path}/*.txt'")
        elif glob.has_magic(pattern):
            names = [Path(name) for name in sorted(glob.glob(pattern, recursive=True))]
            files = [name for name in names if name.is_file()]
            if not files:
                raise DataError(f"{option} {pattern}: no file has such a name")
            found += files
        elif path.exists():
            raise DataError(f"{option} {path} is a pipe or a device; a file is read several times")
        else:
            raise DataError(f"{option} {path}: no such file")
    for path, times in Counter(found).items():
        if times > 1:
            raise UsageError(f"{option} names {path} twice")
    return found


@dataclass(frozen=True)
class Source:
    """The files of one part of a corpus (train, valid or test)."""

    paths: list[Path]
    targets: list[Path]
    """For parallel files, the other side of each of `paths`."""
    reading: Reading | None
    """None: the files hold pairs."""
    fields: Fields | None = None
    """Of pairs in records; None: in SQuAD's json, or parallel files."""
    window: int | None = None
    form: str = ""
    """Of SQuAD's pairs, as `window`: see `PairBlock`."""

    @property
    def kind(self) -> str:
        """The kind of corpus they make."""
        return "text" if self.reading else "pairs"

    @property
    def size(self) -> int:
        """Bytes on disk, for progress and shards."""
        return sum(path.stat().st_size for path in self.paths)

    def blocks(self) -> Iterator[Block | PairBlock]:
        """All files, a block at a time."""
        base = 0
        for i, path in enumerate(self.paths):
            if self.reading:
                yield from blocks(path, by_blank(self.reading), base)
            else:
                for block in self._pairs(i, path, base):
                    yield replace(block, window=self.window, form=self.form)
            base += path.stat().st_size

    def _pairs(self, number: int, path: Path, base: int) -> Iterator[PairBlock]:
        if self.targets:
            yield from pair_blocks(path, self.targets[number], base)
        elif self.fields:
            yield from record_blocks(path, self.fields, base)
        else:
            pairs = list(read_squad(path))
            step = path.stat().st_size / max(len(pairs), 1)
            for first in range(0, len(pairs), sources.PAIRS_IN_BLOCK):
                some = pairs[first : first + sources.PAIRS_IN_BLOCK]
                yield PairBlock(path, base + int(first * step), some)

    def lines(self) -> Iterator[str]:
        """Every sentence, or every part of a source and every target."""
        for block in self.blocks():
            if isinstance(block, PairBlock):
                for pair in block.pairs:
                    yield from (*pair.source, pair.target)
            else:
                assert self.reading is not None
                yield from parse(block, self.reading).sentences


def open_source(
    paths: Iterable[Path],
    given: Format,
    reading: Reading | Fields,
    option: str,
    window: int | None = None,
    form: str = "",
) -> Source:
    """Files of text, json-lines or SQuAD json, all of the same format; or records of pairs."""
    paths = list(paths)
    formats = {format_of(path, given): path for path in paths}
    if isinstance(reading, Fields):
        if "text" in formats:
            raise UsageError(f"{option}: {formats['text']} is text, --source-field is of json")
        return Source(paths, [], None, reading)
    if len(formats) > 1:
        (one, first), (other, second), *_ = formats.items()
        raise UsageError(f"{option}: {first} is {one}, but {second} is {other}")
    (name,) = formats
    if name == "squad":
        return Source(paths, [], None, window=window, form=form)
    return Source(paths, [], replace(reading, format="text" if name == "text" else "jsonl"))
