"""Losses of models that count words: the floors against which a loss must be read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from unitk.comparison.checks.base import DataSplit, Finding, Findings, Status, Subjects, TrainedRun
from unitk.data.corpus.corpus import Corpus
from unitk.data.corpus.folders import corpus_vocab, open_corpus
from unitk.registry import register
from unitk.slots import Doubles, Ids
from unitk.training.reporting.sinks import LOG, read_events

MOST = 20_000_000  # tokens of train that are counted


@register("check", "floors")
def check_floors(subjects: Subjects) -> Findings:
    """The cost of a token by uniform, unigram and bigram models, beside losses of runs."""
    splits = [(split, None) for split in subjects.splits] + [
        (run.split, run) for run in subjects.runs
    ]
    known: dict[Any, dict[str, float]] = {}
    for split, run in splits:
        for name, held in split.open_splits():
            key = (*split.train, held.path)
            if key not in known:
                trained = [open_corpus(place) for place in split.train]
                known[key] = floors(trained, held, len(corpus_vocab(held.path)))
            yield write_floors(split, run, name, known[key])


def write_floors(
    split: DataSplit, run: TrainedRun | None, name: str, costs: dict[str, float]
) -> Finding:
    """The floors as a line, and the best loss of a run."""
    text = ", ".join(f"{model} {value:.3f}" for model, value in costs.items())
    text += " nats a token"
    figures = dict(costs)
    status: Status = "ok"
    if run is not None and (losses := best_losses(run, name)):
        text += "; best " + ", ".join(f"{ask} {value:.3f}" for ask, value in losses.items())
        figures |= losses
        # heads of their own ask for labels such as "replaced", which are no tokens
        heads = set(run.config.get("arch.heads", "").replace(",", ":").split(":"))
        tokens = [value for name, value in losses.items() if name not in heads]
        if min(tokens, default=0.0) > costs["unigram"]:
            status = "note"
            text = f"{text}: no better than counting words"
    return Finding(status, "floors", f"{split.name} {name}", text, figures)


def best_losses(run: TrainedRun, name: str) -> dict[str, float]:
    """The lowest nats a label that validations on a set have logged, by the name of the ask."""
    losses = dict[str, float]()
    for event in read_events(run.path / LOG):
        for key, value in event.items():
            first, _, rest = key.partition("/")
            if event["kind"] == "valid" and rest.endswith("/nll") and value is not None:
                if first.partition(".")[0] == name:
                    ask = f"{first.partition('.')[2]}/{rest}".strip("/").removesuffix("/nll")
                    losses[ask] = min(value, losses.get(ask, math.inf))
    return losses


def floors(trained: Sequence[Any], held: Any, size: int) -> dict[str, float]:
    """Nats a held-out token costs, by models that count the tokens of train.

    The last side of pairs counts. Unigrams have a count of one more each; bigrams are interpolated
    with unigrams as in Witten and Bell 1991, and the first token of a document has none.
    """
    sides = [read(corpus.sides[-1]) for corpus in trained]
    train, starts = (np.concatenate([side[i] for side in sides]) for i in (0, 1))
    tokens, begins = read(held.sides[-1])
    size = max(size, int(train.max(initial=0)) + 1, int(tokens.max(initial=0)) + 1)
    count = np.bincount(train, minlength=size) + 1.0
    unigram = count / count.sum()
    # a pair of ids as one number; pairs across documents are none
    pairs = train[:-1] * size + train[1:]
    pair, times = np.unique(pairs[~starts[1:]], return_counts=True)
    before = pair // size
    followers = np.bincount(before, minlength=size)
    total = np.bincount(before, weights=times, minlength=size)
    asked = tokens[:-1] * size + tokens[1:]
    # the place of each held-out pair among those of train, if it is there
    place = np.minimum(pair.searchsorted(asked), max(len(pair) - 1, 0))
    seen = np.where(pair[place] == asked, times[place], 0) if len(pair) else np.zeros(len(asked))
    h = tokens[:-1]
    probability = unigram[tokens].copy()
    mixed = (seen + followers[h] * unigram[tokens[1:]]) / np.maximum(total[h] + followers[h], 1)
    inner = ~begins[1:] & (total[h] > 0)
    probability[1:][inner] = mixed[inner]
    return {
        "uniform": math.log(size),
        "unigram": mean_nats(unigram[tokens]),
        "bigram": mean_nats(probability),
    }


def mean_nats(probability: Doubles) -> float:
    """The mean cost of tokens with these probabilities."""
    return -float(np.log(probability).mean())


def read(corpus: Corpus) -> tuple[Ids, npt.NDArray[np.bool_]]:
    """The tokens of a corpus, at most `MOST`, and which ones begin a document."""
    bounds = np.asarray(corpus.sentences)[np.asarray(corpus.documents)].astype(np.int64)
    last = min(int(bounds[-1]), int(bounds[0]) + MOST)
    tokens = corpus.tokens(int(bounds[0]), last).astype(np.int64)
    starts = np.zeros(len(tokens), bool)
    first = bounds[:-1] - bounds[0]
    starts[first[first < len(tokens)]] = True
    return tokens, starts
