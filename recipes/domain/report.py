"""How many labels are right, by states before and after the training, and by TF-IDF.

python3 report.py RUN LABELS DRAWS
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
from shared import markdown_table, parse_arguments, publish_table

Floats = npt.NDArray[np.floating[Any]]

PENALTY = 0.01
"""C of scikit-learn's logistic regression on standardised states; 0.003 and 0.03 do as well."""


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


def by_states(states: Floats, labels: list[str], train: int) -> Callable[..., npt.NDArray[Any]]:
    """Returns what a logistic regression says that learns states [N, D] of the first texts."""
    from sklearn.linear_model import LogisticRegression

    pool = states[:train]
    standard = (states - pool.mean(0)) / (pool.std(0) + 1e-6)
    known = np.array(labels)

    def learn(places: npt.NDArray[np.intp]) -> npt.NDArray[Any]:
        model = LogisticRegression(C=PENALTY, max_iter=500)
        return model.fit(standard[places], known[places]).predict(standard[train:])

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


def main(run: Path, count: int, draws: int) -> None:
    """Print and write the table."""
    warnings.filterwarnings("ignore")  # of regressions that have not converged
    parts = json.loads((run / "inputs/labels.json").read_text(encoding="utf-8"))
    labels, train = parts["train"] + parts["test"], len(parts["train"])
    texts = (run / "inputs/plain.txt").read_text(encoding="utf-8").splitlines()
    count = min(count, train)
    share = max(Counter(parts["test"]).values()) / len(parts["test"])
    words = [accuracies(by, labels, train, count, draws) for by in by_words(texts, labels, train)]
    rows = [
        ["the most frequent label", f"{100 * share:.1f}"],
        ["TF-IDF, the best of nine settings", show(max(words, key=np.mean))],
    ]
    for name, title in {"before": "the bundled model", "after": "trained on the texts"}.items():
        mean = np.load(run / f"states/{name}.mean.npy")
        prompted = [np.load(path) for path in sorted((run / "states").glob(f"{name}.prompt*.npy"))]
        kinds = {"mean state": mean, "and prompts": np.concatenate([mean, *prompted], 1)}
        for kind, states in kinds.items():
            learn = by_states(states, labels, train)
            shares = accuracies(learn, labels, train, count, draws)
            rows.append([f"{title}, {kind}", show(shares)])
    publish_table(run, markdown_table([f"{count} labels, {draws} draws", "right, %"], rows))


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, count=int, draws=int))
