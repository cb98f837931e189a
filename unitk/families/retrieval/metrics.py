"""Measures of rankings: nDCG, MRR and recall, of the first K texts or of all that were found.

    rank        1    2    3    4          relevance of what was found; another text of 1 was not
    gain        0    2    0    1
    nDCG        (2 / log2 3 + 1 / log2 5) / (2 / log2 2 + 1 / log2 3 + 1 / log2 4)
    MRR         1 / 2
    recall      2 / 3

Gains are linear and equal scores stay in the order of the file (Järvelin and Kekäläinen 2002; as
trec_eval, but for ties, which it orders by name). Means are over all judged queries with a relevant
text; one for which nothing was found counts 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unitk.errors import DataError
from unitk.families.retrieval.texts import read_judgements, read_run
from unitk.metrics import Score
from unitk.registry import register
from unitk.slots import Floats


def ndcg(gain_K: Floats, wanted_N: Floats) -> float:
    """Discounted gain of the texts by rank, as a share of that of the best order."""

    def discounted(gains: Floats) -> float:
        return float((gains / np.log2(np.arange(len(gains)) + 2)).sum())

    return discounted(gain_K) / discounted(np.sort(wanted_N)[::-1][: len(gain_K)])


def mrr(gain_K: Floats, wanted_N: Floats) -> float:
    """The reciprocal rank: one by the rank of the first relevant text, or 0."""
    places = gain_K.nonzero()[0]
    return 1 / (1 + int(places[0])) if len(places) else 0.0


def recall(gain_K: Floats, wanted_N: Floats) -> float:
    """The share of the relevant texts that was found."""
    return np.count_nonzero(gain_K) / len(wanted_N)


@dataclass(frozen=True)
class Ranking:
    """A metric of `unitk score` that compares a run with judgements."""

    about: str
    measure: Callable[[Floats, Floats], float]

    def __call__(
        self, name: str, hypotheses: Path, references: Sequence[Path], most: int | None
    ) -> Score:
        """The mean over queries of the first `most` texts, in per cent; `name` is its figure."""
        run = read_run(hypotheses)
        judged = read_judgements(references)
        relevant = {
            q: np.array([g for g in gains_of.values() if g > 0]) for q, gains_of in judged.items()
        }
        asked = [query for query, gains in relevant.items() if len(gains)]
        if not any(query in run for query in asked):
            raise DataError(f"{hypotheses} has no query that {references[0]} has a text for")
        values = []
        for query in asked:
            ranked = run.get(query, [])[:most]
            gains = np.array([max(judged[query].get(document, 0.0), 0.0) for document in ranked])
            # places that hold nothing gain nothing
            short = (most or len(relevant[query])) - len(gains)
            values.append(self.measure(np.pad(gains, (0, max(short, 0))), relevant[query]))
        nothing = sum(query not in run for query in asked)
        text = f"{self.about}; nothing was found for {nothing:,} queries" if nothing else ""
        figures = {name: 100 * float(np.mean(values)), "queries": len(asked)}
        return Score(figures, text or self.about)


register("metric", "ndcg")(Ranking("normalized discounted cumulative gain, in per cent", ndcg))
register("metric", "mrr")(Ranking("mean reciprocal rank, in per cent", mrr))
register("metric", "recall")(Ranking("share of the relevant texts that was found", recall))
