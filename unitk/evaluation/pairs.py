"""Minimal pairs: the good sentence of a pair should be more probable than the bad one.

BLiMP: Warstadt et al. 2020, arXiv 1912.00582, 67 sets of 1,000 pairs in 12 phenomena. A score is
the sum of a sentence's log-probabilities, not divided by its length. A tie counts half.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unitk.data.files.lines import strip_packing
from unitk.data.files.readers import records
from unitk.errors import DataError, amount
from unitk.evaluation.base import Judged, Progress, Scoring, Writing
from unitk.registry import register
from unitk.slots import Floats, Ids, exact_sum

if TYPE_CHECKING:
    from unitk.decoding.generator import Generator

SENTENCES = "sentence_good", "sentence_bad"
PHENOMENA = {"s-selection": "argument_structure"}
"""Terms in BLiMP's files -> the phenomenon of the paper's tables that they belong to."""


@dataclass(frozen=True)
class Pair:
    """A good sentence and a bad one; `place` is its file and line."""

    sentences: tuple[str, str]
    name: str  # of its set
    phenomenon: str
    place: str


@dataclass(frozen=True)
class Scored:
    """A model's scores of pairs, and their lengths in tokens, [pairs, 2]."""

    pairs: Sequence[Pair]
    score: Floats
    tokens: Ids
    unknown: int  # tokens of all sentences that the vocabulary does not know

    def lines(self) -> Iterator[dict[str, Any]]:
        """A json record for each pair, in order."""
        for pair, score, tokens in zip(self.pairs, self.score, self.tokens, strict=True):
            yield {
                "set": pair.name,
                "place": pair.place,
                **dict(zip(SENTENCES, pair.sentences, strict=True)),
                **dict(zip(("score_good", "score_bad"), score.tolist(), strict=True)),
                **dict(zip(("tokens_good", "tokens_bad"), tokens.tolist(), strict=True)),
            }


def read_pairs(paths: Sequence[Path]) -> list[Pair]:
    """Read the pairs of files of records; the field UID names the set, or else the file does."""
    pairs = []
    for path in paths:
        for record in records(path):
            good, bad = (record.text(field, blank=False) for field in SENTENCES)
            term = str(record.get("linguistics_term") or "")
            name = str(record.get("UID") or strip_packing(path).stem)
            pairs.append(Pair((good, bad), name, PHENOMENA.get(term, term), record.place))
    if not pairs:
        raise DataError(f"--pairs {', '.join(map(str, paths))}: there are no pairs")
    return pairs


@register("evaluation", "pairs")
@dataclass(frozen=True, kw_only=True)
class MinimalPairs(Scoring, Writing):
    """Minimal pairs, of which the good sentence should be the more probable one.
    Json-lines have the fields sentence_good and sentence_bad; a folder may hold several files. As
    in BLiMP, UID names the set and linguistics_term its phenomenon."""

    def read(self, paths: Sequence[Path]) -> list[Pair]:
        return read_pairs(paths)

    def judge(self, generator: Generator, texts: Sequence[Pair], progress: Progress) -> Judged:
        scored = self.score(generator, texts, progress)
        results = figures(scored)
        return Judged(results, accuracy_lines(results), scored.lines())

    def score(self, generator: Generator, pairs: Sequence[Pair], progress: Progress) -> Scored:
        """Score both sentences of each pair."""

        def place(number: int) -> str:
            return f"{pairs[number // 2].place}: {SENTENCES[number % 2]}"

        sentences = [[text] for pair in pairs for text in pair.sentences]
        ids = [text for (text,) in generator.encode(sentences)]
        for number, text in enumerate(ids):
            if not len(text):
                raise DataError(f"{place(number)} has no token of the vocabulary")
        texts = [(text[:0], text) for text in ids]
        likelihoods = self.likelihoods(generator, texts, place, progress)
        # log-probabilities of float32 are summed exactly in float64: their order makes no winner
        sums = np.array([exact_sum(gains) for gains, _ in likelihoods], np.float32)
        tokens = np.array([len(text) for text in ids])
        unknown = sum(int((text == generator.vocab.unk).sum()) for text in ids)
        return Scored(pairs, sums.reshape(-1, 2), tokens.reshape(-1, 2), unknown)


def figures(scored: Scored) -> dict[str, Any]:
    """Accuracies in per cent: each set, each phenomenon (the mean of its sets), overall."""
    names = np.array([pair.name for pair in scored.pairs])
    better, ties = score_pairs(scored.score)
    shorter, _ = score_pairs(-scored.tokens)
    sets: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(names.tolist()):
        own = np.flatnonzero(names == name)
        good, bad = scored.tokens[own].mean(axis=0)
        sets[name] = {
            "phenomenon": scored.pairs[own[0]].phenomenon,
            "pairs": len(own),
            "accuracy": 100 * float(better[own].mean()),
            "ties": int(ties[own].sum()),
            "tokens_good": float(good),
            "tokens_bad": float(bad),
            "shorter": 100 * float(shorter[own].mean()),
        }
    by_phenomenon = {
        name: [entry["accuracy"] for entry in sets.values() if entry["phenomenon"] == name]
        for name in sorted({entry["phenomenon"] for entry in sets.values()} - {""})
    }
    of_phenomena = {
        name: {"sets": len(some), "accuracy": float(np.mean(some))}
        for name, some in by_phenomenon.items()
    }
    means = {"mean_of_sets": float(np.mean([entry["accuracy"] for entry in sets.values()]))}
    if by_phenomenon:
        mean = np.mean([entry["accuracy"] for entry in of_phenomena.values()])
        means["mean_of_phenomena"] = float(mean)
    return {
        **means,
        "pairs": len(names),
        "ties": int(ties.sum()),
        "shorter": 100 * float(shorter.mean()),
        "unknown_tokens": scored.unknown,
        "phenomena": of_phenomena,
        "sets": sets,
    }


def score_pairs(score: Floats | Ids) -> tuple[Floats, Floats]:
    """1 for pairs [n, 2] whose first score is larger, .5 for ties, else 0; and 1 for ties alone."""
    ties = (score[:, 0] == score[:, 1]).astype(np.float64)
    return (score[:, 0] > score[:, 1]) + ties / 2, ties


def accuracy_lines(f: dict[str, Any]) -> list[str]:
    """The accuracies as a table to print."""
    width = max(len(name) for name in (*f["sets"], *f["phenomena"], "mean of phenomena"))
    lines = [f"{'set':<{width}}  accuracy  pairs  ties  tokens good, bad  if shorter wins"]
    for name, entry in f["sets"].items():
        lengths = f"{entry['tokens_good']:.2f}, {entry['tokens_bad']:.2f}"
        lines.append(
            f"{name:<{width}}  {entry['accuracy']:8.2f}  {entry['pairs']:5,}  {entry['ties']:4}"
            f"  {lengths:>16}  {entry['shorter']:15.2f}"
        )
    if f["phenomena"]:
        lines.append(f"{'phenomenon':<{width}}  accuracy  sets")
    for name, entry in f["phenomena"].items():
        lines.append(f"{name:<{width}}  {entry['accuracy']:8.2f}  {entry['sets']:4}")
    for key in ("mean_of_sets", "mean_of_phenomena"):
        if key in f:
            lines.append(f"{key.replace('_', ' '):<{width}}  {f[key]:8.2f}")
    sizes = amount(f["pairs"], "pairs"), amount(f["ties"], "ties")
    unknown = amount(f["unknown_tokens"], "unknown tokens")
    lines.append(f"{', '.join(sizes)}, {unknown}; if the shorter sentence won: {f['shorter']:.2f}")
    return lines
