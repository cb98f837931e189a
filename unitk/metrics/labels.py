"""Scores of predicted labels: classes, numbers, tags and answers, with scikit-learn and scipy.

Every metric takes the prediction for each text, and its label. Scores are in per cent, including
correlations.
"""

from __future__ import annotations

import importlib
import re
import string
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from unitk.errors import UsageError
from unitk.metrics import Score, TextLists
from unitk.metrics.words import PUNCTUATION, UNSPACED_LETTER, words

ARTICLES = re.compile(r"\b(a|an|the)\b")
UNPUNCTUATED = str.maketrans("", "", string.punctuation)

SCHEMES = {"IOB": "IOB", "IOBES": "IOBES", "BILOU": "BILOU", "BMES": "BMESO"}
"""Scheme of tags -> the letters before the type; O stands alone."""
BEGINS = ("B", "S", "U")
ENDS = ("E", "L", "S", "U")

Span = tuple[int, int, int, str]
"""A text, its words [start, stop), and the type of what they name."""


def classes(predicted: Sequence[str], expected: Sequence[str]) -> Score:
    """Accuracy, F1 (macro, micro, and of each class), and Matthews' correlation.

    Matthews 1975; for several classes Gorodkin 2004; 0 where all labels are equal.
    """
    metrics = load_library("sklearn.metrics", "scikit-learn", "class")
    names = sorted({*predicted, *expected})
    f1 = 100 * metrics.f1_score(expected, predicted, labels=names, average=None, zero_division=0)
    micro = metrics.f1_score(expected, predicted, labels=names, average="micro")
    matthews = 0.0 if len(names) == 1 else metrics.matthews_corrcoef(expected, predicted)
    disjoint = {*predicted}.isdisjoint(expected)
    note = "; no prediction is among the references" if disjoint else ""
    return Score(
        {
            "accuracy": 100 * float(metrics.accuracy_score(expected, predicted)),
            "matthews": 100 * float(matthews),
            "f1_macro": float(f1.mean()),
            "f1_micro": 100 * float(micro),
            **{f"f1:{name}": float(value) for name, value in zip(names, f1, strict=True)},
        },
        "matthews: correlation x 100; f1:X: of class X against the others; f1_macro: their mean"
        " over the classes that were predicted or are right" + note,
    )


def class_sets(predicted: TextLists, expected: TextLists) -> Score:
    """F1 of the classes of texts, of which each has any number (loose micro and macro), and the
    share of texts that have exactly the right ones.

    Ling and Weld 2012; as THU-ERNIE's eval_typing.py counts Open Entity: macro precision and recall
    are means over all texts, 0 for one without predicted or right classes.
    """
    sets = [{*names} for names in predicted]
    right_sets = [{*names} for names in expected]
    pairs = [*zip(sets, right_sets, strict=True)]
    common = [len(names & right) for names, right in pairs]

    def shares(sides: list[set[str]]) -> tuple[float, float]:
        """The share of right classes of all texts together, and its mean over texts."""
        of_texts = [n / max(len(side), 1) for n, side in zip(common, sides, strict=True)]
        return sum(common) / max(sum(map(len, sides)), 1), _mean(of_texts)

    figures: dict[str, float | int] = {"accuracy": 100 * _mean([a == b for a, b in pairs])}
    kinds = zip(("micro", "macro"), shares(sets), shares(right_sets), strict=True)
    for kind, precision, recall in kinds:
        f1 = 2 * precision * recall / max(precision + recall, 1e-30)
        values = {"f1": f1, "precision": precision, "recall": recall}
        figures |= {f"{name}_{kind}": 100 * value for name, value in values.items()}
    macro = "macro: of mean precision and recall of texts"
    return Score(figures, f"micro: over all classes; {macro}; accuracy: of sets")


def numbers(predicted: Sequence[float], expected: Sequence[float]) -> Score:
    """Pearson's and Spearman's correlations; 0 where all numbers are equal."""
    stats = load_library("scipy.stats", "scipy", "number")
    constant = min(len(set(predicted)), len(set(expected))) < 2
    pearson, spearman = (
        0.0 if constant else 100 * float(correlation(predicted, expected).statistic)
        for correlation in (stats.pearsonr, stats.spearmanr)
    )
    figures = {"pearson": pearson, "spearman": spearman, "mean": (pearson + spearman) / 2}
    return Score(figures, "correlations x 100; 0 where all predictions or references are equal")


