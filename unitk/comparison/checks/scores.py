"""Files of scores of pairs (`unitk evaluate --pairs --output`): ties, precision and length."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

from unitk.comparison.checks.base import Finding, Findings, Status, Subjects
from unitk.data.files.readers import Record, records
from unitk.errors import DataError
from unitk.registry import register
from unitk.slots import Bools, Doubles

TIES = 0.01  # of pairs whose sentences differ
COARSE = 0.5  # share of scores whose last byte of float32 is empty; by chance it is 1 of 256
SIDES = ("good", "bad")


@register("check", "scores")
def check_scores(subjects: Subjects) -> Findings:
    """Ties of pair scores, half precision, shorter sentences, and whether all files are alike."""
    scores_of_files = {path: PairScores.of_file(path) for path in subjects.scores}
    for path, scores in scores_of_files.items():
        yield from judge_scores(path, scores)
    if len(scores_of_files) > 1:
        yield compare_pairs(scores_of_files)


def compare_pairs(scores_of_files: Mapping[Path, PairScores]) -> Finding:
    """Whether files have scores of the same pairs; the first that differs is named."""
    first, *rest = scores_of_files
    for path in rest:
        alone = [
            len(a.pairs - b.pairs)
            for a, b in permutations((scores_of_files[first], scores_of_files[path]))
        ]
        if any(alone):
            text = f"{first} has {alone[0]} pairs that {path} lacks, which has {alone[1]} others"
            return Finding("FAULT", "pairs", str(path), text)
    text = f"the same {len(scores_of_files[first].pairs)} pairs in {len(scores_of_files)} files"
    return Finding("ok", "pairs", str(first), text)


def judge_scores(path: Path, scores: PairScores) -> Findings:
    """Look at a file of scores."""
    score, tokens, same = scores.score, scores.tokens, scores.same
    wins = score[:, 0] > score[:, 1]
    tie = (score[:, 0] == score[:, 1]) & ~same
    share = float(tie.mean())
    status: Status = "FAULT" if share > TIES else "ok"
    text = f"{tie.sum()} of {len(score)} pairs tie, beside {same.sum()} of equal sentences"
    if share > TIES:
        least = float((wins + same / 2).mean())  # equal sentences tie with any model
        text += f"; accuracy is {100 * least:.2f} to {100 * (least + share):.2f}"
    yield Finding(status, "ties", str(path), text, {"ties": int(tie.sum()), "pairs": len(score)})
    # a float32 whose last 8 of 23 digits are empty came out of fewer digits
    coarse = float(((score.astype(np.float32).view(np.uint32) & 0xFF) == 0).mean())
    status = "FAULT" if coarse > COARSE else "ok"
    text = f"{100 * coarse:.0f} % of scores have no more digits than half precision"
    yield Finding(status, "precision", str(path), text, {"coarse": coarse})
    if tokens is None:
        yield Finding("note", "length", str(path), "the file has no lengths")
        return
    shorter = float(np.mean((tokens[:, 0] < tokens[:, 1]) + (tokens[:, 0] == tokens[:, 1]) / 2))
    # where lengths are equal, neither is preferred
    differ = tokens[:, 0] != tokens[:, 1]
    prefers = np.where(tokens[:, 0] < tokens[:, 1], wins, ~wins)[differ]
    agrees = float(prefers.mean()) if differ.any() else 0.5
    status = "FAULT" if len(prefers) >= 20 and max(agrees, 1 - agrees) > 0.95 else "ok"
    text = f"the shorter sentence has the better score in {100 * agrees:.0f} % of pairs"
    text += f" of unlike length; if it always had: accuracy {100 * shorter:.2f}"
    yield Finding(status, "length", str(path), text, {"shorter": agrees, "if_shorter": shorter})


@dataclass(frozen=True)
class PairScores:
    """A file of scores of P pairs."""

    score: Doubles  # [P, 2], the good sentence and the bad one
    tokens: Doubles | None  # [P, 2]
    same: Bools  # [P] the sentences are equal
    pairs: set[str]  # the sentences of each, where the file has them

    @classmethod
    def of_file(cls, path: Path) -> PairScores:
        """Read a file; `DataError` where a score is missing or is no finite number."""
        score, tokens = list[list[float]](), list[list[float]]()
        same, pairs = list[bool](), set[str]()
        for number, record in enumerate(records(path), 1):
            score.append([read_number(record, f"score_{side}") for side in SIDES])
            if all(f"tokens_{side}" in record for side in SIDES):
                tokens.append([read_number(record, f"tokens_{side}") for side in SIDES])
            known = all(f"sentence_{side}" in record for side in SIDES)
            sentences = [record.get(f"sentence_{side}") for side in SIDES if known]
            same.append(known and sentences[0] == sentences[1])
            pairs.add(json.dumps(sentences or number))
        if not score:
            raise DataError(f"{path} has no scores")
        lengths = np.array(tokens) if len(tokens) == len(score) else None
        return cls(np.array(score), lengths, np.array(same), pairs)


def read_number(record: Record, name: str) -> float:
    """A number in a field; `DataError` if it is none, or not finite."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        record.need(name)
        raise DataError(f"{record.where(name)} must be a number")
    if not math.isfinite(value):
        raise DataError(f"{record.where(name)} must be finite, got {value}")
    return float(value)
