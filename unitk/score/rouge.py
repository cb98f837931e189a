"""ROUGE F1.  Lin 2004, as rouge-score counts it, with the Porter stemmer.

rouge1, rouge2 and rougeL take a text as one sequence of words. rougeLsum takes it sentence by
sentence and is what papers call ROUGE-L of summaries; where texts are single sentences it equals
rougeL, and is not counted again.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence

from unitk.errors import DataError
from unitk.score import Score

KINDS = ("rouge1", "rouge2", "rougeL", "rougeLsum")


class _Words:
    """The tokenizer of rouge-score, with a cache of stems, which makes scoring twice as fast."""

    def __init__(self) -> None:
        from nltk.stem.porter import PorterStemmer

        self.stem = functools.cache(PorterStemmer().stem)

    def tokenize(self, text: str) -> list[str]:
        from rouge_score.tokenize import tokenize

        return [self.stem(word) if len(word) > 3 else word for word in tokenize(text, None)]


def rouge(
    hypotheses: Sequence[str], references: Sequence[Sequence[str]], *, separator: str = "<q>"
) -> Score:
    """Mean F1 over the texts; of several references, the one with the best F1 counts.

    `separator` separates the sentences of a text.
    """
    from rouge_score.rouge_scorer import RougeScorer

    if not any(re.search("[a-zA-Z0-9]", text) for several in references for text in several):
        raise DataError("ROUGE counts words of a-z and digits only, and the references have none")
    split = any(separator in text for texts in (hypotheses, *references) for text in texts)
    kinds = KINDS if split else KINDS[:3]
    scorer = RougeScorer(kinds, tokenizer=_Words())
    sums = dict.fromkeys(kinds, 0.0)
    for hypothesis, several in zip(hypotheses, references, strict=True):
        sentences = [text.replace(separator, "\n") for text in several]
        best = scorer.score_multi(sentences, hypothesis.replace(separator, "\n"))
        for kind in kinds:
            sums[kind] += best[kind].fmeasure
    figures = {kind: 100 * value / len(hypotheses) for kind, value in sums.items()}
    figures.setdefault("rougeLsum", figures["rougeL"])
    return Score(figures, f"F1, rouge-score with stemmer, {len(hypotheses):,} texts")
