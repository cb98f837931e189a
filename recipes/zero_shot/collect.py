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

from unitk.data.files.columns import read_labels
from unitk.data.files.documents import split_sentences
from unitk.data.files.pairs import Fields, read_records
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
    return [one.text("text") for one in records(path, given="jsonl")]


def some(rows: Iterable[Any], most: int) -> list[Any]:
    """As many, at equal distances."""
    every = list(rows)
    return every[:: max(1, len(every) // most)][:most]


def cut(text: str, words: int) -> str:
    """The first sentences of a text, of so many words in all; at least one."""
    sentences = list(split_sentences(text, "punct"))
    ends = accumulate(len(one.split()) for one in sentences)
    return " ".join(sentences[: max(1, sum(end <= words for end in ends))])


def summaries(path: Path, words: int) -> Iterator[dict[str, Any]]:
    """The first sentences of each text, and its summaries."""
    for one in read_records(path, Fields(("source",), ("target",))):
        yield {"text": cut(one.source[-1], words), "references": [one.target, *one.others]}


def questions(path: Path, words: int) -> Iterator[dict[str, Any]]:
    """Questions about passages of so many words at most, and their answers."""
    asked = read_squad(path, spans=True)
    labels = read_labels(path, "span", "", "")
    for one, label in zip(asked, labels, strict=True):
        question, passage = (" ".join(part.split()) for part in one.source)
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
        whole = [one for text in texts_of(args.passages) for one in passages(text)]
    else:
        whole = texts_of(args.last_words)
    write(args.dest / "last_words.jsonl", ({"text": one} for one in some(whole, args.texts)))
    long = some(summaries(args.summaries, args.words), args.texts)
    asked = some(questions(args.questions, args.words), args.texts)
    prompts = {
        "plain": (one | {"prompt": one["text"]} for one in long),
        "tldr": (one | {"prompt": f"{one['text']} TL;DR:"} for one in long),
        "alone": (one | {"prompt": f"Q: {one['question']} A:"} for one in asked),
        "answers": (one | {"prompt": f"{one['text']} Q: {one['question']} A:"} for one in asked),
    }
    for name, rows in prompts.items():
        write(args.dest / f"{name}.jsonl", rows)


if __name__ == "__main__":
    main()
