"""The inputs of `unitk generate`: files, streams and corpora, encoded in groups; torch-free."""

from __future__ import annotations

import io
import select
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast

import numpy as np

from unitk import registry
from unitk.data.corpus.corpus import Pairs
from unitk.data.corpus.folders import corpus_vocab, is_corpus, open_corpus, parts
from unitk.data.files import lines, readers
from unitk.data.files.documents import PlainText
from unitk.data.files.lines import LONGEST, STDIN, Block
from unitk.data.files.pairs import PARTS_OF, Fields, parts_as_given, targets_of
from unitk.data.files.squad import SQUAD_SOURCE, Squad, arrange, check_form, read_squad
from unitk.data.files.window import sentences_of
from unitk.decoding.constraints.base import Constraint
from unitk.errors import DataError, UsageError, amount, require, say
from unitk.slots import Ids
from unitk.vocab.base import MARKS, NO_BLANK, TYPED, Vocab

if TYPE_CHECKING:
    from unitk.decoding.generator import Generator
    from unitk.decoding.texts.sources import Sources
    from unitk.tasks.base import Task

WAIT = 0.02  # seconds that a line which has arrived waits for others
Blanks = Literal["none", "some", "all"]
"""Whether texts write down blanks to fill; some: those that do."""


@dataclass(frozen=True)
class Input:
    """A source as its parts (one empty part for an empty line), and its target if there is one."""

    parts: list[str]
    """As they are in their file, with the blanks around them."""
    target: str | None = None
    focus: tuple[int, int] | None = None  # where the answer is in a passage
    error: str = ""  # why a line of a stream is no input
    id: str = ""
    """The id of a question in a SQuAD json, under which its prediction is written."""
    where: str = field(default="", compare=False)
    """Its place in its file, for messages."""
    listed: bool = False
    """Whether the parts are a list of a record, which may be that of the sentences of one part."""

    def parts_for(self, task: Task) -> list[str]:
        """Its parts; of a list, one part for a model that was trained on one."""
        counted = task.trained.pairs or task.counts_parts
        one = self.listed and counted and task.trained.parts == 1
        return [" ".join(self.parts)] if one else self.parts


@dataclass(frozen=True)
class Item:
    """An encoded input; `number` counts all inputs from 0."""

    number: int
    text: Input
    source: list[Ids]
    target: Ids | None = None
    constraint: Constraint = Constraint()
    fills: bool = False
    """Whether its blanks are filled, instead of an output that is written for it."""


NO_SOURCE: list[Ids] = [np.zeros(0, np.int64)]
Inputs = Sequence[Input] | Pairs | Iterator[list[Input]]
"""Texts, a corpus of pairs, or groups of texts as they arrive."""


def groups(
    generator: Generator,
    inputs: Inputs,
    size: int,
    first: int = 0,
    *,
    constraints: Sequence[Constraint] = (),
    blanks: Blanks = "none",
    limit: int | None = None,
) -> Iterator[list[Item]]:
    """The inputs from number `first` on, in groups of `size` or as a stream delivers them.

    `limit` is that of `Generator.sources`.
    """
    if isinstance(inputs, Iterator):
        for texts in inputs:
            yield _encode(generator, first, texts, blanks, limit)
            first += len(texts)
        return
    for at in range(first, len(inputs), size):
        if isinstance(inputs, Pairs):
            items = [
                _of_pair(generator, number, *inputs.record(number))
                for number in range(at, min(at + size, len(inputs)))
            ]
        else:
            items = _encode(generator, at, inputs[at : at + size], blanks, limit)
        if constraints:
            items = [replace(item, constraint=constraints[item.number]) for item in items]
        yield items


def _encode(
    generator: Generator, first: int, texts: Sequence[Input], blanks: Blanks, limit: int | None
) -> list[Item]:
    sources = generator.sources(
        [text.parts_for(generator.task) for text in texts], limit, [text.focus for text in texts]
    )
    targets = generator.encode([[text.target or ""] for text in texts])
    items = list[Item]()
    for text, source, (target,) in zip(texts, sources, targets, strict=True):
        marked = [
            generator.encode_marked(part, typed=blanks == "all")
            for part in text.parts
            if blanks != "none"
        ]
        fills = any(map(generator.has_blank, marked))
        if blanks == "all" and not fills and any(map(len, marked)):
            generator.encode_blanks(text.parts[0])  # its error says what lacks
        ids_of_target = None if text.target is None else target
        ids = marked if fills else source
        items.append(Item(first + len(items), text, ids, ids_of_target, fills=fills))
    return items


def _of_pair(generator: Generator, number: int, source: list[Ids], target: Ids) -> Item:
    decode = generator.vocab.decode
    return Item(number, Input([*map(decode, source)], decode(target)), source, target)


