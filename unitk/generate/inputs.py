"""What `unitk generate --input` understands; torch-free."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unitk.data.corpus import MANIFEST, Pairs, open_corpus
from unitk.data.sources import Block, Format, blocks, format_of, lines_of, read_squad
from unitk.errors import DataError

STDIN = Path("-")


@dataclass(frozen=True)
class Input:
    """A source as its parts (of an empty line, an empty one), and its target if there is one."""

    source: list[str]
    target: str | None = None


def read_inputs(path: Path, given: Format) -> list[Input]:
    """The inputs of a file, `-` being standard input; an empty line is an empty input.

    text: a source a line, a tab between its parts. jsonl: `source` is a text or a list of parts,
    `target` may be there. squad: answer and passage. Raises DataError naming file and line.
    """
    name = "text" if path == STDIN and given == "auto" else format_of(path, given, "--input-format")
    if name == "squad":
        found = [Input(pair.source, pair.target) for pair in read_squad(path)]
    else:
        lines = (
            (block, i, line) for block in _blocks(path) for i, line in enumerate(lines_of(block))
        )
        read = _line if name == "text" else _record
        found = [read(line, block, block.line + i) for block, i, line in lines]
    if not found:
        raise DataError(f"--input {path} is empty")
    return found


def _blocks(path: Path) -> Iterator[Block]:
    if path != STDIN:
        yield from blocks(path)
    elif data := sys.stdin.buffer.read():
        yield Block(Path("standard input"), 1, 0, True, data)


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
    if not (path / MANIFEST).is_file():
        parts = sorted(entry.parent.name for entry in path.glob(f"*/{MANIFEST}"))
        hint = f": name {' or '.join(str(path / part) for part in parts)}" if parts else ""
        raise DataError(f"--input {path} is a folder, but no corpus{hint}")
    corpus = open_corpus(path)
    if not isinstance(corpus, Pairs):
        raise DataError(f"--input {path} holds texts; pairs, or a file, are needed")
    if corpus.vocab_hash != vocab_hash:
        raise DataError(f"--input {path} was made with another vocabulary than the checkpoint's")
    return corpus
