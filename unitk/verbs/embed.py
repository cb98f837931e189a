"""`unitk embed`: write states of a model, or a vector for each text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unitk.api import answering
from unitk.api.verb import verb
from unitk.decoding.config import EmbedConfig
from unitk.decoding.files.inputs import Input
from unitk.decoding.files.outputs import STDOUT, check_writable, list_numbers, write
from unitk.errors import DataError, require
from unitk.files import new_file, open_plain
from unitk.options.config import Checkpoint, Parsed
from unitk.options.fields import Positive
from unitk.progress import Report
from unitk.registry import register

EXAMPLE = '(["The cat sat on the mat."], checkpoint="runs/lm")'


@dataclass(frozen=True, kw_only=True)
class Options(EmbedConfig, answering.Answering):
    """Write vectors of texts: the mean of their states, the state at [CLS], the states of any
    layer, or a latent. Of an encoder-decoder model the encoder is read.

    unitk embed --checkpoint models/bert --input texts.txt --output vectors.npy
    """

    checkpoint: Checkpoint  # first on its help page
    input: Path | None = None
    """File of texts, one a line (a tab between parts), or json-lines (field source). `-` (standard
    input) is answered line by line."""
    source_field: tuple[str, ...] = ()
    """Field of a table that holds the text, as in `unitk preprocess`. Several are its parts."""
    dimensions: Positive | None = None
    """Number of first dimensions to write, of a model that was trained for these
    (`--criterion.widths` of task contrastive). Default: all."""
    output: Path = STDOUT
    """Output file. NAME.npy: an array with one row a text. Any other name, and `-` (standard
    output): json-lines."""


def embed_texts(parsed: Parsed) -> Iterator[tuple[Input, Any]]:
    """The texts with their vectors or states."""
    options = parsed.main
    inputs = answering.inputs_of(parsed)
    from unitk.decoding.understand.embed import embed

    generator = answering.open_generator(options)

    def read(texts: list[Input], first: int, report: Report) -> list[Any]:
        model, task = generator.model, generator.task
        sources = generator.encode([text.parts for text in texts])
        vectors = embed(model, task, sources, options, first=first, report=report)
        width = vectors[0].shape[-1] if vectors else 0
        size = options.dimensions
        require(
            not vectors or (size or 0) <= width,
            f"--dimensions {size}: vectors of this model have {width}",
        )
        return [vector[..., :size] for vector in vectors]

    return (answer for group in answering.answer_all(inputs, read) for answer in group)


def value(parsed: Parsed) -> Any:
    """A vector for each text [N, D], or a list of their states [T, D]."""
    vectors = [vector_of(answer) for _, answer in embed_texts(parsed)]
    return vectors if parsed.main.pool == "none" else np.array(vectors)


def no_vectors() -> Any:
    """The vectors of no texts."""
    return np.empty((0, 0), np.float32)


@register("verb", "embed")
@verb(
    Options, words="texts", cure="lower --max-tokens", value=value, none=no_vectors, example=EXAMPLE
)
def run(parsed: Parsed) -> None:
    """Read, embed, write."""
    options: Options = parsed.main
    npy = options.output.suffix == ".npy"
    require(
        not (npy and options.pool == "none"), "--pool none is written as json-lines, not as .npy"
    )
    check_writable(options, own=".npy")
    answered = embed_texts(parsed)
    if npy:
        with new_file(options.output, "--output", replace=options.overwrite) as part:
            vectors = [vector_of(answer) for _, answer in answered]
            # to a file of mode "wb" numpy writes past Python, and names no reason if it cannot
            with open_plain(part, "w+b") as file:
                np.save(file, np.array(vectors, np.float32))
    else:
        lines = (vector_line(number, *pair) for number, pair in enumerate(answered))
        write(lines, options.output, options.overwrite)


def vector_of(answer: Any) -> Any:
    """A vector; the error of a text in a stream is raised."""
    if isinstance(answer, DataError):
        raise answer
    return answer


def vector_line(number: int, text: Input, answer: Any) -> str:
    """A json object with the vector of a text, or with its error."""
    if not isinstance(answer, DataError):
        answer = {"vector": list_numbers(answer)}
    return answering.record(number, text, answer)
