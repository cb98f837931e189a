"""The table of answers."""

from __future__ import annotations

import re
from pathlib import Path

from shared import markdown_table, parse_arguments, publish_table, read_jsonl, scores_in

from unitk.data.files.columns import read_labels
from unitk.data.files.documents import split_sentences
from unitk.data.files.squad import read_squad
from unitk.metrics.labels import answers

FIGURES = "em", "f1"


def words(text: str) -> set[str]:
    """The different words of a text."""
    return set(re.findall(r"\w+", text.lower()))


def nearest(question: str, passage: str) -> str:
    """The sentence that shares most words with the question."""
    return max(
        split_sentences(passage, "punct"),
        key=lambda sentence: len(words(sentence) & words(question)),
    )


def main(run: Path) -> None:
    """Print and write the table."""
    dev = run / "text" / "dev.json"
    expected = [label.label for label in read_labels(dev, "span", "", "")]
    questions = [pair.source for pair in read_squad(dev, spans=True)]
    sentences = {
        "first sentence": [
            next(iter(split_sentences(passage, "punct"))) for _, passage in questions
        ],
        "sentence nearest to the question": [nearest(*question) for question in questions],
    }
    rows = []
    for name, texts in sentences.items():
        figures = answers([[text] for text in texts], expected).figures
        rows.append([name, *(f"{figures[figure]:.1f}" for figure in FIGURES), "0.0"])
    for name in ("scratch", "pretrained"):
        if not (run / "squad" / f"{name}.json").exists():  # settings of a paper have one row
            continue
        scores = scores_in(run / "squad" / f"{name}.json")
        predicted = [
            prediction["answer"] for prediction in read_jsonl(run / "squad" / f"{name}.jsonl")
        ]
        none = 100 * predicted.count("") / len(predicted)
        rows.append([name, *(f"{scores[figure]:.1f}" for figure in FIGURES), f"{none:.1f}"])
    publish_table(
        run,
        markdown_table([f"{len(expected):,} questions", "exact match", "F1", "no answer, %"], rows),
    )


if __name__ == "__main__":
    main(*parse_arguments(__doc__, run=Path))
