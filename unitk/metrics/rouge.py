"""ROUGE F1.  Lin 2004, as rouge-score counts it, with the Porter stemmer.

rouge1, rouge2 and rougeL take a text as one sequence of words. rougeLsum takes it sentence by
sentence and is what papers call ROUGE-L of summaries; where texts are single sentences it equals
rougeL, and is not counted again. rouge-score knows words of a-z and digits; words of any script are
those of `unitk.metrics.words`.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from itertools import chain
from typing import Literal

from unitk.errors import DataError
from unitk.metrics import Score, TextLists, words
from unitk.progress import Report, no_report

ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")
WordKind = Literal["ascii", "unicode"]


class _Tokenizer:
    """The tokenizer of rouge-score, with a cache of stems, which makes scoring twice as fast.

    Or one of words of any script, with the same stems of those of a-z.
    """

    def __init__(self, kind: WordKind) -> None:
        self.kind = kind
        from nltk.stem.porter import PorterStemmer

        self.stem = functools.cache(PorterStemmer().stem)

    def tokenize(self, text: str) -> list[str]:
        from rouge_score.tokenize import tokenize

        tokens = words.words(text) if self.kind == "unicode" else tokenize(text, None)
        return [self.stem(word) if len(word) > 3 and word.isascii() else word for word in tokens]


def rouge(
    hypotheses: Sequence[str],
    references: TextLists,
    *,
    separator: str = "<q>",
    kind: WordKind = "ascii",
    report: Report = no_report,
) -> Score:
    """Mean F1 over the texts; of several references, the one with the best F1 counts.

    Line ends and `separator` separate the sentences of a text. `kind` says what a word is; a
    warning says how much of the texts is no word.
    """
    from rouge_score.rouge_scorer import RougeScorer

    if kind == "ascii":
        remedy = "--rouge-words unicode counts words of any script"
        if not any(re.search("[a-zA-Z0-9]", text) for text in chain(*references)):
            raise DataError(
                f"ROUGE counts words of a-z and digits only, and the references have none: {remedy}"
            )
        words.warn_uncounted(chain(*references), remedy)
    marks = (separator, "\n")
    texts = chain(hypotheses, *references)
    split = any(mark in text.strip() for text in texts for mark in marks)
    kinds = ROUGE if split else ROUGE[:3]
    scorer = RougeScorer(kinds, tokenizer=_Tokenizer(kind))
    sums = dict.fromkeys(kinds, 0.0)
    each = list[dict[str, float]]()
    for hypothesis, several in zip(hypotheses, references, strict=True):
        sentences = [text.replace(separator, "\n") for text in several]
        best = scorer.score_multi(sentences, hypothesis.replace(separator, "\n"))
        for name in kinds:
            sums[name] += best[name].fmeasure
        each.append({name: 100 * best[name].fmeasure for name in kinds})
        report(1)
    figures = {name: 100 * value / len(hypotheses) for name, value in sums.items()}
    figures.setdefault("rougeLsum", figures["rougeL"])
    how_many = f"{(count := len(hypotheses)):,} text{'s' * (count != 1)}"
    counted = "" if kind == "ascii" else ", words of any script"
    return Score(figures, f"F1, rouge-score with stemmer{counted}, {how_many}", each)
