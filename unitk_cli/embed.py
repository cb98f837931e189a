"""`unitk embed`: states of a model, or a vector for each text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unitk import config
from unitk.data.reading.pairs import Fields
from unitk.data.reading.sources import is_stream
from unitk.decoding.config import EmbedConfig
from unitk.decoding.files.inputs import Input, arriving, read_inputs
from unitk.decoding.files.outputs import STDOUT, check_writable
from unitk.errors import DataError, require
from unitk.files import new_file
from unitk.latent.config import Common
from unitk_cli.generate import open_generator
from unitk_cli.progress import progress

TOGETHER = 1024  # texts that are read by the model, and written, before the next ones


@dataclass(frozen=True, kw_only=True)
class Options(EmbedConfig, Common):
    """Write what a model makes of texts: the mean of their states, [CLS], the states of any layer,
    or a latent. Encoder-decoder models answer with their encoder.

    unitk embed --checkpoint models/bert --input texts.txt --output vectors.npy
    """

    checkpoint: Path
    """A run folder (its best checkpoint is taken) or a checkpoint."""
    input: Path | None = None
    """Texts of a file, one a line (a tab between parts) or json-lines (field source); `-`, standard
    input, is answered as lines come."""
    source_field: tuple[str, ...] = ()
    """Field of a table that holds the text, as in `preprocess`; several: its parts."""
    output: Path = STDOUT
    """NAME.npy: an array of a row a text; any other name, and `-` (standard output): json-lines."""


def run(argv: Sequence[str]) -> None:
    """Read, embed, write."""
    parsed = config.parse("embed", Options, argv, positional="texts")
    given: Options = parsed.main
    require(bool(given.texts) != (given.input is not None), "give either texts or --input FILE")
    npy = given.output.suffix == ".npy"
    require(not (npy and given.pool == "none"), "--pool none is written as json-lines, not as .npy")
    check_writable(given.output)
    inputs: list[Input] | Iterator[list[Input]] = [Input([text]) for text in given.texts]
    if given.input is None:
        parsed.idle("without --input", "source_field")
    else:
        fields = Fields(given.source_field, ()) if given.source_field else None
        if is_stream(given.input):
            inputs = arriving(given.input_format, TOGETHER, given.input, fields)
        else:
            inputs = read_inputs(given.input, given.input_format, fields)
    if given.output == STDOUT:
        for number, (text, found) in enumerate(answers(given, inputs)):
            print(line(number, text, found), flush=True)
        return
    with new_file(given.output, "--output") as part:
        if npy:
            rows = [vector_of(found) for _, found in answers(given, inputs)]
            np.save(part, np.array(rows, np.float32))
            return
        with part.open("w", encoding="utf-8") as file:
            numbered = enumerate(answers(given, inputs))
            file.writelines(line(number, *one) + "\n" for number, one in numbered)


def answers(
    given: Options, inputs: list[Input] | Iterator[list[Input]]
) -> Iterator[tuple[Input, Any]]:
    """Each text with what the model makes of it; in a stream, or with why it is no text."""
    from unitk.decoding.embed import embed

    generator, total, first = open_generator(given), None, 0
    alone = not isinstance(inputs, list)  # one bad line of a stream costs no other its answer
    if isinstance(inputs, list):
        total = len(inputs)
        # in parts: standard output has answers before all texts are read
        inputs = iter([inputs[at : at + TOGETHER] for at in range(0, total, TOGETHER)])
    with progress(total) as report:

        def answer(some: list[Input], first: int) -> list[Any]:
            if errors := [one.error for one in some if one.error]:
                error = DataError(errors[0])
            else:
                sources = generator.encode([one.source for one in some])
                try:
                    how: dict[str, Any] = {"first": first, "report": report}
                    return embed(generator.model, generator.task, sources, given, **how)
                except DataError as caught:
                    error = caught
            if not alone:
                raise error
            if len(some) == 1:
                return [error]
            return [found for i, one in enumerate(some) for found in answer([one], first + i)]

        for some in inputs:
            yield from zip(some, answer(some, first), strict=True)
            first += len(some)


def vector_of(found: Any) -> Any:
    """A vector; raised, if it is an error."""
    if isinstance(found, DataError):
        raise found
    return found


def line(number: int, text: Input, found: Any) -> str:
    """An object for json-lines."""
    if isinstance(found, DataError):
        return json.dumps({"id": number, "error": str(found)}, ensure_ascii=False)
    source = text.source[0] if len(text.source) == 1 else text.source
    # the shortest digits that a float of 32 bits has
    numbers = np.array(found.astype(str), object).astype(float).tolist()
    return json.dumps({"id": number, "source": source, "vector": numbers}, ensure_ascii=False)
