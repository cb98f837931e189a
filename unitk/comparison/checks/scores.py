"""Files of scores of pairs (`unitk evaluate --pairs --output`): ties, precision and length."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unitk.comparison.checks.base import Finding, Found, Status, Subjects
from unitk.comparison.likelihood import Doubles
from unitk.data.files.readers import Record, records
from unitk.errors import DataError
from unitk.registry import register
from unitk.slots import Bools

TIES = 0.01  # of pairs whose sentences differ
COARSE = 0.5  # share of scores whose last byte of float32 is empty; by chance it is 1 of 256
SIDES = ("good", "bad")


@register("check", "scores")
def check_scores(subjects: Subjects) -> Found:
    """Ties of pair scores, numbers of half precision, and what the shorter sentence explains."""
    for path in subjects.scores:
        yield from judge_scores(path)


def judge_scores(path: Path) -> Found:
    """Look at a file of scores."""
    score, tokens, same = read_scores(path)
    wins = score[:, 0] > score[:, 1]
    tie = (score[:, 0] == score[:, 1]) & ~same
    share = float(tie.mean())
    status: Status = "FAULT" if share > TIES else "ok"
    text = f"{tie.sum()} of {len(score)} pairs tie, beside {same.sum()} of equal sentences"
    if share > TIES:
        text += f"; accuracy is {100 * wins.mean():.2f} to {100 * (wins | tie).mean():.2f}"
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
    text += f"; if it always won: {100 * shorter:.2f}"
    yield Finding(status, "length", str(path), text, {"shorter": agrees, "if_shorter": shorter})


def read_number(record: Record, name: str) -> float:
    """A number in a field; `DataError` if it is none."""
    value = record.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        record.need(name)
        raise DataError(f"{record.where(name)} must be a number")
    return float(value)


def read_scores(path: Path) -> tuple[Doubles, Doubles | None, Bools]:
    """Scores [pairs, 2], numbers of tokens [pairs, 2], and which pairs have equal sentences."""
    score, tokens, same = list[list[float]](), list[list[float]](), list[bool]()
    for record in records(path):
        score.append([read_number(record, f"score_{side}") for side in SIDES])
        if all(f"tokens_{side}" in record for side in SIDES):
            tokens.append([read_number(record, f"tokens_{side}") for side in SIDES])
        same.append(
            "sentence_good" in record and record.get("sentence_good") == record.get("sentence_bad")
        )
    if not score:
        raise DataError(f"{path} has no scores")
    lengths = np.array(tokens) if len(tokens) == len(score) else None
    return np.array(score), lengths, np.array(same)
