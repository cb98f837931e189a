"""BLEU and chrF of a corpus, as sacrebleu counts them (Post 2018, arXiv 1804.08771).

BLEU: Papineni et al. 2002. chrF: Popović 2015; chrF++, with words and their pairs: Popović 2017.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any, Literal

from unitk.errors import UsageError
from unitk.metrics import Score, TextLists
from unitk.metrics.words import warn_unspaced
from unitk.progress import Report, no_report

Tokenize = Literal[
    "13a", "intl", "zh", "char", "none", "ja-mecab", "ko-mecab", "flores101", "flores200"
]
Smooth = Literal["exp", "none"]
BLOCK = 10_000
"""Texts that sacrebleu counts at once: it keeps more of a text than its counts."""


def bleu(
    hypotheses: Sequence[str],
    references: TextLists,
    *,
    tokenize: Tokenize = "13a",
    lowercase: bool = False,
    smooth: Smooth = "exp",
    report: Report = no_report,
) -> Score:
    """BLEU-4 with its parts; each text has at least one reference, and numbers may differ."""
    metric = _metric(tokenize, lowercase, smooth)
    if tokenize in ("13a", "intl"):
        firsts = (first for first, *_ in references)
        warn_unspaced("bleu", firsts, "--tokenize zh, char or ja-mecab splits them")
    result = _score(metric, hypotheses, references, report)
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


def _score(metric: Any, hypotheses: Sequence[str], references: TextLists, report: Report) -> Any:
    """A score of sacrebleu, which counts a block of texts at a time."""
    counts = []
    for start in range(0, len(hypotheses), BLOCK):
        some = slice(start, start + BLOCK)
        # sacrebleu wants the first references of all texts, then the second ones; None is none
        each = metric._extract_corpus_statistics(
            hypotheses[some], list(zip_longest(*references[some]))
        )
        counts.append(list(map(sum, zip(*each, strict=True))))
        report(len(each))
    return metric._aggregate_and_compute(counts)


def chrf(
    hypotheses: Sequence[str],
    references: TextLists,
    *,
    lowercase: bool = False,
    report: Report = no_report,
) -> Score:
    """chrF2 and chrF2++, F-scores of character n-grams with recall counting twice."""
    from sacrebleu.metrics.chrf import CHRF

    metrics = {"chrf": CHRF(lowercase=lowercase), "chrf++": CHRF(word_order=2, lowercase=lowercase)}
    figures = {
        name: _score(metric, hypotheses, references, report).score
        for name, metric in metrics.items()
    }
    signatures = " and ".join(str(metric.get_signature()) for metric in metrics.values())
    return Score(figures, f"sacrebleu {signatures}")
