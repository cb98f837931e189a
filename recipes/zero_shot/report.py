"""The tables of last words, summaries and answers: python3 report.py RUN [--sentences N]."""

from __future__ import annotations

import argparse
import random
import re
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from shared import markdown_table, read_jsonl, show_examples

from unitk.data.files.documents import split_sentences
from unitk.metrics.labels import answers
from unitk.metrics.rouge import rouge

ROUGE = {"rouge1": "ROUGE-1", "rouge2": "ROUGE-2", "rougeL": "ROUGE-L"}
LONG = re.compile(r"[^\W\d_]{4,}")
NAME = re.compile(r"(?<=[\w,;] )[A-Z]\w+")


def beginning(text: str, sentences: int) -> str:
    """The first sentences."""
    return " ".join(islice(split_sentences(text, "punct"), sentences))


def answer(written: str) -> str:
    """What is written up to the end of a sentence, or the next question."""
    return re.split(r"Q:|[.?!\n]", written)[0].strip()


def frequent(words: Sequence[str]) -> str:
    """The word that is there most often, of several the last one; "" if there is none."""
    counts = Counter(words)
    return max(reversed(words), key=counts.__getitem__, default="")


def last_words(run: Path) -> list[list[str]]:
    """The share of last words that are right: of words of the passage, and of the model's."""
    texts = [record["text"].split() for record in read_jsonl(run / "text" / "last_words.jsonl")]
    long = [LONG.findall(" ".join(words[:-1])) for words in texts]
    common = frequent([word for words in long for word in words])
    judged = [record["right"] for record in read_jsonl(run / "last_words.jsonl")]
    guessed = {
        f"most frequent word of four letters or more ({common})": [
            words[-1] == common for words in texts
        ],
        "the same of each passage": [
            words[-1] == frequent(own) for words, own in zip(texts, long, strict=True)
        ],
        "model": judged,
    }
    return [[name, f"{100 * sum(right) / len(right):.1f}"] for name, right in guessed.items()]


def written(run: Path, name: str) -> list[str]:
    """What the model wrote after each prompt."""
    return [record["outputs"][0]["text"] for record in read_jsonl(run / f"{name}.jsonl")]


def summaries(run: Path, texts: list[Any], sentences: int, rng: random.Random) -> str:
    """The table of summaries: of sentences of the text, and of the model's."""
    parted = [list(split_sentences(record["text"], "punct")) for record in texts]
    drawn = [rng.sample(range(len(own)), min(sentences, len(own))) for own in parted]
    candidates = {
        "first sentences": [beginning(record["text"], sentences) for record in texts],
        "any sentences": [
            " ".join(own[i] for i in sorted(some)) for own, some in zip(parted, drawn, strict=True)
        ],
        "model": [beginning(text, sentences) for text in written(run, "plain")],
        "model, TL;DR:": [beginning(text, sentences) for text in written(run, "tldr")],
    }
    references = [record["references"] for record in texts]
    rows = []
    for name, own in candidates.items():
        figures = rouge(own, references).figures
        rows.append([name, *(f"{figures[key]:.1f}" for key in ROUGE)])
    return markdown_table([f"{len(texts)} summaries", *ROUGE.values()], rows)


def answered(run: Path, questions: list[Any]) -> str:
    """The table of answers: by rules, and by the model with and without the passage."""
    candidates = {
        "first sentence": [beginning(record["text"], 1) for record in questions],
        "most frequent name": [frequent(NAME.findall(record["text"])) for record in questions],
        "model, without the passage": list(map(answer, written(run, "alone"))),
        "model": list(map(answer, written(run, "answers"))),
    }
    right = [record["references"] for record in questions]
    rows = []
    for name, own in candidates.items():
        figures = answers([[text] for text in own], right).figures
        rows.append([name, f"{figures['em']:.1f}", f"{figures['f1']:.1f}"])
    return markdown_table([f"{len(questions)} answers", "exact match", "F1"], rows)


def shown(number: int, prompt: dict[str, str], text: str) -> str:
    """The end of a prompt with what the model wrote."""
    return f"{number}. ... {prompt['prompt'][-160:]} **{text}**\n"


def main() -> None:
    """Print and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--sentences", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    run = args.run
    count = len(read_jsonl(run / "last_words.jsonl"))
    long = read_jsonl(run / "text" / "tldr.jsonl")
    questions = read_jsonl(run / "text" / "answers.jsonl")
    lines = [
        markdown_table([f"{count} last words", "right, %"], last_words(run)),
        summaries(run, long, args.sentences, random.Random(args.seed)),
        answered(run, questions),
    ]
    for name, prompts in {"tldr": long, "answers": questions}.items():
        lines.append("".join(show_examples(3, shown, prompts, written(run, name))))
    text = "\n".join(lines)
    (run / "report.md").write_text(text, encoding="utf-8")
    print("\n" + text, end="")


if __name__ == "__main__":
    main()
