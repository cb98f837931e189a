"""`unitk predict`: predict labels, numbers, tags, answers or choices."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from unitk.api import answering
from unitk.api.verb import verb
from unitk.decoding.config import PredictConfig
from unitk.decoding.files.inputs import Input
from unitk.decoding.files.outputs import STDOUT
from unitk.decoding.files.sink import is_finished
from unitk.errors import DataError, require
from unitk.files import reserve
from unitk.options.config import Parsed
from unitk.progress import Report
from unitk.registry import register


@dataclass(frozen=True, kw_only=True)
class Options(PredictConfig, answering.Answering):
    """Predict with a model that was trained with --task classify, multi_label, mtdnn, regress, tag,
    span or choice.
    --task cloze and its options predict with any model that fills blanks.

    unitk predict --checkpoint runs/sst2 --input texts.tsv --output labels.jsonl
    unitk predict --checkpoint runs/glm --task cloze --task.patterns sst2 "dull"
    """

    checkpoint: tuple[Path, ...]  # type: ignore[assignment]
    """Run folder (its best checkpoint), checkpoint or bundled model. Several models form an
    ensemble, which predicts with the mean of their probabilities; each reads texts in its way."""
    input: Path | None = None
    """File of texts: lines (a tab between two texts, or between question and passage), json-lines
    (field source) or SQuAD json. `-` (standard input) is answered line by line."""
    source_field: tuple[str, ...] = ()
    """Field of a table that holds the text, as in `unitk preprocess`. Several are its parts."""
    output_format: Literal["jsonl", "text"] = "jsonl"
    """jsonl: an object a text, with label and probability, value, tags, or answer and probability.
    text: a line a text."""
    resume: bool = False
    """Continue an interrupted --output."""


def predict_texts(parsed: Parsed, done: int = 0) -> Iterator[list[tuple[Input, Any]]]:
    """The texts after the first `done` with their predictions, group by group."""
    options: Options = parsed.main
    generator = answering.open_generator(options, parsed.aside.texts)
    inputs = answering.inputs_of(parsed, questions=True, form=generator.task.form)

    def predict(texts: list[Input], first: int, report: Report) -> list[Any]:
        return generator.predictions([text.parts for text in texts], options, first, report)

    return answering.answer_all(inputs, predict, done)


def value(parsed: Parsed) -> list[dict[str, Any]]:
    """The predictions."""
    return [prediction for group in predict_texts(parsed) for _, prediction in group]


@register("verb", "predict")
@verb(
    Options,
    words="texts",
    aside=("task", "arch"),
    cure="lower --max-tokens",
    value=value,
    none=list,
    example='(["A lovely film."], checkpoint="runs/sst2")[0]["label"]',
)
def run(parsed: Parsed) -> None:
    """Read the texts, predict, and write the predictions."""
    options: Options = parsed.main
    require(
        options.output_format == "jsonl" or not options.probabilities,
        "--probabilities has no effect with --output-format text",
    )
    answering.check_output(options)
    if options.resume and not options.overwrite and is_finished(options.output):
        return
    with nullcontext() if options.output == STDOUT else reserve(options.output, "--output"):
        sink = answering.sink_of(options, parsed.settings.texts | parsed.aside.texts)
        number = sink.done
        for group in predict_texts(parsed, number):
            lines = [
                predict_line(at, *pair, options.output_format)
                for at, pair in enumerate(group, number)
            ]
            sink.add(lines, len(group))
            number += len(group)
        sink.close()


def predict_line(number: int, text: Input, answer: Any, output_format: str) -> str:
    """A prediction, or the error of its text, as a line of --output."""
    if output_format == "jsonl" or isinstance(answer, DataError):
        return answering.record(number, text, answer)
    value = next(iter(answer.values()), "")
    return " ".join(value) if isinstance(value, list) else str(value)
