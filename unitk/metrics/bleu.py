"""BLEU and chrF of a corpus, as sacrebleu counts them (Post 2018, arXiv 1804.08771).

BLEU: Papineni et al. 2002. chrF: Popović 2015; chrF++, with words and their pairs: Popović 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Literal

from unitk.errors import UsageError
from unitk.metrics import Report, Score
from unitk.metrics.words import warn_unspaced

Tokenize = Literal[
    "13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"
]
Smooth = Literal["exp", "none"]
BLOCK = 10_000
"""Texts that sacrebleu counts at once: it keeps more of a text than its counts."""


def bleu(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tokenize: Tokenize = "13a",
    lowercase: bool = False,
    smooth: Smooth = "exp",
    report: Report = lambda more: None,
) -> Score:
    """BLEU-4 with its parts; each text has at least one reference, and numbers may differ."""
    metric = _metric(tokenize, lowercase, smooth)
    if tokenize in ("13a", "intl"):
        firsts = (first for first, *_ in references)
        warn_unspaced("bleu", firsts, "--tokenize zh, char or ja-mecab splits them")
    counts = []
    for start in range(0, max(len(hypotheses), 1), BLOCK):
        some = references[start : start + BLOCK]
        # sacrebleu wants the first references of all texts, then the second ones; None is none
        score = metric.corpus_score(hypotheses[start : start + BLOCK], list(zip_longest(*some)))
        counts.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
        report(len(some))
    sums = [sum(column) for column in zip(*counts, strict=True)]
    result = metric.compute_bleu(sums[:4], sums[4:8], *sums[8:], smooth_method=smooth)
    precisions = {f"precision{n}": value for n, value in enumerate(result.precisions, start=1)}
    return Score(
        {
            "bleu": result.score,
            **precisions,
            "brevity": 100 * result.bp,
            "words": result.sys_len,
            "reference_words": result.ref_len,
        },
        f"sacrebleu {metric.get_signature()}; brevity: penalty x 100; words are counts",
    )


def _metric(tokenize: str, lowercase: bool, smooth: str) -> Any:
    """sacrebleu's metric; `UsageError` if its tokenizer is not installed, or cannot be fetched."""
    from sacrebleu.metrics.bleu import BLEU

    try:
        # `force`: no advice about tokenised text, which names arguments of sacrebleu's own
        return BLEU(tokenize=tokenize, lowercase=lowercase, smooth_method=smooth, force=True)
    except (RuntimeError, ImportError) as error:
        raise UsageError(
            f"--tokenize {tokenize} needs a package: pip install 'sacrebleu[{tokenize[:2]}]'"
        ) from error
    except OSError as error:
        raise UsageError(
            f"--tokenize {tokenize} needs a model that sacrebleu downloads once: {error}"
        ) from error


def chrf(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, lowercase: bool = False
) -> Score:
    """chrF2 and chrF2++, F-scores of character n-grams with recall counting twice."""
    from sacrebleu.metrics.chrf import CHRF

    scorers = {"chrf": CHRF(lowercase=lowercase), "chrf++": CHRF(word_order=2, lowercase=lowercase)}
    streams = list(zip_longest(*references))
    figures = {
        name: metric.corpus_score(hypotheses, streams).score for name, metric in scorers.items()
    }
    signatures = (str(metric.get_signature()) for metric in scorers.values())
    return Score(figures, f"sacrebleu {' and '.join(signatures)}")
