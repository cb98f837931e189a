"""Corpus BLEU.  Papineni et al. 2002, as sacrebleu counts it (Post 2018, arXiv 1804.08771)."""

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
    """BLEU-4 with its parts; texts may have different numbers of references, each at least one."""
    from sacrebleu.metrics.bleu import BLEU

    # `force`: no advice about tokenised text where the caller chose not to tokenise
    metric = BLEU(
        tokenize=tokenize, lowercase=lowercase, smooth_method=smooth, force=tokenize == "none"
    )
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
