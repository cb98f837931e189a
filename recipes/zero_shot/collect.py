"""Prompts that nothing was trained on: passages without their last word, texts to be summed up,
passages with a question.

    python3 collect.py DEST --passages FILE --summaries FILE --questions FILE [--texts N]

--passages are documents, from which passages are cut; --last-words takes passages as they are
(LAMBADA). --summaries are records with the fields source and target (SciTLDR), --questions SQuAD's
json. DEST gets last_words.jsonl, and a file of prompts for each way to ask: plain and tldr,
alone and answers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable, Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any

from shared import read_record_pairs

from unitk.data.files.columns import read_labels
from unitk.data.files.documents import split_sentences
from unitk.data.files.pairs import Fields
from unitk.data.files.readers import records
from unitk.data.files.squad import read_squad

LEAST = 50
"""Words of a passage. LAMBADA's have 75 on average."""


def passages(document: str, least: int = LEAST) -> Iterator[str]:
    """Runs of whole sentences of so many words, without the last full stop; the last word has
    three letters or more."""
    words: list[str] = []
    for sentence in split_sentences(document, "punct"):
        words += sentence.split()
        if len(words) >= least:
            last = words[-1].rstrip(".?!")
            if last.isalpha() and len(last) > 2:
                yield " ".join([*words[:-1], last])
            words = []


def texts_of(path: Path) -> list[str]:
    """The field `text` of every record."""
    return [record.text("text") for record in records(path, given="jsonl")]


def some(rows: Iterable[Any], limit: int) -> list[Any]:
    """As many, at equal distances."""
    every = list(rows)
    return every[:: max(1, len(every) // limit)][:limit]


def cut(text: str, words: int) -> str:
    """The first sentences of a text, of so many words in all; at least one."""
    sentences = list(split_sentences(text, "punct"))
    ends = accumulate(len(sentence.split()) for sentence in sentences)
    return " ".join(sentences[: max(1, sum(end <= words for end in ends))])


def summaries(path: Path, words: int) -> Iterator[dict[str, Any]]:
    """The first sentences of each text, and its summaries."""
    for pair in read_record_pairs(path, Fields(("source",), ("target",))):
        yield {"text": cut(pair.source[-1], words), "references": [pair.target, *pair.others]}


def questions(path: Path, words: int) -> Iterator[dict[str, Any]]:
    """Questions about passages of so many words at most, and their answers."""
    pairs = read_squad(path, spans=True)
    labels = read_labels(path, "span", "", "")
    for pair, label in zip(pairs, labels, strict=True):
        question, passage = (" ".join(part.split()) for part in pair.source)
        if len(passage.split()) <= words:
            yield {"text": passage, "question": question, "references": label.label}


def write(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Records, one a line."""
    lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    path.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    """Write the prompts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dest", type=Path)
    last = parser.add_mutually_exclusive_group(required=True)
    last.add_argument("--passages", type=Path)
    last.add_argument("--last-words", type=Path)
    parser.add_argument("--summaries", type=Path, required=True)
    parser.add_argument("--questions", type=Path, required=True)
    parser.add_argument("--texts", type=int, default=300)
    parser.add_argument("--words", type=int, default=120)
    args = parser.parse_args()
    args.dest.mkdir(parents=True, exist_ok=True)
    if args.passages:
        whole = [part for text in texts_of(args.passages) for part in passages(text)]
    else:
        whole = texts_of(args.last_words)
    write(args.dest / "last_words.jsonl", ({"text": record} for record in some(whole, args.texts)))
    long = some(summaries(args.summaries, args.words), args.texts)
    asked_questions = some(questions(args.questions, args.words), args.texts)
    prompts = {
        "plain": (record | {"prompt": record["text"]} for record in long),
        "tldr": (record | {"prompt": f"{record['text']} TL;DR:"} for record in long),
        "alone": (record | {"prompt": f"Q: {record['question']} A:"} for record in asked_questions),
        "answers": (
            record | {"prompt": f"{record['text']} Q: {record['question']} A:"}
            for record in asked_questions
        ),
    }
    for name, rows in prompts.items():
        write(args.dest / f"{name}.jsonl", rows)


if __name__ == "__main__":
    main()
