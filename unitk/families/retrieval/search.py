"""`unitk search`: find the texts that are nearest to queries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unitk.api.answering import TOGETHER, Answering, check_words, open_generator
from unitk.api.verb import verb
from unitk.decoding.config import EmbedConfig
from unitk.decoding.files.outputs import check_writable, write
from unitk.errors import DataError, require
from unitk.families.retrieval.nearest import rank_nearest
from unitk.families.retrieval.texts import Passage, read_passages
from unitk.options.config import Checkpoint, Parsed
from unitk.options.fields import Positive
from unitk.progress import progress
from unitk.registry import register
from unitk.slots import Floats

TAG = "unitk"
"""The name of the system in a TREC run."""


@dataclass(frozen=True, kw_only=True)
class Options(EmbedConfig, Answering):
    """Find the texts whose vectors are nearest to those of queries, by their cosines. The search is
    exact, and holds the vectors of some texts at a time.

    unitk search "Who wrote it?" --checkpoint runs/vectors --documents texts.txt
    unitk search --checkpoint runs/x --input in.txt --documents texts.txt
    """

    texts: tuple[str, ...] = ()
    """Queries, each in quotes, instead of --input."""
    checkpoint: Checkpoint  # first on its help page
    input: Path | None = None
    """File of queries, one a line, or a table."""
    source_field: tuple[str, ...] = ()
    """Field of a table of queries that holds the text (default: source). Several are its parts."""
    documents: tuple[Path, ...]
    """Files of texts to find, one a line, or tables. A folder stands for all files in it."""
    document_field: tuple[str, ...] = ()
    """Field of a table of documents that holds the text (default: text). Several are its parts."""
    id_field: str = "id"
    """Field of a table that holds the id of a query or of a text. Where there is none, it is the
    number of the text among all, from 0."""
    vectors: Path | None = None
    """Vectors of the documents, which `unitk embed --output NAME.npy` wrote with the same options.
    Default: they are computed."""
    top: Positive = 10
    """Number of texts to find for each query."""
    dimensions: Positive | None = None
    """Number of first dimensions to compare, as of `unitk embed`. Default: all."""
    output_format: Literal["auto", "jsonl", "trec"] = "auto"
    """jsonl: an object a query, with the texts; trec: a line a text (query, Q0, text, rank, cosine,
    unitk). auto: trec for an --output NAME.trec, else jsonl."""


@dataclass(frozen=True)
class Hits:
    """A query and the documents that are nearest to it, with their cosines."""

    query: Passage
    documents: list[tuple[Passage, float]]

    def record(self) -> dict[str, Any]:
        """The query and its documents as a json object."""
        hits = [
            {"id": document.id, "score": round(score, 6), "text": document.text}
            for document, score in self.documents
        ]
        return {"id": self.query.id, "source": self.query.text, "found": hits}

    def trec(self) -> Iterator[str]:
        """The lines of a TREC run that the documents are."""
        for rank, (document, score) in enumerate(self.documents, start=1):
            for id_ in (self.query.id, document.id):
                if len(id_.split()) != 1:
                    raise DataError(f"id {id_!r} has a blank, which no TREC run can have")
            yield f"{self.query.id} Q0 {document.id} {rank} {score:.6f} {TAG}"


def value(parsed: Parsed) -> list[dict[str, Any]]:
    """The nearest texts of each query."""
    return [hits.record() for hits in find_passages(parsed.main)]


@register("verb", "search")
@verb(
    Options,
    words="texts",
    cure="lower --max-tokens",
    value=value,
    none=list,
    example='(["Who wrote it?"], checkpoint="runs/vectors", documents="docs.txt")[0]["found"]',
)
def run(parsed: Parsed) -> None:
    """Read, search, write."""
    options: Options = parsed.main
    check_writable(options)
    trec = options.output_format == "trec"
    trec |= options.output_format == "auto" and options.output.suffix == ".trec"
    hits = find_passages(options)
    lines = (json.dumps(hits_of_query.record(), ensure_ascii=False) for hits_of_query in hits)
    if trec:
        lines = (line for hits_of_query in hits for line in hits_of_query.trec())
    write(lines, options.output, options.overwrite)


def find_passages(options: Options) -> list[Hits]:
    """The nearest documents of each query, in the order of the queries."""
    check_words(options.texts)
    require(
        options.side == "source", "--side has no effect: queries are sources, documents are targets"
    )
    require(options.pool != "none", "--pool none makes no vector of a text")
    queries = read_queries(options)
    documents = read_passages(
        options.documents, "--documents", "text", options.document_field, options.id_field
    )
    stored = None if options.vectors is None else open_vectors(options.vectors, len(documents))
    generator = open_generator(options)
    sides = generator.task.sides  # one, if queries and documents have the same tower
    of_queries = replace(options, side=sides[0])
    of_documents = replace(options, side=sides[-1])
    queries_QW = np.concatenate([*vectors_of(of_queries, generator, queries)])
    if stored is None:
        blocks = vectors_of(of_documents, generator, documents)
    else:
        blocks = stored_blocks(stored, options, queries_QW.shape[1])
    scores_QK, number_QK = rank_nearest(queries_QW, blocks, options.top)
    return [
        Hits(
            query,
            [
                (documents[number], score)
                for number, score in zip(numbers.tolist(), scores.tolist(), strict=True)
                if np.isfinite(score)
            ],
        )
        for query, numbers, scores in zip(queries, number_QK, scores_QK, strict=True)
    ]


def read_queries(options: Options) -> list[Passage]:
    """The queries of the command line, or those of --input."""
    require(bool(options.texts) != (options.input is not None), "give either texts or --input FILE")
    if options.input is None:
        return [Passage(str(n), text.split("\t")) for n, text in enumerate(options.texts)]
    fields = options.source_field, options.id_field
    return read_passages([options.input], "--input", "source", *fields)


def stored_blocks(stored: Floats, options: Options, width: int) -> Iterator[Floats]:
    """The vectors of --vectors, some at a time; UsageError unless those of queries fit them."""
    taken = options.dimensions or stored.shape[1]
    require(
        width == taken <= stored.shape[1],
        f"--vectors {options.vectors} has {stored.shape[1]} dimensions, and those of the "
        f"queries have {width}",
    )
    return (stored[at : at + TOGETHER, :taken] for at in range(0, len(stored), TOGETHER))


def vectors_of(options: Options, generator: Any, texts: Sequence[Passage]) -> Iterator[Floats]:
    """The vectors of texts [N, W], some at a time."""
    from unitk.decoding.understand.embed import embed

    with progress(len(texts)) as report:
        for at in range(0, len(texts), TOGETHER):
            sources = generator.encode([text.parts for text in texts[at : at + TOGETHER]])
            model, task = generator.model, generator.task
            vectors = np.array(embed(model, task, sources, options, first=at, report=report))
            width = vectors.shape[1]
            size = options.dimensions
            require(
                (size or 0) <= width,
                f"--dimensions {size}: vectors of this model have {width}",
            )
            yield vectors[:, :size]


def open_vectors(path: Path, count: int) -> Floats:
    """The stored vectors [N, W] of `count` documents, memory-mapped; `DataError` for others."""
    try:
        vectors: Floats = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise DataError(f"--vectors {path}: {error.strerror}") from error
    except (ValueError, EOFError) as error:
        raise DataError(f"--vectors {path} is no array that `unitk embed` wrote") from error
    whole = vectors.ndim == 2 and vectors.dtype.kind == "f" and len(vectors) == count
    if not whole:
        shape = " x ".join(map(str, vectors.shape))
        raise DataError(f"--vectors {path} has {shape} numbers, but --documents {count:,} texts")
    return vectors
