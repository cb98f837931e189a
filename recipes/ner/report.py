"""The table of named entities."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

from shared import markdown_table, parse_arguments, publish_table, read_jsonl, scores_in

from unitk.metrics.labels import tags

FIGURES = "precision", "recall", "f1", "accuracy"


def trivial(run: Path, name: str) -> dict[str, dict[str, Any]]:
    """Scores of the tag most frequent in training, and of that of each word."""
    train, test = (read_jsonl(run / "text" / f"{name}.{part}.jsonl") for part in ("train", "test"))
    every: Counter[str] = Counter()
    of_word: dict[str, Counter[str]] = defaultdict(Counter)
    for sentence in train:
        every.update(sentence["tags"])
        for word, tag in zip(sentence["words"], sentence["tags"], strict=True):
            of_word[word][tag] += 1
    [(commonest, _)] = every.most_common(1)
    best = {word: counts.most_common(1)[0][0] for word, counts in of_word.items()}
    expected = [sentence["tags"] for sentence in test]
    return {
        f"always {commonest}": tags([[commonest] * len(own) for own in expected], expected).figures,
        "most frequent tag of each word": tags(
            [[best.get(word, commonest) for word in sentence["words"]] for sentence in test],
            expected,
        ).figures,
    }


def main(run: Path, sets: list[str]) -> None:
    """Print and write the table."""
    lines = []
    for name in sets:
        rows = trivial(run, name)
        for row in ("scratch", "pretrained"):
            rows[row] = scores_in(run / name / f"{row}.json")
        for row, scores in rows.items():
            lines.append([name, row, *(f"{scores[figure]:.1f}" for figure in FIGURES)])
    publish_table(run, markdown_table(["set", "", *FIGURES[:3], "accuracy of tags"], lines))


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path, sets=[str]))