def read_inputs(
    path: Path,
    given: readers.Format = "auto",
    fields: Fields | None = None,
    form: str = SQUAD_SOURCE,
) -> list[Input]:
    """Read the inputs of a file, `-` being standard input; an empty line is an empty input.

    text: a source on each line, its parts separated by tabs. squad: answer and passage, in the
    order of `form`. Tables: the fields given, or `source` (a text or a list of parts) and `target`,
    which may be missing. Raises DataError, which names file and line.
    """
    name = readers.format_of(path, given)
    holds = "records" if fields and name == "squad" else readers.reader(name).holds
    if holds == "text" and fields:
        raise UsageError(f"--source-field has no effect on {lines.name_file(path)}, which is text")
    line_reader = readers.line_reader(name)
    require(holds == "questions" or form == SQUAD_SOURCE, f"--squad-source has no effect on {name}")
    if holds == "questions":
        check_form(form)
        pairs = [sentences_of(pair, form) for pair in read_squad(path)]
        where = lines.name_file(path)
        if moved := sum(pair.moved for pair in pairs):
            say(f"{where}: answers corrected: {moved:,} did not match their answer_start")
        inputs = [
            Input(arrange(pair.source, form), pair.target, pair.focus, where=where)
            for pair in pairs
        ]
    elif line_reader and line_reader.by_line(path):
        inputs = [
            _of_line(line, where, line_reader, fields) for line, where in lines.numbered_lines(path)
        ]
    else:
        names = (*fields.source, *fields.target) if fields else ("source", "target")
        inputs = [_of_record(record, fields) for record in readers.records(path, names, name)]
    if not inputs:
        raise DataError(f"{lines.name_file(path)} is empty")
    return inputs


def read_questions(path: Path) -> list[Input]:
    """Read the questions of a SQuAD json with their ids and passages; they need no answers.

    A passage is as it stands there, so that places in it can be counted.
    """
    return [
        Input(
            [record.text("question").strip(), record.text("context")],
            id=str(record.values.get("id", "")),
        )
        for record in Squad().records(path)
    ]


def stream_reader(path: Path, given: str, fields: Fields | None) -> readers.LineReader | None:
    """The reader of a stream's lines; None for a file, and for a format that is read whole."""
    name = given if given != "auto" else "jsonl" if fields else "text"
    return readers.line_reader(name) if lines.is_stream(path) else None


def read_stream(
    reader: readers.LineReader, size: int, path: Path = STDIN, fields: Fields | None = None
) -> Iterator[list[Input]]:
    """Read a stream as it arrives, at most `size` lines at a time.

    A line that cannot be read becomes an input with an `error`; the other lines are read as usual.
    """
    number = 0
    stdin = cast(io.BufferedReader, sys.stdin.buffer)
    with nullcontext(stdin) if path == STDIN else path.open("rb") as stream:
        for arrived in _read_arrived(stream, size):
            if not number:  # without a newline, it is the whole stream
                lines.check_ends(path, b"".join(arrived))
            # errors name lines as an editor counts them
            numbered = [Block(path, i, 0, True, line) for i, line in enumerate(arrived, number + 1)]
            texts = [_try_line(block, reader, fields) for block in numbered]
            if not number and reader.holds == "text" and texts[0].parts[0].startswith('{"'):
                say(
                    f"warning: {lines.name_file(path)} looks like jsonl; "
                    "--input-format jsonl reads its fields"
                )
            number += len(arrived)
            yield texts
    if not number:
        raise DataError(f"{lines.name_file(path)} is empty")


def _try_line(block: Block, reader: readers.LineReader, fields: Fields | None) -> Input:
    """The input of a line."""
    try:
        if len(block.data.removesuffix(b"\n")) > LONGEST:
            raise DataError(
                f"{lines.name_file(block.path)}, line {block.line}: longer than {LONGEST >> 20} MB"
            )
        [(line, where)] = lines.number_lines(block)
        return _of_line(line, where, reader, fields)
    except DataError as error:
        return Input([""], error=str(error))


def with_blanks(texts: list[Input]) -> list[Input]:
    """The texts, of which one has an `error` where no blank is written in it."""
    filled = []
    for text in texts:
        shown = " ".join(text.parts)
        if shown.strip() and not (MARKS.search(shown) or TYPED.search(shown)):
            text = Input([""], error=NO_BLANK.format(shown), where=text.where)
        filled.append(text)
    return filled


def warn_of_blanks(generator: Generator, all_groups: Iterator[list[Item]]) -> Iterator[list[Item]]:
    """Yield the groups of inputs, and warn once if a blank in one is read as plain text."""
    warned = False
    for items in all_groups:
        for item in items:
            if not warned and not item.fills and any(map(MARKS.search, item.text.parts)):
                how = "--infill fills blanks"
                if not generator.task.infills:
                    how = f"task {generator.task.name} does not fill blanks"
                say(
                    f"warning: input {item.number + 1} has a blank, which is read as plain text: "
                    f"{how}"
                )
                warned = True
        yield items


