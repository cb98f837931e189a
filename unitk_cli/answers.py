"""Inputs of `embed` and `predict`, which give one answer for each text."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from unitk import config
from unitk.api.progress import progress
from unitk.data.reading.pairs import Fields, read_squad
from unitk.data.reading.sources import format_of, is_stream
from unitk.decoding.files.inputs import Input, arriving, read_inputs
from unitk.errors import DataError, require

TOGETHER = 1024
"""Texts that are read by the model, and written, before the next ones."""
Inputs = list[Input] | Iterator[list[Input]]
Answer = Callable[[list[list[str]], int, Callable[[int], None]], list[Any]]
"""(texts as their parts, the number of the first one, a report of how many are done) -> answers."""


def inputs_of(parsed: config.Parsed, questions: bool = False, form: str = "") -> Inputs:
    """The texts of a command line, of a file, or of a stream as they arrive.

    With `questions`, they are the questions of a SQuAD json with their passages. Lists of records
    are choices if that is the `form` of the labels.
    """
    given = parsed.main
    require(bool(given.texts) != (given.input is not None), "give either texts or --input FILE")
    if given.input is None:
        parsed.idle("without --input", "source_field")
        return [Input([text]) for text in given.texts]
    fields = Fields(given.source_field, (), form=form) if given.source_field else None
    if is_stream(given.input):
        return arriving(given.input_format, TOGETHER, given.input, fields)
    if questions and not fields and format_of(given.input, given.input_format) == "squad":
        return [Input(asked.source) for asked in read_squad(given.input, spans=True)]
    return read_inputs(given.input, given.input_format, fields)


def answers(inputs: Inputs, answer: Answer, done: int = 0) -> Iterator[list[tuple[Input, Any]]]:
    """Yield the texts after the first `done` with their answers, group by group.

    In a stream, a text has an answer or a DataError: a bad line does not affect the others.
    """
    total, alone, first = None, not isinstance(inputs, list), done
    if isinstance(inputs, list):
        total = len(inputs)
        inputs = iter([inputs[at : at + TOGETHER] for at in range(done, total, TOGETHER)])
    with progress(total, done) as report:

        def each(some: list[Input], first: int) -> list[Any]:
            if errors := [one.error for one in some if one.error]:
                error = DataError(errors[0])
            else:
                try:
                    return answer([one.source for one in some], first, report)
                except DataError as caught:
                    error = caught
            if not alone:
                raise error
            if len(some) == 1:
                return [error]
            return [found for i, one in enumerate(some) for found in each([one], first + i)]

        for some in inputs:
            yield list(zip(some, each(some, first), strict=True))
            first += len(some)


def record(number: int, text: Input, found: dict[str, Any] | DataError) -> str:
    """A json object for a text, with its answer or its error."""
    source = text.source[0] if len(text.source) == 1 else text.source
    about = {"error": str(found)} if isinstance(found, DataError) else {"source": source, **found}
    return json.dumps({"id": number, **about}, ensure_ascii=False)
