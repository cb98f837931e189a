"""BLEU and chrF of a corpus, as sacrebleu counts them (Post 2018, arXiv 1804.08771).

BLEU: Papineni et al. 2002. chrF: Popović 2015; chrF++, with words and their pairs: Popović 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Literal

from unitk.score import Score

Tokenize = Literal["13a", "intl", "zh", "char", "none"]
Smooth = Literal["exp", "none"]


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: Tokenize = "13a",
    lowercase: bool = False,
    smooth: Smooth = "exp",
) -> Score:
    """BLEU-4 with its parts; each text has at least one reference, and numbers may differ."""
    from sacrebleu.metrics.bleu import BLEU

    # `force`: no advice about tokenised text, which names arguments of sacrebleu's own
    metric = BLEU(tokenize=tokenize, lowercase=lowercase, smooth_method=smooth, force=True)
    # sacrebleu wants the first references of all texts, then the second ones; None is none
    found = metric.corpus_score(hypotheses, list(zip_longest(*references)))
    precisions = {f"precision{n}": value for n, value in enumerate(found.precisions, start=1)}
    return Score(
        {
            "bleu": found.score,
            **precisions,
            "brevity": 100 * found.bp,
            "words": found.sys_len,
            "reference_words": found.ref_len,
        },
        f"sacrebleu {metric.get_signature()}",
    )


def chrf(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False
) -> Score:
    """chrF2 and chrF2++, F-scores of character n-grams with recall counting twice."""
    from sacrebleu.metrics.chrf import CHRF

    each = {"chrf": CHRF(lowercase=lowercase), "chrf++": CHRF(word_order=2, lowercase=lowercase)}
    given = list(zip_longest(*references))
    figures = {name: metric.corpus_score(hypotheses, given).score for name, metric in each.items()}
    signatures = (str(metric.get_signature()) for metric in each.values())
    return Score(figures, f"sacrebleu {' and '.join(signatures)}")
