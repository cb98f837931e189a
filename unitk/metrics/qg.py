"""Question generation, scored as by Du et al. 2017, arXiv 1705.00106, and later papers.

Their scorer (qgevalcap) identifies a prediction by its source line. Equal lines are one key, which
keeps the last prediction and is compared with the questions of all these lines. Texts are
lower-cased and split at spaces, so they should be tokenized as by the Stanford tokenizer. BLEU is
not smoothed.
"""

from __future__ import annotations

from collections.abc import Sequence

from unitk.metrics import Score
from unitk.metrics.bleu import bleu
from unitk.metrics.words import warn_unspaced

BETA = 1.2  # weight of recall in qgevalcap's ROUGE-L (Lin 2004, equation 4)


def qg(hypotheses: Sequence[str], references: Sequence[str], sources: Sequence[str]) -> Score:
    """BLEU-4 and ROUGE-L by source, and BLEU-4 of each line against its own question."""
    warn_unspaced("qg", references, "put blanks between their words or characters")
    lowered = [text.lower() for text in hypotheses]
    questions = [text.lower() for text in references]
    kept, asked = group(lowered, questions, [text.lower() for text in sources])
    single = [[question] for question in questions]
    return Score(
        {
            "bleu4": bleu(kept, asked, tokenize="none", smooth="none").figures["bleu"],
            "rougeL": 100 * sum(map(rouge_l, kept, asked)) / len(kept),
            "bleu4_single": bleu(lowered, single, tokenize="none", smooth="none").figures["bleu"],
            "sources": len(kept),
            "questions": len(questions),
        },
        "lower-cased, split at spaces; bleu4 and rougeL: one prediction a source against all its"
        " questions; bleu4_single: each prediction against its own question",
    )


def treebank(text: str) -> str:
    """Tokenize a plain text as in the Penn Treebank, which is how Du et al. have their texts.

    Of their 11,877 test questions, 99.5 % equal the output of the Stanford tokenizer.
    """
    from nltk.tokenize.treebank import TreebankWordTokenizer

    return " ".join(TreebankWordTokenizer().tokenize(text.strip(), convert_parentheses=True))


def group(
    hypotheses: Sequence[str], references: Sequence[str], sources: Sequence[str]
) -> tuple[list[str], list[list[str]]]:
    """The last hypothesis and all references of each source, in the order sources first appear."""
    last: dict[str, str] = {}
    of: dict[str, list[str]] = {}
    for hypothesis, reference, source in zip(hypotheses, references, sources, strict=True):
        last[source] = hypothesis
        of.setdefault(source, []).append(reference)
    return list(last.values()), list(of.values())


def rouge_l(hypothesis: str, references: Sequence[str]) -> float:
    """ROUGE-L of qgevalcap: F with `BETA` of the best precision and the best recall."""
    words = hypothesis.split()
    others = [reference.split() for reference in references]
    common = [_common(words, other) for other in others]
    if not any(common):
        return 0.0
    precision = max(common) / len(words)
    recall = max(n / len(other) for n, other in zip(common, others, strict=True) if other)
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def _common(a: Sequence[str], b: Sequence[str]) -> int:
    """Length of the longest common subsequence, with a column of the table in one integer.

    Hyyro 2004, "Bit-parallel LCS-length computation revisited": a step down is a zero bit.
    """
    places: dict[str, int] = {}
    for position, word in enumerate(b):
        places[word] = places.get(word, 0) | 1 << position
    full = (1 << len(b)) - 1
    column = full
    for word in a:
        # the addition carries each hit up to the next zero: a whole row of the table at once
        hit = column & places.get(word, 0)
        column = (column + hit | column - hit) & full
    return len(b) - column.bit_count()
