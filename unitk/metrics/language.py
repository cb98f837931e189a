"""Perplexities from nats, in units that do not depend on the tokenizer.

A model also predicts the ends of texts, each of which counts as one token, one word and one byte
(like the end of a line in a file). The beginning is given and does not count.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from unitk.slots import Ids


@dataclass(frozen=True)
class Units:
    """The tokens, words and bytes of texts, including their ends."""

    texts: int = 0
    tokens: int = 0
    words: int = 0
    size: int = 0  # bytes in UTF-8

    @staticmethod
    def of(texts: Iterable[Sequence[Ids]], decode: Callable[[Ids], str]) -> Units:
        """Count texts, given as sentences; words, and sentences, are separated by a blank."""
        plain = [(sum(map(len, text)), " ".join(map(decode, text))) for text in texts]
        counts = [(1, n + 1, len(text.split()) + 1, len(text.encode()) + 1) for n, text in plain]
        return Units(*map(sum, zip(*counts, strict=True)))

    def with_ends(self, ends: int) -> Units:
        """The same where `ends` ends are predicted; one inside a text stands for a blank there."""
        more = ends - self.texts
        return Units(self.texts, self.tokens + more, self.words + more, self.size + min(more, 0))


def perplexities(nats: float, units: Units) -> dict[str, float]:
    """Perplexities of texts that cost so many `nats` together, and what they are counted in.

    Per word: exp(nats / words), comparable between tokenizers, as papers on word-level models give
    it. Per token: of this tokenizer only. Bits per byte: nats / (ln 2 * bytes), also comparable
    where words are not separated by spaces.
    """
    return {
        "tokens": units.tokens,
        "words": units.words,
        "bytes": units.size,
        "ppl_word": _exp(nats / units.words),
        "ppl_token": _exp(nats / units.tokens),
        "bits_per_byte": nats / math.log(2) / units.size,
    }


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))  # beyond: no float
