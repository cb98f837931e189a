"""Predictions of fine-tuned models: classes, numbers, tags, answers and choices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unitk.data.texts import shorten, windows
from unitk.decoding.config import PredictConfig
from unitk.decoding.fit import batch_prompts, split_by_example
from unitk.errors import DataError, NonFiniteError, require
from unitk.models.base import Decoder
from unitk.models.heads.base import LM
from unitk.models.model import Model
from unitk.progress import Report, no_report
from unitk.slots import Example, Ids, collate
from unitk.tasks.understanding.base import Understanding

Prediction = dict[str, Any]
"""Figures by name: a label and its probability, a value, tags, or an answer and its start."""


@dataclass(frozen=True)
class Window:
    """A text, or a window of it, as a model reads it."""

    number: int  # of the text
    start: int  # where the window begins in its last part
    parts: list[Ids]
    example: Example


@torch.inference_mode()
def predict(
    model: Decoder,
    task: Understanding,
    sources: Sequence[list[Ids]],
    config: PredictConfig,
    *,
    first: int = 0,
    report: Report = no_report,
) -> list[Prediction]:
    """The model's prediction for each source, also for one without words.

    `first` is the number of the first source among all inputs. A source that is too long raises
    DataError, or is shortened if the config says so. A long passage is read in windows that overlap
    by half. Of an ensemble, each model reads the texts as its own task lays them out.
    """
    if len(model.members) > 1 and task.averages_labels:
        return predict_by_labels(model, sources, config, first, report)
    tasks = [
        own.with_trained(position_limit=model.config.position_limit)
        for own in model.tasks or [task]
    ]
    task = tasks[0]
    _check_options(task, config)
    read = [*_read(tasks, sources, config, first)]
    best: list[Prediction] = [{} for _ in sources]
    # each model reads the texts as its task lays them out
    laid = [
        [window.example if own is task else lay_out_first(own, window.parts) for window in read]
        for own in tasks
    ]
    examples = laid[0]
    for numbers in batch_prompts(examples, config.max_tokens):
        pairs = [
            (member, [own[i] for i in numbers])
            for member, own in zip(model.members, laid, strict=True)
        ]
        output = finite_output(mean_output(pairs), task.form)
        for i, rows in split_by_example(output, examples, numbers):
            prediction = _decide(task, read[i], rows, config)
            number = read[i].number
            if not best[number] or _rank(prediction) > _rank(best[number]):
                best[number] = prediction
        # of a text in windows, the first one counts
        report(sum(read[i].start == 0 for i in numbers))
    report(best.count({}))
    no_tags: Prediction = {"tags": [], **({"probabilities": []} if config.probabilities else {})}
    return [found or {**no_tags} for found in best]


def _read(
    tasks: Sequence[Understanding], sources: Sequence[list[Ids]], config: PredictConfig, first: int
) -> Iterator[Window]:
    """Yield the sources, or windows of them, as the first task lays them out.

    One without words has no tags.
    """
    for number, source in enumerate(sources):
        if tasks[0].form == "tags" and not any(map(len, source)):
            continue
        name = f"input {first + number + 1}"
        if tasks[0].form == "choice" and len(source) < 2:
            raise DataError(f"{name} has no choices, which are the parts after its text")
        for start, parts in readings(tasks, source, name, config):
            yield Window(number, start, parts, lay_out_first(tasks[0], parts))


def _decide(task: Understanding, window: Window, rows: Any, config: PredictConfig) -> Prediction:
    """The prediction for a window, with places in the whole text."""
    prediction = task.decide(window.parts, rows, config.null_threshold)
    if not config.probabilities:
        prediction.pop("probabilities", None)
    if "span" in prediction and prediction["span"][0] >= 0:
        prediction["span"] = [window.start + index for index in prediction["span"]]
    return prediction


def _check_options(task: Understanding, config: PredictConfig) -> None:
    """Raise `UsageError` for options that have no effect on the predictions of a task."""
    answers = task.windowed or config.null_threshold == 0
    require(answers, f"--null-threshold has no effect: task {task.name} finds no answers")
    labels = task.form in ("class", "classes", "choice", "tags") or not config.probabilities
    require(labels, f"--probabilities has no effect: task {task.name} has no labels")


def predict_by_labels(
    model: Decoder, sources: Sequence[list[Ids]], config: PredictConfig, first: int, report: Report
) -> list[Prediction]:
    """The most probable labels by the mean of the models' probabilities of labels.

    It is for cloze questions: their outputs are words, which differ from pattern to pattern.
    """
    with_odds = replace(config, probabilities=True)
    of_models = [
        predict(member, own, sources, with_odds, first=first)
        for member, own in zip(model.members, model.tasks, strict=True)
    ]
    best: list[Prediction] = [{} for _ in sources]
    for number, predictions in enumerate(zip(*of_models, strict=True)):
        odds = [prediction.get("probabilities", {}) for prediction in predictions]
        mean = {name: sum(own[name] for own in odds) / len(odds) for name in odds[0]}
        if mean:
            label = max(mean, key=mean.__getitem__)
            best[number] = {"label": label, "probability": mean[label]}
            if config.probabilities:
                best[number]["probabilities"] = mean
    report(len(sources))
    return best


def finite_output(output: Tensor, form: str) -> Tensor:
    """Return the output of a head for labels of a form; `NonFiniteError` if it is not finite."""
    # -inf stands for places that an answer cannot have
    finite = output.isfinite() if form == "number" else output < torch.inf
    if not finite.all():
        raise NonFiniteError("the model gives outputs that are not finite: nothing is predicted")
    return output


def mean_output(models: Sequence[tuple[Model, list[Example]]]) -> Tensor:
    """The mean output [K, ...] of models for the same texts, which each has laid out in its way."""
    outputs = []
    for model, examples in models:
        batch = collate([[example] for example in examples]).to(model.device)
        [ask] = batch.asks.values()
        # labels over the vocabulary are answers to be scored; other outputs are the task's to read
        read = model.log_probs if ask.head == LM and ask.among is None else model.output
        outputs.append(read(batch, ask).float())
    # heads of one kind average alike, however they pool states
    return outputs[0] if len(outputs) == 1 else model.heads.get(ask.head).mean(outputs)


def lay_out_first(task: Understanding, parts: list[Ids]) -> Example:
    """Lay out texts with only the ask of what is predicted."""
    example = task.lay_out(parts)
    return replace(example, asks=example.asks[:1])


def readings(
    tasks: Sequence[Understanding], source: list[Ids], name: str, config: PredictConfig
) -> Iterator[tuple[int, list[Ids]]]:
    """Yield a source, or windows of its last part if it is too long: their starts, and the parts.

    Each fits the layouts of all tasks, those of an ensemble.
    """
    task = tasks[0]
    over = _count_excess(tasks, source)
    limit = f"{task.trained.position_limit:,} positions of this model"
    max_source = task.trained.max_source
    if task.windowed and max_source is not None:
        # training read longer sources in windows, too
        longer = sum(map(len, source)) - max_source
        if longer > over:
            over = longer
            limit = f"{max_source:,} tokens of sources in its training"
    if task.windowed and over < len(source[-1]):
        size = len(source[-1]) - max(over, 0)
        for start in windows(np.array([len(source[-1])]), np.array([size]))[1].tolist():
            yield start, [*source[:-1], source[-1][start : start + size]]
        return
    if over <= 0:
        yield 0, source
        return
    if not (config.truncate and task.shortens_parts):
        cure = "; --truncate shortens its last part" if task.shortens_parts else ""
        raise DataError(f"{name} is too long by {over:,} for the {limit}{cure}")
    while over > 0:
        source = shorten(source, sum(map(len, source)) - over)
        over = _count_excess(tasks, source)
    yield 0, source


def _count_excess(tasks: Sequence[Understanding], source: list[Ids]) -> int:
    position_limit = tasks[0].trained.position_limit
    towers = [slots for task in tasks for slots in task.lay_out(source).towers.values()]
    return (
        max(int(slots.pos.max()) for slots in towers) + 1 - position_limit if position_limit else 0
    )


def _rank(prediction: Prediction) -> tuple[bool, float]:
    """What ranks the answers of windows; any answer is better than none."""
    return prediction["span"][0] >= 0, prediction["probability"]
