"""What `unitk generate --input` understands; torch-free."""

from __future__ import annotations

import io
import json
import select
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from unitk.data.corpus import Pairs
from unitk.data.folders import is_corpus, open_corpus, parts
from unitk.data.sources import (
    SQUAD_SOURCE,
    Block,
    Format,
    arranged,
    blocks,
    check_form,
    format_of,
    lines_of,
    read_squad,
)
from unitk.errors import DataError, require

STDIN = Path("-")
WAIT = 0.02
"""Seconds that a line which has arrived waits for others."""


@dataclass(frozen=True)
class Input:
    """A source as its parts (of an empty line, an empty one), and its target if there is one."""

    source: list[str]
    target: str | None = None


def read_inputs(path: Path, given: Format, form: str = SQUAD_SOURCE) -> list[Input]:
    """The inputs of a file, `-` being standard input; an empty line is an empty input.

    text: a source a line, a tab between its parts. jsonl: `source` is a text or a list of parts,
    `target` may be there. squad: answer and passage, as `form`
    orders them. Raises DataError naming file and line.
    """
    name = "text" if path == STDIN and given == "auto" else format_of(path, given, "--input-format")
    if name == "squad":
        check_form(form)
        found = [Input(arranged(pair.source, form), pair.target) for pair in read_squad(path)]
    else:
        require(form == SQUAD_SOURCE, f"--squad-source has no effect on {name}")
        stdin = path == STDIN
        some = _numbered(filter(None, [sys.stdin.buffer.read()])) if stdin else blocks(path)
        found = [one for block in some for one in _inputs(block, name)]
    if not found:
        raise DataError(f"--input {path} is empty")
    return found


def is_stream(path: Path) -> bool:
    """Standard input, a named pipe or a device: read once, as it comes."""
    return path == STDIN or path.is_fifo() or path.is_char_device()


def arriving(given: Format, size: int, path: Path = STDIN) -> Iterator[list[Input]]:
    """The inputs of a stream as they come: whatever is there, at most `size` at a time."""
    name = "text" if given == "auto" else given
    empty = True
    stdin = cast(io.BufferedReader, sys.stdin.buffer)
    with nullcontext(stdin) if path == STDIN else path.open("rb") as stream:
        for block in _numbered(_arrived(stream, size), path):
            empty = False
            yield _inputs(block, name)
    if empty:
        raise DataError(f"--input {path} is empty")


def typed() -> Iterator[list[Input]]:
    """The inputs of standard input one by one, each asked for with a prompt on standard error."""

    def lines() -> Iterator[bytes]:
        while True:
            print("> ", end="", file=sys.stderr, flush=True)
            line = sys.stdin.buffer.readline()
            if not line:
                print(file=sys.stderr)
                return
            yield line

    for block in _numbered(lines()):
        yield _inputs(block, "text")


def _numbered(stream: Iterable[bytes], path: Path = STDIN) -> Iterator[Block]:
    """Whole lines of a stream as blocks."""
    line, name = 1, Path("standard input") if path == STDIN else path
    for data in stream:
        yield Block(name, line, 0, True, data)
        line += data.count(b"\n")


def _arrived(stream: io.BufferedReader, size: int) -> Iterator[bytes]:
    """At least a line, and what arrives within moments: at most `size` lines."""
    lines: list[bytes] = []
    rest, ended = b"", False
    while lines or not ended:
        until = 0.0
        while not ended and (not lines or len(lines) < size and _ready(stream, until)):
            piece = stream.read1(1 << 16)
            ended = not piece
            *whole, rest = (rest + piece).split(b"\n")
            lines += [line + b"\n" for line in whole]
            until = until or time.monotonic() + WAIT
            if ended and rest:
                lines.append(rest)
        if lines:
            yield b"".join(lines[:size])
        lines = lines[size:]


def _ready(stream: io.BufferedReader, until: float) -> bool:
    """Whether something can be read, if need be after waiting until then."""
    try:
        return bool(select.select([stream], [], [], max(0.0, until - time.monotonic()))[0])
    except io.UnsupportedOperation:  # no file of the system's: all of it is there
        return True


def _inputs(block: Block, name: str) -> list[Input]:
    read = _line if name == "text" else _record
    return [read(line, block, block.line + i) for i, line in enumerate(lines_of(block))]


def _line(line: str, block: Block, number: int) -> Input:
    return Input([part.strip() for part in line.split("\t")])


def _record(line: str, block: Block, number: int) -> Input:
    if not line.strip():
        return Input([""])
    where = f"{block.path}, line {number}"
    try:
        record: Any = json.loads(line)
    except ValueError as error:
        raise DataError(f"{where}: no JSON ({error})") from error
    source = record.get("source") if isinstance(record, dict) else None
    parts = [source] if isinstance(source, str) else source
    if not isinstance(parts, list) or not parts or not all(isinstance(p, str) for p in parts):
        raise DataError(f"{where}: 'source' must be a text or a list of texts")
    target = record.get("target")
    if target is not None and not isinstance(target, str):
        raise DataError(f"{where}: 'target' must be a text")
    return Input([part.strip() for part in parts], target)


def open_pairs(path: Path, vocab_hash: str) -> Pairs:
    """A corpus folder of pairs that was made with the vocabulary of this hash."""
    if not is_corpus(path):
        found = [str(path / part) for part in parts(path)]
        hint = f": name {' or '.join(found)}" if found else ""
        raise DataError(f"--input {path} is a folder, but no corpus{hint}")
    corpus = open_corpus(path)
    if not isinstance(corpus, Pairs):
        raise DataError(f"--input {path} holds texts; pairs, or a file, are needed")
    if corpus.vocab_hash != vocab_hash:
        raise DataError(f"--input {path} was made with another vocabulary than the checkpoint's")
    return corpus
