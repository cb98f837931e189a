"""The cost of documents to a model, in nats per token and document, and in bits per byte.

The bytes are those of the text and not of what the vocabulary restores, so that tokenizers can be
compared. A character that a vocabulary does not know costs a code point of Unicode, all of which
are equally probable, beside its unknown token.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from unitk.comparison.estimators import estimator_of
from unitk.comparison.texts import Document
from unitk.errors import require
from unitk.evaluation.base import Progress
from unitk.evaluation.estimators import Cost, Estimation, Kind
from unitk.evaluation.windows import cut_windows
from unitk.progress import Report, no_report
from unitk.slots import Doubles, Ids

if TYPE_CHECKING:
    from unitk.decoding.generator import Generator
    from unitk.vocab.base import Vocab

CODE_POINT = math.log(0x110000 - 0x800)  # nats of any character of Unicode; surrogates are none
HALF = 512  # tokens of a window at most, and of what is before it
FRAME = 8  # symbols that layouts add to a text at most


@dataclass(frozen=True, kw_only=True)
class How:
    """How documents are read; None stands for the default of model and task."""

    stride: int | None = None
    context: int | None = None
    draws: int | None = None
    whole_words: bool = False
    max_tokens: int = 8192

    def fit(self, position_limit: int, contexts: bool) -> tuple[int, int]:
        """Stride and context for a model with this many positions (0: any number).

        A model that reads no context has windows as long as both together.
        """
        half = max(1, min(HALF, (position_limit - FRAME) // 2 if position_limit else HALF))
        if not contexts:
            require(self.context is None, "--context has no effect: the model reads no context")
            return self.stride or 2 * half, 0
        stride = self.stride or half
        # a token is then read with as many before it as fit, and half of them at least
        return stride, stride if self.context is None else self.context


@dataclass(frozen=True)
class Likelihood:
    """The cost of each document to a model; D documents, N tokens of one of them."""

    kind: Kind
    documents: Sequence[Document]
    tokens: list[Doubles]  # of each document, [N] nats
    nats: Doubles  # [D], with what is no token's
    unknown: int  # characters
    altered: int  # sentences whose characters the vocabulary does not restore
    windows: int
    draws: int
    runs: tuple[Doubles, ...] = ()  # [D] nats of each seed, where these are means over seeds

    @property
    def seeds(self) -> tuple[Doubles, ...]:
        """The nats of the documents by each run, [D] each."""
        return self.runs or (self.nats,)

    @property
    def sizes(self) -> Doubles:
        """The bytes of the documents, [D]."""
        return np.array([document.size for document in self.documents], np.float64)

    @property
    def bits_per_byte(self) -> float:
        """Bits of all documents per byte of all documents."""
        return float(self.nats.sum() / self.sizes.sum()) / math.log(2)

    @property
    def error(self) -> float:
        """The standard error of the bits per byte over documents; NaN of a single one."""
        return error_of_ratio(self.nats / math.log(2), self.sizes)

    def figures(self) -> dict[str, Any]:
        """The figures by name; "draws" and "standard_error" only where there are some."""
        figures: dict[str, Any] = {
            "kind": self.kind,
            "documents": len(self.documents),
            "windows": self.windows,
            "tokens": sum(map(len, self.tokens)),
            "bytes": int(self.sizes.sum()),
            "unknown_characters": self.unknown,
            "altered_sentences": self.altered,
        }
        if self.draws:
            figures["draws"] = self.draws
        figures["nats"] = float(self.nats.sum())
        figures["bits_per_byte"] = self.bits_per_byte
        if not math.isnan(error := self.error):
            figures["standard_error"] = error
        return figures


def mean_of(runs: Sequence[Likelihood]) -> Likelihood:
    """The mean cost of documents over runs that differ in their seeds."""
    if len(runs) == 1:
        return runs[0]
    tokens = [np.mean(costs, axis=0) for costs in zip(*(run.tokens for run in runs), strict=True)]
    nats = np.mean([run.nats for run in runs], axis=0)
    return replace(runs[0], tokens=tokens, nats=nats, runs=tuple(run.nats for run in runs))


def error_of_ratio(over: Doubles, under: Doubles) -> float:
    """The standard error of sum(over) / sum(under) over items [D], by the delta method."""
    count = len(over)
    if count < 2:
        return math.nan
    # what each item has more or less than its share, which sums to 0
    rest = over - over.sum() / under.sum() * under
    return float(math.sqrt(count / (count - 1) * (rest**2).sum()) / under.sum())


@contextmanager
def no_progress(total: int | None, unit: str = "") -> Iterator[Report]:
    """Show no progress."""
    yield no_report


def measure(
    generator: Generator,
    documents: Sequence[Document],
    how: How,
    progress: Progress = no_progress,
) -> Likelihood:
    """The cost of documents, in windows that overlap; raises UsageError if the task has none."""
    task, vocab = generator.task, generator.vocab
    estimator = estimator_of(task, how.whole_words)
    drawn = estimator.draws > 0
    require(drawn or how.draws is None, f"--draws has no effect: task {task.name} draws nothing")
    draws = (how.draws or estimator.draws) if drawn else 1
    stride, context = how.fit(generator.model.config.position_limit, estimator.contexts)
    sentences = [sentence for document in documents for sentence in document.sentences]
    ids = [row.astype(np.int64) for row in vocab.encode_batch(sentences)]
    # the sentences of document d are [borders[d], borders[d + 1])
    borders = np.cumsum([0, *(len(document.sentences) for document in documents)])
    windows = [cut_windows(text, stride, context) for text in join_documents(ids, borders)]
    costs_of_texts = cost_windows(generator, windows, how, draws, progress)
    # what an unknown token stands for is spelled out
    spelled = [spell(vocab, *pair) for pair in zip(sentences, ids, strict=True)]
    spelled_texts = join_documents(spelled, borders)
    added = [_add_up(*pair) for pair in zip(costs_of_texts, spelled_texts, strict=True)]
    return Likelihood(
        kind=estimator.kind,
        documents=documents,
        tokens=[tokens for tokens, _ in added],
        nats=np.array([nats for _, nats in added]),
        unknown=int(sum(counts.sum() for counts in spelled)),
        altered=count_altered(vocab, sentences, ids),
        windows=sum(map(len, windows)),
        draws=draws if drawn else 0,
    )


def join_documents(rows: Sequence[Ids], borders: Ids) -> list[Ids]:
    """The rows of the sentences of each document as one."""
    return [np.concatenate(rows[a:b]) for a, b in pairwise(borders)]


def cost_windows(
    generator: Generator,
    windows: Sequence[Sequence[Any]],
    how: How,
    draws: int,
    progress: Progress,
) -> list[list[Cost]]:
    """The cost of each window of each text."""
    estimator = estimator_of(generator.task, how.whole_words)
    with progress(sum(map(len, windows)) * draws, unit="windows") as report:
        reading = Estimation(
            max_tokens=how.max_tokens,
            draws=draws,
            whole_words=how.whole_words,
            name=lambda number: f"--data: window {number + 1}",
            report=report,
        )
        # all windows at once: those of like length share batches
        flat = [window for of_text in windows for window in of_text]
        costs = iter(estimator.costs(generator.model, generator.task, flat, reading))
    return [[next(costs) for _ in of_text] for of_text in windows]


def count_altered(vocab: Vocab, sentences: Sequence[str], ids: Sequence[Ids]) -> int:
    """How many sentences have characters that the vocabulary does not restore from their ids."""
    restored = map(vocab.decode, ids)
    return sum(strip_blanks(a) != strip_blanks(b) for a, b in zip(restored, sentences, strict=True))


def _add_up(costs: Sequence[Cost], spelled: Ids) -> tuple[Doubles, float]:
    """The nats of each token of a document and of all of it, given the costs of its windows.

    `spelled` are the characters of each token that the vocabulary does not know.
    """
    tokens = np.concatenate([cost.tokens for cost in costs] or [np.zeros(0)])
    tokens += spelled * CODE_POINT
    return tokens, tokens.sum() + math.fsum(cost.rest for cost in costs)


def spell(vocab: Vocab, sentence: str, ids: Ids) -> Ids:
    """For each token of a sentence, the number of characters that the vocabulary does not know."""
    unknown = ids == vocab.unk
    if not unknown.any():
        return np.zeros(len(ids), np.int64)
    # some tokens have no character of their own, such as the bytes of one
    size = np.array([stop - start for start, stop in vocab.offsets(sentence)])
    return np.where(unknown, np.maximum(size, 1), 0)


def strip_blanks(text: str) -> str:
    """A text without blanks: vocabularies may change these."""
    return "".join(text.split())
