"""Whether the rest of a batch changes the score of a text: padding, packing, order, size."""

from __future__ import annotations

import numpy as np

from unitk.api.loading import load
from unitk.comparison.checks.base import Finding, Findings, Status, Subjects, TrainedRun
from unitk.comparison.estimators import estimator_of
from unitk.data.corpus.corpus import Corpus
from unitk.errors import UsageError
from unitk.evaluation.estimators import Estimation
from unitk.registry import register
from unitk.slots import Ids
from unitk.training.device import choose_device

TEXTS, TOKENS = 6, 40
ALLOWED = 1e-4  # of the cost of a text, by rounding


@register("check", "batches")
def check_batches(subjects: Subjects) -> Findings:
    """Check that a text costs the same alone, beside longer ones, and in another order."""
    for run in subjects.runs:
        yield compare_batches(run, subjects.device)


def compare_batches(run: TrainedRun, device: str) -> Finding:
    """The costs of some held-out texts of several lengths, alone and together."""
    for _, held in run.split.open_splits():
        if isinstance(held, Corpus) and held.kind == "text":
            texts = sample_texts(held)
            break
    else:
        return Finding("note", "batches", run.name, "there is no held-out text to score")
    generator = load(run.path, choose_device(device), task=next(iter(run.parsed.mixture), None))
    task, model = generator.task, generator.model
    try:
        estimator = estimator_of(task)
    except UsageError as error:
        return Finding("note", "batches", run.name, str(error))
    if not estimator.contexts:
        return Finding("note", "batches", run.name, "draws of latents depend on the batch")
    how = Estimation(max_tokens=1 << 14, draws=1)
    windows = [(text[:0], text) for text in texts]
    # texts of unlike length, so that all but the longest are padded
    together = [cost.total for cost in estimator.costs(model, task, windows, how)]
    # draws are those of a text's number: where there are some, only the first can be compared
    count = 1 if estimator.draws else len(windows)
    alone = [estimator.costs(model, task, [window], how)[0].total for window in windows[:count]]
    pairs = zip(alone, together, strict=False)
    worst = max(abs(cost - other) / max(abs(cost), 1.0) for cost, other in pairs)
    text = f"alone or beside others, costs differ by at most {worst:.1e}"
    status: Status = "ok" if worst <= ALLOWED else "FAULT"
    return Finding(status, "batches", run.name, text, {"difference": worst})


def sample_texts(corpus: Corpus) -> list[Ids]:
    """Beginnings of documents, of lengths from one token to `TOKENS`."""
    texts = list[Ids]()
    for number in range(min(TEXTS, len(corpus))):
        ids = np.concatenate([*corpus.document(number), np.zeros(0, np.int64)]).astype(np.int64)
        size = max(1, TOKENS * (number + 1) // TEXTS)
        if len(ids):
            texts.append(ids[:size])
    return texts
