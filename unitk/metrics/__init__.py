"""Scores of written texts, on sacrebleu and rouge-score, with the conventions of papers.

Every metric takes one hypothesis a text and, for each text, the list of its references. It returns
a `Score`; its figures are percentages unless they are counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

TextLists = Sequence[Sequence[str]]
"""A list for each text: of its references, sentences, words or labels."""


@dataclass(frozen=True)
class Score:
    """Scores by name, and a note on how they were counted, for a table's footnote."""

    figures: dict[str, float | int]
    about: str
    each: Sequence[dict[str, float]] = ()
    """The figures of each text by itself, of metrics that are means over texts."""
