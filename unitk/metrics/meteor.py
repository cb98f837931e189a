"""METEOR as nltk counts it.  Banerjee and Lavie 2005; Lavie and Agarwal 2007.

Words match exactly, by their Porter stem, or as synonyms of WordNet, whose data nltk downloads. It
is not the METEOR 1.5 of Denkowski and Lavie 2014, which papers on question generation use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from unitk.metrics import Score, TextLists
from unitk.metrics.qg import treebank
from unitk.metrics.words import warn_unspaced


class _NoSynonyms:
    """Replaces WordNet where its data is missing."""

    def synsets(self, word: str) -> list[Any]:
        return []


def meteor(hypotheses: Sequence[str], references: TextLists) -> Score:
    """METEOR, as the mean over the texts; the best of several references counts.

    Texts are split into words as in the Penn Treebank, and lower-cased. The score is `meteor` with
    WordNet, and `meteor_exact_stem` where its data is not installed.
    """
    firsts = (first for first, *_ in references)
    warn_unspaced("meteor", firsts, "put blanks between their words, or take chrf")
    import nltk
    from nltk.translate.meteor_score import meteor_score

    synonyms = _wordnet()
    sums = []
    for hypothesis, several in zip(hypotheses, references, strict=True):
        tokenized = [treebank(reference).split() for reference in several]
        sums.append(meteor_score(tokenized, treebank(hypothesis).split(), wordnet=synonyms))
    bare = isinstance(synonyms, _NoSynonyms)
    kinds = "exact and stem matches, without WordNet" if bare else "exact, stem and WordNet matches"
    return Score(
        {"meteor_exact_stem" if bare else "meteor": 100 * sum(sums) / len(sums)},
        f"nltk {nltk.__version__}, alpha 0.9, beta 3, gamma 0.5, Penn Treebank's words, {kinds}",
    )


def _wordnet() -> Any:
    from nltk.corpus import wordnet

    try:
        wordnet.ensure_loaded()
    except LookupError:
        return _NoSynonyms()
    return wordnet
