"""Losses of several models on one text: a table that ranks no two kinds, and words side by side."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from unitk.api.drawing import html_page
from unitk.comparison.bootstrap import difference, interval
from unitk.comparison.likelihood import Likelihood, error_of_ratio
from unitk.comparison.texts import Document
from unitk.slots import Doubles
from unitk.vocab.base import Vocab
from unitk.vocab.scripts import UNIT

PAGE = Path(__file__).parent / "page"
RANKED_APART = "exact", "bound", "pseudo"
COLUMNS = (
    "kind rank model seeds bits_per_byte low high standard_error behind behind_low behind_high "
    "behind_error documents bytes tokens unknown_characters altered_sentences"
).split()


def rows_of(likelihoods: Mapping[str, Likelihood]) -> list[dict[str, Any]]:
    """A row for each model, ranked within its kind: `behind` is the distance to the best of it.

    Its error is that of the difference, document by document. Intervals are over seeds and
    documents (`bootstrap`).
    """
    rows = list[dict[str, Any]]()
    for kind in RANKED_APART:
        ranked = sorted(
            (
                (name, likelihood)
                for name, likelihood in likelihoods.items()
                if likelihood.kind == kind
            ),
            key=lambda pair: pair[1].bits_per_byte,
        )
        for rank, (name, likelihood) in enumerate(ranked, 1):
            best = ranked[0][1]
            # both models pay for the same documents, so their difference varies less
            apart = (likelihood.nats - best.nats) / math.log(2)
            figures = likelihood.figures()
            bits = [nats / math.log(2) for nats in likelihood.seeds]
            own_interval = interval(bits, likelihood.sizes)
            to_best = difference(
                bits, [nats / math.log(2) for nats in best.seeds], likelihood.sizes
            )
            rows.append(
                {
                    "rank": rank,
                    "model": name,
                    "behind": likelihood.bits_per_byte - best.bits_per_byte,
                    "behind_low": to_best.low if rank > 1 else math.nan,
                    "behind_high": to_best.high if rank > 1 else math.nan,
                    "behind_error": error_of_ratio(apart, likelihood.sizes)
                    if rank > 1
                    else math.nan,
                    "seeds": own_interval.seeds,
                    "low": own_interval.low,
                    "high": own_interval.high,
                    **{key: figures[key] for key in COLUMNS if key in figures},
                }
            )
    return rows


def lines_of_rows(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The table to print, a block for each kind."""
    width = max(len(row["model"]) for row in rows)
    title = f"{'kind':<8}{'model':<{width}}  seeds  bits/byte  [95 % of draws]"
    lines = [f"{title}   behind the best of its kind"]
    for row in rows:
        line = f"{row['kind']:<8}{row['model']:<{width}}  {row['seeds']:5}  "
        line += f"{row['bits_per_byte']:9.4f}  {bounds_text(row['low'], row['high']):<16}"
        if row["rank"] > 1:
            line += f"  {row['behind']:.4f} {bounds_text(row['behind_low'], row['behind_high'])}"
        lines.append(line.rstrip())
    if any(math.isnan(row["low"]) for row in rows):
        lines.append(
            "One document has no interval: --documents cuts the text of a file into several."
        )
    if len({row["kind"] for row in rows}) > 1:
        lines.append("Values of different kinds are not ranked: only exact ones are probabilities.")
    return lines


def bounds_text(low: float, high: float) -> str:
    """An interval as text; empty for a single document, which has none."""
    return "" if math.isnan(low) else f"[{low:.4f}, {high:.4f}]"


def csv_of(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table as csv; what is not a number is empty."""
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    for row in rows:
        # NaN, the error of one document, is an empty cell
        figures = (
            (k, "" if v != v else f"{v:.6f}") for k, v in row.items() if isinstance(v, float)
        )
        table.writerow({**row, **dict(figures)})
    return text.getvalue()


def word_costs(vocab: Vocab, document: Document, tokens: Doubles) -> list[tuple[str, float]]:
    """The words of a document, and what each costs: a token belongs to the word it begins in."""
    costs = list[tuple[str, float]]()
    first = 0
    for sentence in document.sentences:
        words = list(UNIT.finditer(sentence))
        starts = np.array([start for start, _ in vocab.offsets(sentence)], np.int64)
        nats = tokens[first : first + len(starts)]
        first += len(starts)
        if not words:
            continue
        begins = np.array([word.start() for word in words])
        # a token that is a blank before the first word belongs to that word
        place = np.maximum(np.searchsorted(begins, starts, "right") - 1, 0)
        cost = np.bincount(place, weights=nats, minlength=len(words))
        costs += [(word[0], float(value)) for word, value in zip(words, cost, strict=True)]
    return costs


ON_PAGE = "kind", "rank", "seeds", "low", "high", "behind", "behind_low", "behind_high"
"""The columns of the page's table besides the name and the bits per byte."""


def page_record(
    likelihoods: Mapping[str, Likelihood],
    vocabs: Mapping[str, Vocab],
    rows: Sequence[Mapping[str, Any]],
    data: str,
    most: int,
) -> dict[str, Any]:
    """Models with their `rows`, and the words of the first `most` documents of `data`, as
    `compare.js` draws them."""
    rows_by_name = {row["model"]: row for row in rows}
    models = [
        {
            "name": name,
            "bits": likelihood.bits_per_byte,
            **{key: rows_by_name[name][key] for key in ON_PAGE},
        }
        for name, likelihood in likelihoods.items()
    ]
    texts = list[Any]()
    [first, *_] = likelihoods.values()
    for number, document in enumerate(first.documents[:most]):
        costs = [
            word_costs(vocabs[n], document, likelihood.tokens[number])
            for n, likelihood in likelihoods.items()
        ]
        words = [
            [same[0][0], [round(cost, 3) for _, cost in same]] for same in zip(*costs, strict=True)
        ]
        scale = math.log(2) * document.size
        bits = [
            round(float(likelihood.nats[number]) / scale, 4) for likelihood in likelihoods.values()
        ]
        texts.append({"bits": bits, "words": words})
    summary = {"data": data, "documents": len(first.documents), "bytes": int(first.sizes.sum())}
    return {**summary, "models": models, "texts": texts}


def page_of(record: Mapping[str, Any]) -> str:
    """One HTML file with the words side by side, which needs no other file."""
    # NaN, the error of one document, is null
    models = [{k: None if v != v else v for k, v in model.items()} for model in record["models"]]
    data = {**record, "models": models}
    return html_page("words side by side", PAGE / "compare", "drawComparison", [data])
