"""Statistics of generated texts: length, new n-grams, repetition.

New n-grams are those of See et al. 2017, arXiv 1704.04368, section 7.2, and Narayan et al. 2018,
arXiv 1808.08745, table 1: the higher, the less was copied. Words are those of `words.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from unitk.metrics import Score, TextLists
from unitk.metrics.words import words

ORDERS = (1, 2, 3, 4)
REPEATED = 3

Gram = tuple[str, ...]


def stats(
    hypotheses: Sequence[str],
    references: Sequence[str],
    sources: Sequence[str],
    *,
    separator: str = "<q>",
) -> Score:
    """Mean lengths in words, and shares of new n-grams and of repeated trigrams.

    Texts and references have figures each. Shares are over the n-grams of all texts together.
    `separator` separates the sentences of a text and is no word.
    """
    known = [words(text) for text in sources]
    figures: dict[str, float | int] = {}
    for name, texts in (("", hypotheses), ("reference_", references)):
        written = [words(text.replace(separator, " ")) for text in texts]
        figures[f"{name}words"] = sum(map(len, written)) / len(written)
        for n in ORDERS:
            figures[f"{name}new{n}"] = new(written, known, n)
        figures[f"{name}repeated"] = repetition(written)
    figures["source_words"] = sum(map(len, known)) / len(known)
    figures["empty"] = sum(not text.strip() for text in hypotheses)
    return Score(
        figures,
        "words: of a text; new1 to new4: per cent of the n-grams that its source lacks; repeated:"
        " per cent of the trigrams that occur earlier in the same text",
    )


def grams(text: Sequence[str], n: int) -> list[Gram]:
    """The n-grams of a text, in order."""
    # the text beside itself, one word further each time, up to the shortest
    return list(zip(*(text[i:] for i in range(n)), strict=False))


def new(texts: TextLists, sources: TextLists, n: int) -> float:
    """The share of the texts' n-grams that do not occur in their sources, in per cent."""
    matches = total = 0
    for text, source in zip(texts, sources, strict=True):
        own = grams(text, n)
        known = set(grams(source, n))
        matches += sum(gram not in known for gram in own)
        total += len(own)
    return 100 * matches / max(total, 1)


def repetition(texts: TextLists) -> float:
    """The share of the texts' trigrams that occur earlier in the same text, in per cent."""
    all_of = [grams(text, REPEATED) for text in texts]
    total = sum(map(len, all_of))
    return 100 * (total - sum(len(set(own)) for own in all_of)) / max(total, 1)
