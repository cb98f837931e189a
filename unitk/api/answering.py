"""Shared by verbs that answer texts with a model: the model, the texts, and the output."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from unitk.api.loading import load
from unitk.data.corpus.folders import is_corpus, open_corpus
from unitk.data.files.lines import is_stream
from unitk.data.files.pairs import Fields
from unitk.data.files.readers import Format, format_of
from unitk.decoding.files.inputs import (
    Input,
    Item,
    read_inputs,
    read_questions,
    read_stream,
    stream_reader,
)
from unitk.decoding.files.outputs import STDOUT, check_writable
from unitk.decoding.files.sink import OutputFile, Printed
from unitk.errors import DataError, UnitkError, UsageError, require, say
from unitk.files import MANIFEST, VERSION, digest
from unitk.options import config
from unitk.options.config import Checkpoint, ConfigFile, Device, UserDir
from unitk.options.fields import Checked, Positive
from unitk.progress import Report, progress
from unitk.training.saving.folder import find_checkpoint

if TYPE_CHECKING:
    from unitk.decoding.generator import Generator
    from unitk.decoding.texts.outputs import Output

TOGETHER = 1024
"""Texts that are read by the model, and written, before the next ones."""
Texts = list[Input] | Iterator[list[Input]]
"""All texts, or groups of them as they arrive."""
Answer = Callable[[list[Input], int, Report], list[Any]]
"""(texts, the number of the first one, a report of how many are done) -> answers."""


@dataclass(frozen=True, kw_only=True)
class Answering(Checked):
    """Input, output and device."""

    texts: tuple[str, ...] = ()
    """Texts, each in quotes, instead of --input."""
    checkpoint: Checkpoint
    task: str | None = None
    """Task to encode with, if the model was trained with several."""
    input: Path | None = None
    """File of texts, one a line, or json-lines (field source). `-`: standard input."""
    input_format: Format = "auto"
    """Format of --input. auto: by the file name; standard input is text."""
    truncate: bool = False
    """Truncate a text that is too long for the encoder, instead of refusing it."""
    output: Path = STDOUT
    """Output file. `-`: standard output."""
    overwrite: bool = False
    """Replace an --output that exists."""
    device: Device = "auto"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Number format of weights and cache."""
    max_tokens: Positive = 16384
    """Maximum slots of a batch."""
    config: ConfigFile = None
    user_dir: UserDir = None


def open_generator(
    options: Any, overrides: Mapping[str, str] | None = None, path: Path | None = None
) -> Generator:
    """The model of --checkpoint or `path`, ready to decode; `overrides` of its options."""
    from unitk.kernels.products import keep_memory
    from unitk.training.device import choose_device

    keep_memory()  # not in `unitk.load`: a notebook's own tables would stay as well
    device = choose_device(options.device)
    precision = options.precision
    path = path or options.checkpoint
    return load(path, device, task=options.task, precision=precision, options=overrides)


def inputs_of(parsed: config.Parsed, questions: bool = False, form: str = "") -> Texts:
    """The texts of a command line, of a file, or of a stream as they arrive.

    With `questions`, they are the questions of a SQuAD json with their passages. Lists of records
    are choices if that is the `form` of the labels.
    """
    options = parsed.main
    check_words(options.texts)
    require(bool(options.texts) != (options.input is not None), "give either texts or --input FILE")
    if options.input is None:
        parsed.idle("without --input", "source_field")
        return [Input(text.split("\t")) for text in options.texts]
    fields = Fields(options.source_field, (), form=form) if options.source_field else None
    if own := stream_reader(options.input, options.input_format, fields):
        return read_stream(own, TOGETHER, options.input, fields)
    if questions and not fields and format_of(options.input, options.input_format) == "squad":
        return read_questions(options.input)
    return read_inputs(options.input, options.input_format, fields)


def check_words(words: Sequence[str]) -> None:
    """Refuse a word of the command line that names a file: words without an option are texts."""
    for word in words:
        is_folder = os.path.isdir(word)
        what = "folder: --checkpoint and --input take" if is_folder else "file: --input takes"
        require(not os.path.exists(word), f"the word {word!r} is a {what} it")


