"""`unitk evaluate`: losses and perplexities on a corpus, minimal pairs and more."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from unitk import registry
from unitk.api.answering import open_generator
from unitk.api.verb import verb
from unitk.data.files.files import ReadingOptions, expand
from unitk.decoding.files.outputs import check_writable
from unitk.errors import DataError, UsageError, printable, say, show_value
from unitk.evaluation import base
from unitk.evaluation.corpus import open_corpus_of, open_texts_of
from unitk.evaluation.options import choose_evaluations, names_of, with_evaluations
from unitk.files import create, new_file
from unitk.options import config
from unitk.options.config import Checkpoint, Device, UserDir
from unitk.options.fields import flag
from unitk.options.settings import read_options
from unitk.progress import progress
from unitk.registry import register

ASIDE = ("task", "arch")
"""Kinds of components whose options the checkpoint resolves."""


@dataclass(frozen=True, kw_only=True)
class Options(ReadingOptions):
    """Evaluate a model: losses and perplexities on a corpus, bits per byte, minimal pairs, last
    words, choices, infilling, or perplexities in windows. With a latent, also measure how it is
    used.

    unitk evaluate --checkpoint runs/lm --data data/docs/valid
    unitk evaluate --checkpoint runs/lm --data dev.csv --field text
    unitk evaluate --checkpoint runs/lm --pairs blimp
    unitk evaluate --checkpoint runs/lm --data wiki.txt --stride 256
    unitk evaluate --checkpoint runs/lm --data wiki.txt --bits
    """

    checkpoint: Checkpoint
    data: Path | None = None
    """Corpus folder that was made with the vocabulary of the checkpoint, a folder with valid/ in
    it, or a file that `unitk preprocess` reads. The checkpoint's vocabulary encodes a file."""
    task: str | None = None
    """Task to score with, if the model was trained with several. With --data: cloze, for a model
    that was not trained for it; its options follow (--task.patterns rte)."""
    output_format: Literal["text", "json"] = "text"
    """text: lines to read; json: one object."""
    device: Device = "auto"
    precision: Literal["fp32", "bf16"] = "fp32"
    """fp32 or bf16. bf16: autocast over fp32 weights; scores of texts have bf16 weights too. Sums
    are fp32."""
    user_dir: UserDir = None


def value(argv: Sequence[str]) -> dict[str, Any]:
    """The figures of a model, beside what was measured on what."""
    about, judged = measure_given(parse_evaluate(argv))
    return about | judged.figures


@register("verb", "evaluate")
@verb(
    with_evaluations(Options),
    parses=True,
    cure="lower --max-tokens",
    value=value,
    example='(checkpoint="runs/lm", data="data/docs")["lm/ppl"]',
)
def run(argv: Sequence[str]) -> None:
    """Measure and print."""
    parsed = parse_evaluate(argv)
    from unitk.kernels.products import keep_memory

    keep_memory()
    about, judged = measure_given(parsed)
    if parsed.main.output_format == "json":
        print(json.dumps(about | judged.figures))
        return
    heading = (f"{name:<24}{printable(value)}" for name, value in about.items())
    print(*heading, *judged.lines, sep="\n")


def parse_evaluate(argv: Sequence[str]) -> config.Parsed:
    """Parse the options of a command line, those of plug-ins' evaluations included."""
    read_options(argv, Options)  # imports plug-ins, whose evaluations have options
    return config.parse("evaluate", with_evaluations(Options), argv, aside=ASIDE)


def measure_given(parsed: config.Parsed) -> tuple[dict[str, Any], base.Judged]:
    """What is measured on what, and what was found."""
    kinds = choose_evaluations(parsed)
    name, kind = next(iter(kinds.items()))
    if issubclass(kind, base.TextEvaluation):
        about, judged = measure_texts(parsed, name, kind)
    elif issubclass(kind, base.RawEvaluation):
        about, judged = kind.of(parsed.main).measure(parsed, progress)
    else:
        about, judged = measure_model(parsed, kinds)
    # JSON has no NaN
    figures = {name: None if value != value else value for name, value in judged.figures.items()}
    return about, replace(judged, figures=figures)


def apply_evaluation(name: str, evaluation: Any, *subjects: Any) -> base.Judged:
    """What an evaluation of this name finds about its subjects; a plug-in's may return anything."""
    judged = evaluation.judge(*subjects, progress)
    if isinstance(judged, base.Judged):
        return judged
    raise UsageError(
        f"evaluation {name!r} of {registry.sources('evaluation')[name]} must return a Judged, got "
        f"{show_value(judged)}"
    )


def measure_model(
    parsed: config.Parsed, kinds: Mapping[str, type[base.Evaluation]]
) -> tuple[dict[str, Any], base.Judged]:
    """Measure a model on --data by the evaluation that fits it; `objective` fits all."""
    from unitk.evaluation.objective import open_setup
    from unitk.training.device import choose_device

    options = parsed.main
    device = choose_device(options.device)
    bf16 = options.precision == "bf16"
    with open_corpus_of(parsed) as corpus:
        task, rows = options.task, options.stateful_rows
        setup = open_setup(options.checkpoint, corpus, device, bf16, task, parsed.aside, rows)
        if setup.data.train.shortened:
            apart = setup.data.task.predicts and not setup.data.task.windowed
            whole = "; `unitk predict` reads texts whole" if apart else ""
            say(f"unitk evaluate: {setup.data.train.shortened}{whole}")
        possible = {n: kind for n, kind in kinds.items() if issubclass(kind, base.CorpusEvaluation)}
        fitting = [name for name, kind in possible.items() if kind.fits(setup)]
        # `objective` fits every model: it is used where no other one does
        name = min(fitting, key=lambda name: name == "objective")
        for other, kind in possible.items():
            for option in names_of(kind):
                if parsed.settings.given(option) and option not in names_of(possible[name]):
                    raise UsageError(f"{flag(option)} has no effect: the checkpoint has no {other}")
        judged = apply_evaluation(name, possible[name].of(options), setup)
    # a file's own name, not that of the folder it is encoded into
    data = setup.corpus if corpus == options.data else options.data
    return {"checkpoint": str(setup.path), "data": str(data)}, judged


def measure_texts(
    parsed: config.Parsed, name: str, kind: type[base.TextEvaluation]
) -> tuple[dict[str, Any], base.Judged]:
    """Measure what a model makes of texts, and write a line about each if requested."""
    options = parsed.main
    evaluation = kind.of(parsed.main)
    source = "data" if kind.on_corpus else name
    path: Path = getattr(options, source)
    written: AbstractContextManager[Path | None] = nullcontext()
    read: AbstractContextManager[list[Path]]
    if (output := options.output) is not None:
        check_writable(options)
        written = new_file(output, "--output", replace=options.overwrite)
    if kind.on_corpus:
        read = open_texts_of(parsed, name)
    else:
        read = nullcontext(expand((str(path),), flag(name)))
    with written as part, read as paths:
        texts = evaluation.read(paths)
        if not texts:
            raise DataError(f"{flag(source)} {path} is empty")
        judged = apply_evaluation(
            name, evaluation, open_generator(options, parsed.aside.texts), texts
        )
        if part is not None:
            create(part, "".join(f"{json.dumps(record)}\n" for record in judged.each))
    return {"checkpoint": str(options.checkpoint), "data": str(path)}, judged
