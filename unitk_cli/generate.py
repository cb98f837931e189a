"""`unitk generate`: decode a file of sources, or fill the blanks of a text."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import unitk
from unitk import config
from unitk.data.sources import Format
from unitk.errors import DataError, UsageError, require
from unitk.generate.config import GenerateConfig
from unitk.generate.inputs import Input, open_pairs, read_inputs
from unitk.generate.outputs import STDOUT, Writing, write
from unitk.generate.wording import read_lines

if TYPE_CHECKING:
    from unitk.generate.demands import Wish
    from unitk.generate.generator import Generator
    from unitk.slots import Ids


@dataclass(frozen=True, kw_only=True)
class Options(GenerateConfig):
    """Decode sources with a trained model: beam search, greedily with --beam 1, or --sampling."""

    checkpoint: tuple[Path, ...]
    """A run folder (its best checkpoint is taken) or a checkpoint; several are an ensemble, which
    decodes with the mean of their probabilities."""
    task: str | None = None
    """Decode as this task, where the model was trained with several."""
    input: Path | None = None
    """Sources: text (one a line, a tab between parts), json-lines (field source, a text or a list
    of parts), SQuAD json (answer and passage), a corpus folder of pairs; `-`: standard input."""
    infill: str | None = None
    """A text with [MASK]s to fill, one after the other, as one search."""
    prefix_file: Path | None = None
    """Beginnings: outputs for the input of the same line begin so; an empty line asks nothing."""
    constraints: Path | None = None
    """Phrases, a tab between them, that outputs for the input of the same line contain."""
    output: Path = STDOUT
    """Where the outputs go; `-`: standard output."""
    input_format: Format = "auto"
    """auto: by the file's ending; standard input is text."""
    output_format: Literal["text", "jsonl", "fairseq"] = "text"
    """text: an output a line, its score before it if --nbest is above 1; jsonl: an object a source;
    fairseq: its S-, T-, H- and D- lines."""
    truncate: bool = False
    """Shorten the last part of a source that is too long for the model, instead of refusing it."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """auto: CUDA where there is a GPU."""
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    """Number format of weights and cache."""
    config: Path | None = None
    """YAML file of options; flags win over it."""
    user_dir: Path | None = None
    """Folder of plug-ins."""


def run(argv: Sequence[str]) -> None:
    """Read, decode, write."""
    parsed = config.parse("generate", Options, argv)
    given: Options = parsed.main
    idle = given.sampling and "beam" in parsed.origins
    require(not idle, "--beam has no effect with --sampling")
    idle = given.diverse_beam_groups == 1 and "diverse_beam_strength" in parsed.origins
    require(not idle, "--diverse-beam-strength has no effect without --diverse-beam-groups")
    require((given.input is None) != (given.infill is None), "give either --input or --infill TEXT")
    require(given.infill is None or not given.truncate, "--truncate has no effect on --infill")
    folder = given.output.absolute().parent
    if given.output != STDOUT and not (folder.is_dir() and os.access(folder, os.W_OK)):
        raise UsageError(f"--output {given.output}: cannot write into {folder}")
    texts: list[Input] = []
    if given.input is not None and not given.input.is_dir():
        texts = read_inputs(given.input, given.input_format)
    elif given.input_format != "auto":
        raise UsageError("--input-format has no effect without a file as --input")
    generator = open_generator(given)
    texts, sources, targets = encode(given, texts, generator)
    wishes = read_wishes(given, len(sources), generator)
    with progress(sum(any(map(len, source)) for source in sources)) as report:
        found = generator.outputs(
            sources, given, wishes=wishes, truncate=given.truncate, report=report
        )
    writing = Writing(given.output_format, generator.task.vocab, given.nbest)
    write(writing.lines(texts, sources, targets, found), given.output)


def read_wishes(given: Options, inputs: int, generator: Generator) -> list[Wish]:
    """What is asked of the outputs of each input."""
    prefixes = read_beside(given.prefix_file, "--prefix-file", inputs)
    phrases = [line.split("\t") for line in read_beside(given.constraints, "--constraints", inputs)]
    names = f"--prefix-file {given.prefix_file}, line", f"--constraints {given.constraints}, line"
    return generator.wishes(prefixes, phrases, names)


def read_beside(path: Path | None, flag: str, inputs: int) -> list[str]:
    """A line for each input; none where no file is given."""
    if path is None:
        return []
    lines = read_lines(path)
    if len(lines) != inputs:
        raise DataError(f"{flag} {path} has {len(lines)} lines for {inputs} inputs")
    return lines


def encode(
    given: Options, texts: list[Input], generator: Generator
) -> tuple[list[Input], list[list[Ids]], list[Ids | None]]:
    """The inputs, and their sources and targets as ids."""
    vocab = generator.task.vocab
    if given.infill is not None:
        return [Input([given.infill])], [generator.encode_blanks(given.infill)], [None]
    if texts:
        sources = generator.encode([text.source for text in texts])
        none = [text.target is None for text in texts]
        ids = generator.encode([[text.target or ""] for text in texts])
        return texts, sources, [None if no else one for no, (one,) in zip(none, ids, strict=True)]
    assert given.input is not None
    corpus = open_pairs(given.input, vocab.hash)
    pairs = [corpus.pair(i) for i in range(len(corpus))]
    texts = [Input([vocab.decode(part) for part in s], vocab.decode(t)) for s, t in pairs]
    return texts, [source for source, _ in pairs], [target for _, target in pairs]


def open_generator(given: Options) -> Generator:
    """The model of a run or checkpoint, ready to decode."""
    import torch

    found = torch.cuda.is_available()
    require(found or given.device != "cuda", "--device cuda: PyTorch finds no CUDA GPU")
    device = "cuda" if found and given.device != "cpu" else "cpu"
    kind = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[given.precision]
    return unitk.load(given.checkpoint, device, task=given.task, dtype=kind)


@contextmanager
def progress(total: int) -> Iterator[Callable[[int], None]]:
    """A bar with sentences per second on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    rate = TextColumn("{task.fields[rate]:.1f} sentences/s")
    console = Console(stderr=True)
    with Progress(BarColumn(), MofNCompleteColumn(), rate, Remaining(), console=console) as bar:
        job = bar.add_task("", total=total, rate=0.0)

        def report(done: int) -> None:
            task = bar.tasks[job]
            seconds = max(task.elapsed or 0.0, 1e-9)
            bar.update(job, advance=done, rate=(task.completed + done) / seconds)

        yield report
