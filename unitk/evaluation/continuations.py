"""Continuations of a context: its last word (LAMBADA), or the right one of several choices.

LAMBADA: Paperno et al. 2016, arXiv 1606.06031. Choices are ranked by the sum of their
log-probabilities, and by its mean per token and per byte, because the sum prefers short ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import regex

from unitk.data.files.labels import label_of, number_of_choice
from unitk.data.files.readers import records
from unitk.errors import DataError
from unitk.evaluation.base import Judged, Progress, Scoring, Writing, figure_lines
from unitk.registry import register
from unitk.slots import Floats, Ids, exact_sum
from unitk.vocab.scripts import UNIT, UNSPACED

if TYPE_CHECKING:
    from unitk.decoding.generator import Generator

LAST = re.compile(r"\s+\S+\s*$")
LETTERS = regex.compile(r"\p{L}", regex.V1), regex.compile(r"(?r)\p{L}", regex.V1)
"""The first letter, and the last one."""
NO_BLANKS = regex.compile(UNSPACED, regex.V1)
NORMS = "sum", "per_token", "per_byte"


@dataclass(frozen=True)
class Question:
    """A context, what may follow it (what is between them included), and the right one's number."""

    context: str
    choices: tuple[str, ...]
    label: int | None
    place: str


def read_last_words(paths: Sequence[Path]) -> list[Question]:
    """Read texts whose last word is to be predicted: lines, or records with the field `text`."""
    texts = []
    for record in chain.from_iterable(records(path, plain="text") for path in paths):
        text = record.text("text").strip()
        start = last_word_at(text)
        if not start:
            raise DataError(f"{record.place}: the text has less than two words")
        texts.append(Question(text[:start], (text[start:],), 0, record.place))
    return texts


def last_word_at(text: str) -> int:
    """Where the last word of a text begins, with the blank before it; 0 if it is the only one.

    Of a script without blanks between words, it is the last letter and what follows it.
    """
    blank = LAST.search(text)
    start = blank.start() if blank else 0
    units = [unit for unit in UNIT.finditer(text, start) if any(map(str.isalnum, unit[0]))]
    joint = units and NO_BLANKS.match(units[-1][0]) and text[start : units[-1].start()].strip()
    return units[-1].start() if joint else start


def separator_of(context: str, choice: str) -> str:
    """The separator of a context and a choice: a blank, if their scripts separate words by it."""
    if not context or context[-1].isspace() or choice[0].isspace():
        return ""
    first, last = LETTERS
    letters = [match[0] for match in (last.search(context), first.search(choice)) if match]
    return "" if letters and all(map(NO_BLANKS.match, letters)) else " "


def read_choices(paths: Sequence[Path], delimiter: str | None = None) -> list[Question]:
    """Read records with the fields `choices`, and optionally `context` and `label`.

    The `delimiter` is between context and choice; by default what `separator_of` says.
    """
    texts = []
    for record in chain.from_iterable(map(records, paths)):
        context = "" if record.get("context") is None else record.text("context")
        choices = record.texts("choices", least=2, blank=False)
        label = record.get("label")
        if label is not None:
            where = record.where("label")
            label = number_of_choice(label_of(label, "choice", where)[0], choices, where)
        if delimiter is not None and context:
            after = tuple(delimiter + choice for choice in choices)
        else:
            after = tuple(separator_of(context, choice) + choice for choice in choices)
        texts.append(Question(context, after, label, record.place))
    return texts


@dataclass(frozen=True, kw_only=True)
class Continuations(Scoring, Writing):
    """Contexts and what may follow them."""

    ranked: ClassVar[bool] = True  # whether one of several choices is right

    def judge(self, generator: Generator, texts: Sequence[Question], progress: Progress) -> Judged:
        scored = self.score(generator, texts, progress)
        figures = (rank_choices if self.ranked else last_words)(texts, scored)
        return Judged(figures, figure_lines(figures), lines_about(texts, scored, self.ranked))

    def score(
        self, generator: Generator, questions: Sequence[Question], progress: Progress
    ) -> list[list[Floats]]:
        """Score each choice, [2, tokens]; a context that is too long loses its beginning."""
        flat = [[question.context, choice] for question in questions for choice in question.choices]
        places = [question.place for question in questions for _ in question.choices]
        ids: list[tuple[Ids, Ids]] = [(first, text) for first, text in generator.encode(flat)]
        for number, (context, choice) in enumerate(flat):
            if context.strip() and not (context[-1].isspace() or choice[0].isspace()):
                inside = generator.vocab.encode_inside(choice)  # it begins no word
                ids[number] = ids[number][0], np.array(inside, np.int64)
        for (_, text), where in zip(ids, places, strict=True):
            if not len(text):
                raise DataError(f"{where}: a choice or word has no token of the vocabulary")
        likelihoods = self.likelihoods(generator, ids, places.__getitem__, progress, truncate=True)
        scored = iter(likelihoods)
        return [[next(scored) for _ in question.choices] for question in questions]


