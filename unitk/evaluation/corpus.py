"""Evaluations on a corpus: what `--data` names, and the objective that a model was trained with."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from unitk import registry
from unitk.data.corpus.corpus import Corpus
from unitk.data.corpus.encode import encoders, num_workers
from unitk.data.corpus.folders import corpus_vocab, is_corpus, open_corpus
from unitk.data.corpus.preprocess import write_part
from unitk.data.files.files import ReadingOptions, expand
from unitk.data.files.lines import filling_temporary
from unitk.errors import DataError, UsageError
from unitk.evaluation.base import CorpusEvaluation, Judged, Progress, figure_lines
from unitk.options.config import Parsed, flag, options
from unitk.options.fields import Count
from unitk.training.saving.folder import find_checkpoint
from unitk.training.saving.state import read_state
from unitk.vocab.open import open_vocab

if TYPE_CHECKING:
    from unitk.evaluation.objective import Setup


@registry.register("evaluation", "objective")
@dataclass(frozen=True, kw_only=True)
class Objective(CorpusEvaluation):
    """Losses and perplexities of the objective that a model was trained with, as in validation."""

    stateful_rows: Count = 0
    """With --data: rows that read the texts in order, as in training, so that the model has its
    memory. 0: each text is read alone."""

    @classmethod
    def fits(cls, setup: Setup) -> bool:
        return True

    def judge(self, setup: Setup, progress: Progress) -> Judged:
        from unitk.evaluation.objective import objective

        if self.draws is not None and not setup.bounds:
            raise UsageError("--draws has no effect: the checkpoint has no latent")
        # where nothing is drawn, a second pass would find the same
        texts = setup.texts_of_tasks
        draws = (self.draws or 8) if setup.bounds else 1
        with progress(setup.num_texts * draws) as report:
            figures = objective(setup, self.max_tokens, report, draws)
        counts = {f"{name}/texts": count for name, count in texts.items()}
        if len({*texts.values()}) == 1:  # tasks may cut texts each in its own way
            counts = {"texts": max(texts.values())}
        return Judged(counts | figures, figure_lines(counts | figures))


@contextmanager
def open_corpus_of(parsed: Parsed) -> Iterator[Path]:
    """The corpus of --data; for a file, a temporary corpus with the checkpoint's vocabulary."""
    chosen = parsed.main
    path: Path = chosen.data
    if path.is_dir() or is_corpus(path):
        parsed.idle("on a corpus", *(option.name for option in options(ReadingOptions)))
        yield path
        return
    chosen.check()
    files = expand((str(path),), "--data")
    chosen.check_files(files, "--data", parsed.settings)
    checkpoint = find_checkpoint(chosen.checkpoint)
    vocab = open_vocab(checkpoint)
    labels = read_state(checkpoint).get("labels") or None  # a file need not have all of them
    source = chosen.source(files, "--data")
    with tempfile.TemporaryDirectory(prefix="unitk-") as temporary:
        folder = Path(temporary, path.stem)
        workers = num_workers(None, source.size)
        opened = encoders(vocab, workers, chosen.user_dir, cure="preprocess the text first")
        with filling_temporary(), redirect_stdout(sys.stderr), opened as encode:
            write_part(source, folder, vocab, encode, known=labels)
        yield folder


@contextmanager
def open_texts_of(parsed: Parsed, name: str) -> Iterator[list[Path]]:
    """The corpus of --data, in which an evaluation reads texts with the checkpoint's vocabulary."""
    from unitk.evaluation.objective import corpus_of

    chosen = parsed.main
    with open_corpus_of(parsed) as opened:
        path = corpus_of(opened)
        if not isinstance(open_corpus(path), Corpus):
            raise DataError(f"--data {chosen.data} holds pairs; {flag(name)} is for texts")
        same = registry.get("measure", "same_vocab")
        if not same(corpus_vocab(path), open_vocab(find_checkpoint(chosen.checkpoint))):
            raise DataError(f"--data {chosen.data} was made with another vocabulary")
        yield [path]
