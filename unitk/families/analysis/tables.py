"""Measures of static vectors: how they agree with people's judgements of words.

    similarity   tiger cat 7.35               cosine of tiger and cat; Spearman's rank correlation
    analogy      man king woman queen         king - man + woman is nearest to queen (3CosAdd)
    category     sparrow bird                 purity of clusters, one for each category

Vectors have length 1 before anything else is done. Rows with a word that has no vector are left out
and counted. WordSim-353 (Finkelstein et al. 2002), Google's analogies (Mikolov et al. 2013, arXiv
1301.3781) and AP (Almuhareb 2006) are such tables.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from unitk.data.files.lines import numbered_lines
from unitk.data.files.readers import format_of
from unitk.errors import DataError, require
from unitk.formats.vectors import read_vectors
from unitk.metrics import Score
from unitk.metrics.labels import load_library
from unitk.registry import register
from unitk.slots import Doubles, Floats, Ids

TOGETHER = 256
"""Questions that are compared with all words at a time."""


class Row(NamedTuple):
    """The words of a line, the value that the table gives them, and their section."""

    words: list[str]
    value: str
    section: str


class WordVectors:
    """Words with vectors [V, D] of length 1: the first `most` of a file."""

    def __init__(self, path: Path, most: int | None) -> None:
        names, vectors_VD = read_vectors(path)
        norms = np.linalg.norm(vectors_VD[:most], axis=1, keepdims=True)
        self.unit_VD = vectors_VD[:most] / np.maximum(norms, np.finfo(np.float32).tiny)
        self.exact = {name: i for i, name in enumerate(names[:most])}
        # a file has the most frequent word first, so `us` of a table is not `US`
        self.lower = dict[str, int]()
        for name, i in self.exact.items():
            self.lower.setdefault(name.lower(), i)

    def find(self, word: str) -> int | None:
        """The number of a word, or else of the first one that differs from it in case alone."""
        return self.exact.get(word, self.lower.get(word.lower()))

    def cover(self, rows: Sequence[Row]) -> tuple[list[Row], Ids]:
        """The rows whose words all have vectors, and the numbers of these words [N, words]."""
        numbers = [[self.find(word) for word in row.words] for row in rows]
        kept = [i for i, indices in enumerate(numbers) if None not in indices]
        return [rows[i] for i in kept], np.array([numbers[i] for i in kept], np.int64)


@dataclass(frozen=True)
class WordTable:
    """A metric of `unitk score` that compares vectors of words with tables."""

    columns: int
    about: str
    measure: Callable[[Floats, list[Row], Ids], dict[str, float]]
    """(unit vectors [V, D], rows, numbers of their words) -> the figure of each section, and "" of
    the table."""

    def __call__(
        self, name: str, hypotheses: Path, references: Sequence[Path], most: int | None
    ) -> Score:
        """The figures of each table, in per cent; those of several have the names of the files.

        Of the vectors, the first `most` are read.
        """
        words = WordVectors(hypotheses, most)
        figures = dict[str, float | int]()
        stems = [f":{path.name.partition('.')[0]}" for path in references]
        require(len({*stems}) == len(stems), "--references: two tables have the same name")
        for path, stem in zip(references, stems if len(stems) > 1 else [""], strict=True):
            rows = list(read_rows(path, self.columns, name.partition("@")[0]))
            known, numbers = words.cover(rows)
            if not known:
                raise DataError(f"{hypotheses} has no vectors for any line of {path}")
            for section, value in self.measure(words.unit_VD, known, numbers).items():
                figures[f"{name}{stem}:{section}" if section else name + stem] = 100 * value
            figures |= {f"lines{stem}": len(known), f"left_out{stem}": len(rows) - len(known)}
        return Score(figures, f"{self.about}; left_out: lines with a word that has no vector")


def read_rows(path: Path, columns: int, metric: str) -> Iterator[Row]:
    """The lines of a table; tabs are between columns, or commas (.csv), or else blanks.

    `: NAME` begins a section of analogies. Further columns, and lines that begin with #, are
    ignored, and so is the first of the others if it has no number where they have one.
    """
    kind = format_of(path)
    section, empty, first = "", True, True
    require(kind in ("text", "csv", "tsv"), f"--references {path}: --metric {metric} reads lines")
    for line, where in numbered_lines(path):
        if not line.strip() or line.startswith("#"):
            continue
        if metric == "analogy" and line.startswith(":"):
            section = line[1:].strip()
            continue
        cells = (
            next(csv.reader([line]))
            if kind == "csv"
            else line.split("\t" if "\t" in line else None)
        )
        *words, last = (cell.strip() for cell in cells[:columns])
        if len(cells) < columns or not all(words):
            raise DataError(f"{where}: --metric {metric} needs {columns} columns, got {line!r}")
        heading, first = first, False
        if metric == "similarity" and not is_number(last):
            if heading:
                continue
            raise DataError(f"{where}: {last!r} is no number")
        empty = False
        yield Row([*words, last] if metric == "analogy" else words, last, section)
    if empty:
        raise DataError(f"{path}: there is no line of {columns} columns in it")


def is_number(text: str) -> bool:
    """Whether a text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def correlate(unit_VD: Floats, rows: list[Row], pairs_N2: Ids) -> dict[str, float]:
    """Spearman's correlation of cosines and scores; 0 where all of either are equal."""
    first_ND, second_ND = unit_VD[pairs_N2[:, 0]], unit_VD[pairs_N2[:, 1]]
    cosines_N = np.einsum("nd,nd->n", first_ND, second_ND, dtype=np.float64)
    ranks_2N = [rank_values(cosines_N), rank_values(np.array([float(row.value) for row in rows]))]
    # Pearson's correlation of ranks; all are equal where the product is 0
    x_N, y_N = (ranks_N - ranks_N.mean() for ranks_N in ranks_2N)
    return {"": float(x_N @ y_N / max(np.sqrt((x_N @ x_N) * (y_N @ y_N)), 1e-30))}


