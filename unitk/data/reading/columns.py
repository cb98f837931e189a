"""One text a line for `unitk score`: of files, of a field of a table, of a side of a corpus."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from unitk.data.reading.pairs import Fields, read_squad, source_of, targets_of
from unitk.data.reading.records import records
from unitk.data.reading.sources import blocks, format_of, lines_of, name_of
from unitk.data.storing.corpus import Pairs
from unitk.data.storing.folders import corpus_vocab, is_corpus, open_corpus
from unitk.errors import DataError

Side = Literal["source", "target", "output"]


def read_column(path: Path, side: Side, names: tuple[str, ...]) -> list[list[str]]:
    """The text of every line, record or pair, and further ones that are as good.

    `names` are a table's fields; of an output they may be none, for what `unitk generate` writes.
    """
    if path.is_dir() or is_corpus(path):
        return _of_corpus(path, side)
    name = format_of(path)
    if name == "text":
        # not stripped: scores are of lines as they stand, but for an end from Windows
        found = [[line.removesuffix("\r")] for block in blocks(path) for line in lines_of(block)]
    elif name == "squad" and side != "output":
        pairs = read_squad(path)
        found = [[" ".join(one.source) if side == "source" else one.target] for one in pairs]
    else:
        table = records(path, "jsonl" if name == "squad" else name, names)
        found = [_of_record(record, where, side, names) for record, where, _ in table]
    if not found:
        raise DataError(f"{name_of(path)} is empty")
    return found


def _of_record(record: Any, where: str, side: Side, names: tuple[str, ...]) -> list[str]:
    if side == "source":
        return [" ".join(source_of(record, where, Fields(names, ())))]
    if names:
        return targets_of(record, where, Fields((), names)) or [""]
    if not isinstance(record, dict) or not {"outputs", "error"} & record.keys():
        raise DataError(f"{where}: nothing that unitk generate wrote; --hypothesis-field names it")
    outputs = record.get("outputs")
    return [outputs[0]["text"] if outputs else ""]


def _of_corpus(path: Path, side: Side) -> list[list[str]]:
    corpus = open_corpus(path)
    if not isinstance(corpus, Pairs):
        raise DataError(f"{path} holds texts; a corpus of pairs, or a file, is needed")
    decode = corpus_vocab(path).decode
    pairs = map(corpus.record, range(len(corpus)))
    if side == "source":
        return [[" ".join(map(decode, parts))] for parts, _ in pairs]
    return [[decode(target)] for _, target in pairs]
