"""`unitk compare`: bits per byte of several models, and their losses word by word on a page."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from unitk import pretrained
from unitk.api.answering import open_generator
from unitk.api.verb import verb
from unitk.comparison.texts import Document, open_documents
from unitk.data.files.files import ReadingOptions
from unitk.decoding.files.outputs import check_apart
from unitk.errors import CheckpointError, NonFiniteError, UsageError, printable, require
from unitk.files import create, new_file
from unitk.foreign import read_json
from unitk.options.config import Device, Parsed, UserDir, With
from unitk.options.fields import Count, Positive
from unitk.progress import progress
from unitk.registry import register
from unitk.training.saving.folder import SEEDS, find_checkpoint
from unitk.training.saving.state import is_of_type

if TYPE_CHECKING:
    from unitk.comparison.likelihood import Likelihood
    from unitk.evaluation.estimators import Estimator
    from unitk.vocab.base import Vocab


@dataclass(frozen=True, kw_only=True)
class CompareOptions(ReadingOptions):
    """Compare models on one text: bits per byte with the kind of each value, and the losses word by
    word on a page. Only values of one kind are ranked.

    unitk compare runs/lm runs/glm --data wiki.txt
    unitk compare runs/lm runs/glm --data wiki.txt --output a.html --table a.csv
    """

    runs: tuple[Path, ...] = ()
    """Run folders (their best checkpoints), checkpoints or bundled models, two or more. A folder of
    `unitk train --seeds` stands for all its runs."""
    data: Path
    """Text to compare on: a file that `unitk preprocess` reads, which each vocabulary encodes, or a
    corpus folder, or one with valid/ in it."""
    output: Path | None = None
    """Page (.html) to write: a text whose words have the colour of a model's loss, or of the
    difference between two."""
    table: Path | None = None
    """File (.csv) to write the table to."""
    overwrite: bool = False
    """Replace files that exist."""
    page_documents: Annotated[Positive, With("output")] = 20
    """Documents on the page, the first ones. The table has all of them."""
    task: str | None = None
    """Task to score with, for models that were trained with several."""
    stride: Positive | None = None
    """Tokens that a window predicts, as in `unitk evaluate --bits`."""
    context: Count | None = None
    """Tokens before a window that a model also reads."""
    draws: Positive | None = None
    """Draws for a bound. Default: 8, and 100 with a latent."""
    max_tokens: Positive = 8192
    """Maximum slots of a forward pass."""
    precision: Literal["fp32", "bf16"] = "fp32"
    """fp32 or bf16, of weights and passes."""
    output_format: Literal["text", "json"] = "text"
    """text: the table; json: one object."""
    device: Device = "auto"
    user_dir: UserDir = None

    def __post_init__(self) -> None:
        super().__post_init__()
        for option, path, ending in (
            ("output", self.output, ".html"),
            ("table", self.table, ".csv"),
        ):
            fits = path is None or path.suffix == ending
            require(fits, f"--{option} must end in {ending}, got {path}")


def value(parsed: Parsed) -> list[dict[str, Any]]:
    """A row for each model, ranked within its kind; page and csv are written if requested."""
    options: CompareOptions = parsed.main
    names = [str(path) for path in options.runs]
    require(len(names) > 1, f"--runs: name two models or more, got {', '.join(names) or 'none'}")
    written = options.output is not None or options.table is not None
    require(
        written or not options.overwrite, "--overwrite has no effect without --output or --table"
    )
    twice = next((name for name in names if names.count(name) > 1), None)
    require(twice is None, f"--runs names {twice} twice")
    from unitk.comparison.side_by_side import csv_of, page_of, page_record, rows_of

    for name in ("output", "table"):
        check_apart(options, name)
    documents = open_documents(parsed)
    # files are opened at once, so that minutes are not spent before one is refused
    with ExitStack() as files:
        page, table = (
            path and files.enter_context(new_file(path, option, replace=options.overwrite))
            for option, path in (("--output", options.output), ("--table", options.table))
        )
        measured, vocabs = measure_all(options, documents)
        rows = rows_of(measured)
        if page is not None:
            data, most = str(options.data), options.page_documents
            record = page_record(measured, vocabs, rows, data, most)
            create(page, page_of(record))
        if table is not None:
            create(table, csv_of(rows))
    return rows


@register("verb", "compare")
@verb(
    CompareOptions,
    words="runs",
    cure="lower --max-tokens",
    value=value,
    example='(["runs/lm", "runs/glm"], data="dev.txt")',
)
def run(parsed: Parsed) -> None:
    """Print the table; write page and csv if requested."""
    from unitk.comparison.side_by_side import lines_of_rows

    options = parsed.main
    rows = value(parsed)
    if options.output_format == "json":
        plain = [{k: None if v != v else v for k, v in row.items()} for row in rows]
        print(json.dumps({"data": str(options.data), "models": plain}))
        return
    print(*map(printable, lines_of_rows(rows)), sep="\n")


def measure_all(
    options: CompareOptions, documents: list[Document]
) -> tuple[Mapping[str, Likelihood], Mapping[str, Vocab]]:
    """The cost of the documents to each model, and its vocabulary, by the path as given."""
    from unitk.comparison.likelihood import mean_of

    likelihoods: dict[str, Likelihood] = {}
    vocabs: dict[str, Vocab] = {}
    runs = {path: seeds_of(path) for path in options.runs}
    named: dict[tuple[Path, ...], Path] = {}  # checkpoints -> the path that names them
    for path, seeds in runs.items():
        real = tuple(find_checkpoint(pretrained.locate(run)).resolve() for run in seeds)
        first = named.setdefault(real, path)
        require(first == path, f"--runs: {first} and {path} are one checkpoint")
    # the last of them is refused before the first one is measured
    drawn = [estimator_of_run(options, run).draws > 0 for seeds in runs.values() for run in seeds]
    require(any(drawn) or options.draws is None, "--draws has no effect: no run draws anything")
    for path, seeds in runs.items():
        # runs of one folder differ in their seeds alone, so their vocabulary is one
        measured = [measure_run(options, run, documents) for run in seeds]
        likelihoods[str(path)] = mean_of([likelihood for likelihood, _ in measured])
        vocabs[str(path)] = measured[0][1]
    return likelihoods, vocabs


def seeds_of(path: Path) -> list[Path]:
    """The runs of a folder of `unitk train --seeds`; any other model stands for itself."""
    if not (path / SEEDS).is_file():
        return [path]
    runs: Any = read_json(path / SEEDS, CheckpointError).get("runs")
    seeds = [run.get("seed") for run in runs] if is_of_type(runs, list[dict[str, object]]) else []
    if not seeds or not is_of_type(seeds, list[int]):
        raise CheckpointError(f"{path / SEEDS} is damaged: it lists no seeds of runs")
    return [path / f"seed-{seed}" for seed in sorted(seeds)]


def estimator_of_run(options: CompareOptions, path: Path) -> Estimator:
    """What estimates the likelihood of texts by a model; `UsageError` names the run if nothing
    does, or if it reads no --context."""
    from unitk.comparison.estimators import estimator_of

    task = open_generator(options, path=path).task
    try:
        estimator = estimator_of(task)
    except UsageError as error:
        raise UsageError(f"{path}: task {task.name} has no likelihood of texts") from error
    reads = estimator.contexts or options.context is None
    require(reads, f"--context has no effect on {path}, whose model reads no context")
    return estimator


def measure_run(
    options: CompareOptions, path: Path, documents: list[Document]
) -> tuple[Likelihood, Vocab]:
    """The cost of the documents to a model, and the model's vocabulary."""
    from unitk.comparison.estimators import estimator_of
    from unitk.comparison.likelihood import How, measure

    generator = open_generator(options, path=path)
    drawn = estimator_of(generator.task).draws > 0  # the others have no use for --draws
    how = How(
        stride=options.stride,
        context=options.context,
        draws=options.draws if drawn else None,
        max_tokens=options.max_tokens,
    )
    try:
        return measure(generator, documents, how, progress), generator.vocab
    except NonFiniteError as error:
        raise NonFiniteError(f"{path}: {error}") from error