def answers(predicted: TextLists, expected: TextLists) -> Score:
    """Exact match and F1 of words.  Rajpurkar et al. 2018, arXiv 1806.03822, evaluate-v2.0.py.

    The best reference counts. If a question has no answer, only the empty answer is right. Where
    every question has an answer, this equals the score of SQuAD 1.1 (arXiv 1606.05250, section
    6.1).
    """
    exact, f1, has = [], [], []
    for answers_of, references in zip(predicted, expected, strict=True):
        words = _words(" ".join(answers_of[:1]))
        right = list(filter(None, map(_words, references))) or [[]]
        exact.append(100 * (words in right))
        f1.append(100 * max(_f1(words, reference) for reference in right))
        has.append(bool(references))
    figures: dict[str, float | int] = {"em": _mean(exact), "f1": _mean(f1), "questions": len(has)}
    if not all(has):
        for name, answerable in (("answerable", True), ("unanswerable", False)):
            chosen = [i for i, has_answer in enumerate(has) if has_answer is answerable]
            figures[f"{name}_em"] = _mean([exact[i] for i in chosen])
            figures[f"{name}_f1"] = _mean([f1[i] for i in chosen])
            figures[name] = len(chosen)
    about = "as SQuAD's evaluate-v2.0.py: lower-cased, without punctuation and a, an, the"
    if any(UNSPACED_LETTER.search(text) for texts in expected for text in texts):
        about += "; a character of a script without blanks is a word"
    return Score(figures, about)


def tags(predicted: TextLists, expected: TextLists) -> Score:
    """The share of right tags; precision, recall and F1 of whole spans, overall and for each type.

    As conlleval counts (Tjong Kim Sang and Buchholz 2000), for tags in the schemes of `SCHEMES`;
    of others, such as parts of speech, the share alone. Both sides have equally many for each text.
    """
    equal = total = 0
    for tags_of, right in zip(predicted, expected, strict=True):
        assert len(tags_of) == len(right)
        equal += sum(map(str.__eq__, tags_of, right))
        total += len(right)
    figures: dict[str, float | int] = {"accuracy": 100 * equal / max(total, 1)}
    scheme = scheme_of(tag for tags_of in (*predicted, *expected) for tag in tags_of)
    if scheme is None:
        figures["tags"] = total
        return Score(figures, f"accuracy alone: these tags mark no spans ({', '.join(SCHEMES)})")
    predicted_spans = spans(predicted)
    right_spans = spans(expected)
    figures |= _ratios(predicted_spans, right_spans)
    for name in sorted({kind for *_, kind in predicted_spans | right_spans}):
        of_type = {span for span in predicted_spans if span[-1] == name}
        right_of_type = {span for span in right_spans if span[-1] == name}
        figures[f"f1:{name}"] = _ratios(of_type, right_of_type)["f1"]
    figures |= {"spans": len(right_spans), "predicted_spans": len(predicted_spans)}
    return Score(figures, f"spans of {scheme} as conlleval: first and last word and type are right")


def spans(texts: TextLists) -> set[Span]:
    """The spans of tagged texts: one begins at B, S or U, after E, L, S or U, and where the type
    changes. A tag without a type has the type "span"."""
    found_spans: set[Span] = set()
    for number, tags_of in enumerate(texts):
        start = 0
        before = ""  # the type of the span at hand
        ended = False
        for position, tag in enumerate([*tags_of, "O"]):  # which ends the last span
            mark, _, kind = tag.partition("-")
            kind = "" if tag == "O" else kind or "span"
            if mark in BEGINS or ended or kind != before:
                if before:
                    found_spans.add((number, start, position, before))
                start = position
                before = kind
            ended = mark in ENDS
    return found_spans


def scheme_of(texts: Iterable[str]) -> str | None:
    """The first scheme of `SCHEMES` that has all of these tags, or None."""
    known = {*texts}
    marks = {tag.partition("-")[0] for tag in known}
    typed = {("-" in tag) for tag in known - {"O"}}
    if len(typed) > 1 or any(tag.endswith("-") for tag in known):
        return None
    return next((name for name, letters in SCHEMES.items() if marks <= {*letters}), None)


def _ratios(predicted: set[Span], expected: set[Span]) -> dict[str, float]:
    right = len(predicted & expected)
    return {
        "precision": 100 * right / max(len(predicted), 1),
        "recall": 100 * right / max(len(expected), 1),
        "f1": 200 * right / max(len(predicted) + len(expected), 1),
    }


def _words(answer: str) -> list[str]:
    """The words that answers are compared by."""
    if UNSPACED_LETTER.search(answer):  # as CMRC's and MLQA's scripts
        return words(PUNCTUATION.sub("", answer))
    return ARTICLES.sub(" ", answer.lower().translate(UNPUNCTUATED)).split()


def _f1(words: Sequence[str], right: Sequence[str]) -> float:
    """F1 of the words that both texts have; 1 if both have none."""
    if not words or not right:
        return float(words == right)
    return 2 * (Counter(words) & Counter(right)).total() / (len(words) + len(right))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / max(len(values), 1)


def load_library(module: str, package: str, metric: str) -> Any:
    """A module of a package that a metric needs; UsageError if it is not installed."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UsageError(
            f"--metric {metric} needs {package}: pip install 'unitk[score]'"
        ) from error