def rank_values(values_N: Doubles) -> Doubles:
    """Ranks from 1; equal values share the mean of theirs."""
    _, which, counts = np.unique(values_N, return_inverse=True, return_counts=True)
    mean: Doubles = (counts.cumsum() - (counts - 1) / 2)[which]
    return mean


def solve_analogies(unit_VD: Floats, rows: list[Row], words_N4: Ids) -> dict[str, float]:
    """The share of questions whose fourth word is nearest to second - first + third.

    None of the three is an answer (Mikolov et al. 2013, arXiv 1301.3781, section 4; 3CosAdd of Levy
    and Goldberg 2014).
    """
    right = np.zeros(len(rows), bool)
    for at in range(0, len(rows), TOGETHER):
        a, b, c, answer = words_N4[at : at + TOGETHER].T
        score_QV = (unit_VD[b] - unit_VD[a] + unit_VD[c]) @ unit_VD.T
        # without this the nearest word is mostly c or b itself
        for question_word in (a, b, c):
            score_QV[np.arange(len(question_word)), question_word] = -np.inf
        right[at : at + TOGETHER] = score_QV.argmax(axis=1) == answer
    sections = np.array([row.section for row in rows])
    names = [name for name in np.unique(sections) if name]
    figures = {name: float(right[sections == name].mean()) for name in names}
    return {"": float(right.mean())} | figures


def cluster(unit_VD: Floats, rows: list[Row], words_N1: Ids) -> dict[str, float]:
    """Purity: the share of words that have the most frequent category of their cluster.

    Ward's clusters of the unit vectors, as many as there are categories (Baroni et al. 2014 measure
    the same of CLUTO's).
    """
    hierarchy = load_library("scipy.cluster.hierarchy", "scipy", "category")
    categories = [row.value for row in rows]
    if len(rows) == 1:
        return {"": 1.0}
    # distances of unit vectors grow with the angle, so these are clusters by cosine
    tree = hierarchy.ward(unit_VD[words_N1[:, 0]])
    clusters = hierarchy.fcluster(tree, len({*categories}), "maxclust")
    inside = Counter(zip(clusters.tolist(), categories, strict=True))
    commonest = Counter[int]()  # of each cluster: how many of its words have the commonest category
    for (number, _), count in inside.items():
        commonest[number] = max(commonest[number], count)
    return {"": commonest.total() / len(rows)}


SPEARMAN = "Spearman's correlation of cosines and scores x 100"
ANALOGY = "share of analogies whose fourth word is nearest to second - first + third (3CosAdd)"
PURITY = "share of words in the category that is the most frequent one of their cluster (Ward's)"
register("metric", "similarity")(WordTable(3, SPEARMAN, correlate))
register("metric", "analogy")(WordTable(4, ANALOGY, solve_analogies))
register("metric", "category")(WordTable(2, PURITY, cluster))