def split(items: Sequence[Item]) -> Iterator[tuple[bool, Sources]]:
    """The sources that are answered (False), and those whose blanks are filled (True), if any.

    The others are empty in their places, so that numbers stay right.
    """
    from unitk.decoding.texts.sources import Sources  # imports torch

    for fills in (False, True):
        if any(item.fills == fills for item in items):
            ids = [item.source if item.fills == fills else NO_SOURCE for item in items]
            yield fills, Sources(ids, [item.constraint for item in items], first=items[0].number)


def need_targets(items: Sequence[Item]) -> list[Ids]:
    """The targets of inputs, which must have some."""
    targets = []
    for item in items:
        if item.target is None:
            raise DataError(
                f"--score: input {item.number + 1} has no target; --references FILE gives them"
            )
        targets.append(item.target)
    return targets


def read_typed() -> Iterator[list[Input]]:
    """Read standard input line by line, with a prompt for each on standard error."""
    for number in count(1):
        print("> ", end="", file=sys.stderr, flush=True)
        if not (line := sys.stdin.buffer.readline()):
            print(file=sys.stderr)
            return
        yield [_try_line(Block(STDIN, number, 0, True, line), PlainText(), None)]


def _read_arrived(stream: io.BufferedReader, size: int) -> Iterator[list[bytes]]:
    """One line, and those that arrive within moments of it: at most `size` lines."""
    arrived: list[bytes] = []
    line = bytearray()  # that has not ended yet
    ended = False
    while arrived or not ended:
        until = 0.0
        while not ended and (not arrived or (len(arrived) < size and _ready(stream, until))):
            piece = stream.read1(1 << 16)  # what is there, without waiting for a full buffer
            ended = not piece
            first, *beginnings = piece.split(b"\n")
            line += first
            del line[LONGEST + 1 :]  # of too long a line, what shows that it is
            for beginning in beginnings:
                arrived.append(bytes(line) + b"\n")
                line = bytearray(beginning)
            until = until or time.monotonic() + WAIT
            if ended and line:
                arrived.append(bytes(line))
        if arrived:
            yield arrived[:size]
        arrived = arrived[size:]


def _ready(stream: io.BufferedReader, until: float) -> bool:
    """Whether the stream can be read; waits until the given time if necessary."""
    try:
        return bool(select.select([stream], [], [], max(0.0, until - time.monotonic()))[0])
    except io.UnsupportedOperation:  # no file of the system's: all of it is there
        return True


def _of_line(line: str, where: str, reader: readers.LineReader, fields: Fields | None) -> Input:
    if reader.holds == "text":
        return Input(line.removesuffix("\r").split("\t"), where=where)
    if not line.strip():
        return Input([""], where=where)
    return _of_record(reader.check(readers.Record(reader.values(line, where), where)), fields)


def _of_record(record: readers.Record, fields: Fields | None) -> Input:
    if fields:
        # a target is needed by --score only, which says so
        targets = targets_of(record, fields) if any(map(record.get, fields.target)) else []
        parts = PARTS_OF.get(fields.form, parts_as_given)(record, fields)
    else:
        parts = record.texts("source", "--source-field", least=1)
        targets = [] if record.get("target") is None else record.texts("target")
    # of several good targets, the first is scored
    listed = not fields and isinstance(record.get("source"), list)
    return Input(parts, targets[0] if targets else None, where=record.place, listed=listed)


def open_pairs(path: Path, vocab: Vocab) -> Pairs:
    """Open a corpus folder of pairs; its vocabulary must be this one."""
    if not is_corpus(path):
        folders = [str(path / part) for part in parts(path)]
        hint = f": name {' or '.join(folders)}" if folders else ""
        raise DataError(f"{path} is a folder, but no corpus{hint}")
    corpus = open_corpus(path)
    if not isinstance(corpus, Pairs):
        raise DataError(f"{path} holds texts; pairs, or a file, are needed")
    if not registry.get("measure", "same_vocab")(corpus_vocab(path), vocab):
        raise DataError(f"{path} was made with another vocabulary than the checkpoint's")
    return corpus


def read_beside(path: Path | None, inputs: int) -> list[str]:
    """A line for each input, or nothing if no file is given."""
    if path is None:
        return []
    texts = [line.removesuffix("\r") for line, _ in lines.numbered_lines(path)]
    if len(texts) != inputs:
        raise DataError(f"{path} has {amount(len(texts), 'lines')} for {amount(inputs, 'inputs')}")
    return texts
