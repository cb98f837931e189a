"""How many labels are right, by states and label words before and after training, and by TF-IDF.

    python3 report.py RUN LABELS DRAWS WORDS

Without WORDS (an empty word), there are no rows of label words.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from label_words import split_words
from shared import markdown_table, parse_arguments, publish_table

Floats = npt.NDArray[np.floating[Any]]

PENALTY = 0.01
"""C of scikit-learn's logistic regression on standardised states; 0.003 and 0.03 do as well."""

GUESSED_PENALTY = 0.001
"""The same where guesses of label words are learnt, too, and so many times more texts."""

TOLD_WEIGHT = 10
"""The weight of a true label, where that of a guess is 1 in the root mean square."""


def accuracies(
    learn: Callable[[npt.NDArray[np.intp]], npt.NDArray[Any]],
    labels: list[str],
    train: int,
    count: int,
    draws: int,
) -> Floats:
    """The share [draws] of the labels from `train` on that are right after `count` others."""
    expected = np.array(labels[train:])
    drawn = (np.random.default_rng(n).choice(train, count, replace=False) for n in range(draws))
    return np.array([(learn(places) == expected).mean() for places in drawn])


def standardise(states: Floats, train: int) -> Floats:
    """States [N, D] with mean 0 and deviation 1 over the first `train` texts."""
    pool = states[:train]
    return (states - pool.mean(0)) / (pool.std(0) + 1e-6)


def by_states(states: Floats, labels: list[str], train: int) -> Callable[..., npt.NDArray[Any]]:
    """Returns what a logistic regression says that learns states [N, D] of the first texts."""
    from sklearn.linear_model import LogisticRegression

    standard = standardise(states, train)
    known = np.array(labels)

    def learn(places: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        model = LogisticRegression(C=PENALTY, max_iter=500)
        return model.fit(standard[places], known[places]).predict(standard[train:])

    return learn


def guess(log_probs: Floats, train: int) -> tuple[npt.NDArray[np.intp], Floats]:
    """The label [N] whose words are likelier than they usually are, and by how much [N].

    `log_probs` are [P, N, K]. What is usual is the mean over the first `train` texts of each prompt
    and label (contextual calibration, Zhao et al. 2021, arXiv 2102.09690, has one empty text).
    """
    pool = log_probs[:, :train]
    centred = log_probs - pool.mean(1, keepdims=True)
    spread = (pool - pool.mean(1, keepdims=True)).std((1, 2), keepdims=True) + 1e-6
    scores = (centred / spread).mean(0)
    second, first = np.sort(scores, 1)[:, -2:].T
    return scores.argmax(1), first - second


def by_guesses(
    states: Floats, guesses: npt.NDArray[np.str_], margins: Floats, labels: list[str], train: int
) -> Callable[..., npt.NDArray[Any]]:
    """As `by_states`, but the other texts of the first `train` have their guesses as labels.

    A guess [N] counts in proportion to its margin [N] (self-training).
    """
    from sklearn.linear_model import LogisticRegression

    standard = standardise(states, train)
    known = np.array(labels)
    trust = margins[:train] / np.sqrt((margins[:train] ** 2).mean())

    def learn(places: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        targets, weights = guesses[:train].copy(), trust.copy()
        targets[places] = known[places]
        weights[places] = TOLD_WEIGHT
        model = LogisticRegression(C=GUESSED_PENALTY, max_iter=500)
        return model.fit(standard[:train], targets, weights).predict(standard[train:])

    return learn


def by_words(texts: list[str], labels: list[str], train: int) -> Iterator[Callable[..., Any]]:
    """Logistic regressions on TF-IDF with nine settings: three kinds of terms, three penalties."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression

    known = np.array(labels)
    kinds: tuple[dict[str, Any], ...] = (
        {"ngram_range": (1, 1)},
        {"ngram_range": (1, 2)},
        {"analyzer": "char_wb", "ngram_range": (2, 4)},
    )
    for kind in kinds:
        vectorizer = TfidfVectorizer(sublinear_tf=True, **kind).fit(texts[:train])
        terms = vectorizer.transform(texts)
        for penalty in (1, 10, 100):

            def learn(places: npt.NDArray[np.intp], c: float = penalty, x: Any = terms) -> Any:
                model = LogisticRegression(C=c, max_iter=1000)
                return model.fit(x[places], known[places]).predict(x[train:])

            yield learn


def show(shares: Floats) -> str:
    """Mean and standard deviation over the draws, in per cent."""
    return f"{100 * shares.mean():.1f} ± {100 * shares.std():.1f}"


def read_words(words: str, labels: list[str]) -> npt.NDArray[np.str_]:
    """The labels in the order of their words; all that occur must have some."""
    named = [*split_words(words)]
    if unknown := {*labels} - {*named}:
        raise SystemExit(f"WORDS has no words of the label {min(unknown)}")
    return np.array(named)


def main(run: Path, count: int, draws: int, words: str) -> None:
    """Print and write the table."""
    warnings.filterwarnings("ignore")  # of regressions that have not converged
    parts = json.loads((run / "inputs/labels.json").read_text(encoding="utf-8"))
    labels, train = parts["train"] + parts["test"], len(parts["train"])
    texts = (run / "inputs/plain.txt").read_text(encoding="utf-8").splitlines()
    count = min(count, train)

    def judge(learn: Callable[..., npt.NDArray[Any]]) -> Floats:
        return accuracies(learn, labels, train, count, draws)

    share = max(Counter(parts["test"]).values()) / len(parts["test"])
    terms = max(map(judge, by_words(texts, labels, train)), key=np.mean)
    rows = [
        ["the most frequent label", f"{100 * share:.1f}"],
        ["TF-IDF, the best of nine settings", show(terms)],
    ]
    for name, title in {"before": "the bundled model", "after": "trained on the texts"}.items():
        mean = np.load(run / f"states/{name}.mean.npy")
        prompted = [np.load(path) for path in sorted((run / "states").glob(f"{name}.prompt*.npy"))]
        states = np.concatenate([mean, *prompted], 1)
        rows.append([f"{title}, mean state", show(judge(by_states(mean, labels, train)))])
        rows.append([f"{title}, and prompts", show(judge(by_states(states, labels, train)))])
        if words:
            named = read_words(words, labels)
            places, margins = guess(np.load(run / f"states/{name}.words.npy"), train)
            right = (named[places] == labels)[train:].mean()
            rows.append([f"{title}, label words without labels", f"{100 * right:.1f}"])
            learn = by_guesses(states, named[places], margins, labels, train)
            rows.append([f"{title}, prompts and label words", show(judge(learn))])
    publish_table(run, markdown_table([f"{count} labels, {draws} draws", "right, %"], rows))


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, count=int, draws=int, words=str))