@register("evaluation", "last_word")
@dataclass(frozen=True, kw_only=True)
class LastWord(Continuations):
    """Texts whose last word to predict (LAMBADA): json-lines with the field text, or lines."""

    ranked = False

    def read(self, paths: Sequence[Path]) -> list[Question]:
        return read_last_words(paths)


@register("evaluation", "choices")
@dataclass(frozen=True, kw_only=True)
class Choices(Continuations):
    """Questions whose right answer should be the most probable one.
    Json-lines have the fields context, choices (a list) and label (a number from 0)."""

    delimiter: str | None = None
    """With --choices: what is between a context and a choice. Default: a blank, or nothing
    where one of them has it or the script has no blanks between words (Chinese, Japanese, Thai)."""

    def read(self, paths: Sequence[Path]) -> list[Question]:
        return read_choices(paths, self.delimiter)


def last_words(questions: Sequence[Question], scored: Sequence[Sequence[Floats]]) -> dict[str, Any]:
    """Accuracy in per cent (every token is the most probable), and perplexity of the words."""
    right = [bool(greedy.all()) for ((_, greedy),) in scored]
    nats = [-exact_sum(gains) for ((gains, _),) in scored]
    return {
        "texts": len(questions),
        "accuracy": 100 * float(np.mean(right)),
        "log_prob": -float(np.mean(nats)),
        "ppl_last_word": math.exp(min(float(np.mean(nats)), 700)),
        "tokens_last_word": float(np.mean([table.shape[1] for (table,) in scored])),
    }


def rank_choices(
    questions: Sequence[Question], scored: Sequence[Sequence[Floats]]
) -> dict[str, Any]:
    """Accuracies in per cent, of the questions with a label, and that of a guess; where n choices
    tie for the first place, each counts 1 / n."""
    shares = [
        {
            f"accuracy_{name}": tied_share(score, question.label)
            for name, score in scores(question, own).items()
        }
        | {"chance": 1 / len(own)}
        for question, own in zip(questions, scored, strict=True)
        if question.label is not None
    ]
    kinds = shares[0] if shares else ()
    means = {name: 100 * float(np.mean([s[name] for s in shares])) for name in kinds}
    if len(shares) < len(questions):
        means["labelled"] = len(shares)
    return {"questions": len(questions), **means}


def scores(question: Question, tables: Sequence[Floats]) -> dict[str, Floats]:
    """The choices' log-probabilities: their sums, and these per token and per byte."""
    total = np.array([exact_sum(gains) for gains, _ in tables])
    size = np.array([len(choice.strip().encode()) for choice in question.choices])
    tokens = np.array([max(table.shape[1], 1) for table in tables])
    divisors = zip(NORMS, (1, tokens, size), strict=True)
    return {name: (total / divisor).astype(np.float32) for name, divisor in divisors}


def tied_share(score: Floats, label: int) -> float:
    """1 if only the labelled choice has the best score, 1 / n if n choices have it, else 0."""
    best = score == score.max()
    return float(best[label] / best.sum())


def lines_about(
    questions: Sequence[Question], scored: Sequence[Sequence[Floats]], choices: bool
) -> Iterator[dict[str, Any]]:
    """A json record for each question, in order."""
    for question, tables in zip(questions, scored, strict=True):
        place = question.place
        if choices:
            score = {name: values.tolist() for name, values in scores(question, tables).items()}
            yield {"place": place, "label": question.label, **score}
        else:
            [(gains, greedy)] = tables
            word = question.choices[0].strip()
            total = exact_sum(gains)
            yield {"place": place, "word": word, "log_prob": total, "right": bool(greedy.all())}
