"""Perplexities of texts from their nats, in units that different tokenizers share.

A model predicts the end of each text too: it counts as one token, one word and one byte (as the end
of a line in a file would). The begin is given, not predicted, and is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Units:
    """What texts are made of, their ends counted."""

    texts: int = 0
    tokens: int = 0
    words: int = 0
    size: int = 0
    """Bytes in UTF-8."""

    def __add__(self, other: Units) -> Units:
        return Units(
            self.texts + other.texts,
            self.tokens + other.tokens,
            self.words + other.words,
            self.size + other.size,
        )

    @staticmethod
    def of(text: str, tokens: int) -> Units:
        """A text of so many tokens; words are what stands between white space."""
        return Units(1, tokens + 1, len(text.split()) + 1, len(text.encode()) + 1)


def perplexities(nats: float, units: Units) -> dict[str, float]:
    """`nats`: what all texts together cost.

    Per word: exp(nats / words), comparable between tokenizers, as papers on word-level models give
    it. Per token: of this tokenizer only. Bits per byte: nats / (ln 2 * bytes), also comparable
    where words are not separated by spaces.
    """
    return {
        "ppl_word": _exp(nats / units.words),
        "ppl_token": _exp(nats / units.tokens),
        "bits_per_byte": nats / math.log(2) / units.size,
    }


def total(units: Iterable[Units]) -> Units:
    """All texts together."""
    return sum(units, Units())


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))  # beyond: no float