def answer_all(inputs: Texts, answer: Answer, done: int = 0) -> Iterator[list[tuple[Input, Any]]]:
    """Yield the texts after the first `done` with their answers, group by group.

    In a stream, a text has an answer or a DataError: a bad line does not affect the others.
    """
    total = None
    stream = not isinstance(inputs, list)
    first = done
    if isinstance(inputs, list):
        total = len(inputs)
        inputs = iter([inputs[at : at + TOGETHER] for at in range(done, total, TOGETHER)])
    with progress(total, done) as report:

        def answered(some: Sequence[tuple[int, Input]]) -> list[Any]:
            texts = [text for _, text in some]
            check_read(texts)
            return answer(texts, some[0][0], report)

        for group in inputs:
            numbered = list(enumerate(group, first))
            answers = isolate_errors(numbered, answered) if stream else answered(numbered)
            yield list(zip(group, answers, strict=True))
            first += len(group)


def isolate_errors(
    items: Sequence[Any],
    answer: Callable[[Sequence[Any]], list[Any]],
    wrong: tuple[type[UnitkError], ...] = (DataError,),
) -> list[Any]:
    """An answer for each item, or its error: one that is `wrong` does not affect the others."""
    try:
        return answer(items)
    except wrong as error:
        if len(items) == 1:
            return [error]
    # which one is wrong is found by each alone
    return [result for item in items for result in isolate_errors([item], answer, wrong)]


def answer_each(
    items: Sequence[Item], answer: Callable[[Sequence[Item]], list[list[Output]]], asks: bool
) -> tuple[list[Item], list[list[Output]]]:
    """Answer inputs of a stream; one that cannot be decoded gets its error, and no outputs."""
    wrong = (DataError, UsageError) if asks else (DataError,)
    answered = list[Item]()
    outputs = list[list[Any]]()
    for item, best in zip(items, isolate_errors(items, answer, wrong), strict=True):
        if isinstance(best, UnitkError):
            say(f"unitk generate: {best}")
            item = replace(item, text=replace(item.text, error=str(best)))
            best = []
        answered.append(item)
        outputs.append(best)
    return answered, outputs


def check_read(texts: Iterable[Input]) -> None:
    """Raise the error of a text that could not be read, if there is one."""
    for text in texts:
        if text.error:
            raise DataError(text.error)


def record(number: int, text: Input, value: dict[str, Any] | DataError) -> str:
    """A json object for a text, with its answer or its error; `id` is its number or its own."""
    source = text.parts[0] if len(text.parts) == 1 else text.parts
    about = {"error": str(value)} if isinstance(value, DataError) else {"source": source, **value}
    return json.dumps({"id": text.id or number, **about}, ensure_ascii=False)


def check_output(options: Any) -> None:
    """Refuse an --output that may not be written, and a --resume that has none to continue."""
    file = options.output != STDOUT and options.input is not None and not is_stream(options.input)
    require(file or not options.resume, "--resume needs an --output, and an --input that is a file")
    check_writable(options, options.resume)


def sink_of(options: Any, values: dict[str, str]) -> OutputFile | Printed:
    """Where the lines of --output go; --resume needs the same `values` and files as before."""
    if options.output == STDOUT:
        return Printed()
    return OutputFile(options.output, dependencies_of(options, values), options.resume)


def dependencies_of(options: Any, values: dict[str, str]) -> dict[str, str]:
    """Everything that the output depends on; files are represented by their contents."""
    free = ("output", "overwrite", "resume", "config", "user_dir", "texts")
    texts = {name: text for name, text in values.items() if name not in free}
    others = "output", "config", "user_dir", "checkpoint"
    for option in config.options(type(options)):
        path = getattr(options, option.name)
        if isinstance(path, Path) and option.name not in others and not is_stream(path):
            texts[option.name] = f"{path} ({content_hash(path)})"
    paths = [find_checkpoint(path) for path in options.checkpoint]
    texts["checkpoint"] = ", ".join(f"{path.name} ({content_hash(path)})" for path in paths)
    return {config.flag(name)[2:]: text for name, text in texts.items()} | {"version": VERSION}


def content_hash(path: Path) -> str:
    """A short hash of a file, or of the manifest of a folder."""
    if is_corpus(path) and not path.is_dir():  # a split of fairseq's
        return open_corpus(path).fingerprint[:12]
    return digest(path / MANIFEST if path.is_dir() else path)[:12]
