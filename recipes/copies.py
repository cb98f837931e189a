"""Running text -> pairs whose target is a sentence of the source, to learn to find and to copy.

    python copies.py answers --texts a.jsonl.gz b.txt --dest copies.json
    python copies.py lead --texts a.jsonl.gz --dest copies.jsonl

answers: as SQuAD's json, a passage of five sentences, some words of the middle one as the answer,
and that sentence instead of a question. lead: eight sentences as `source`, the first one as
`target`.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from unitk.comparison.texts import read_documents
from unitk.data.files.documents import Separators
from unitk.data.files.readers import format_of

SHORTEST = 6
"""Words of a sentence that is worth copying."""


def passages(paths, longest):
    """The sentences of each document, and the places of those that may be copied."""
    for path in paths:
        reading = Separators(format=format_of(path, "auto", "--texts"), sentences="punct")
        for document in read_documents(path, reading):
            sentences = [" ".join(sentence.split()) for sentence in document]
            sizes = [sentence.count(" ") + 1 for sentence in sentences]
            yield sentences, [i for i, size in enumerate(sizes) if SHORTEST <= size <= longest]


def answers(passages, rng):
    """SQuAD's json of one article, whose questions are sentences."""
    paragraphs = []
    for sentences, places in passages:
        for i in places:
            words = sentences[i].split()
            size = int(rng.integers(1, 4))
            first = int(rng.integers(len(words) - size + 1))
            before = " ".join([*sentences[max(0, i - 2) : i], *words[:first]])
            answer = {"text": " ".join(words[first : first + size])}
            answer["answer_start"] = len(before) + bool(before)
            entry = {"question": sentences[i], "answers": [answer]}
            context = " ".join(sentences[max(0, i - 2) : i + 3])
            paragraphs.append({"context": context, "qas": [entry]})
    return [{"data": [{"title": "copies", "paragraphs": paragraphs}]}], len(paragraphs)


def lead(passages, rng):
    """Records, beginning every fourth sentence."""
    records = [
        {"source": " ".join(sentences[i : i + 8]), "target": sentences[i]}
        for sentences, places in passages
        for i in places[::4]
    ]
    return [records[i] for i in rng.permutation(len(records))], len(records)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("kind", choices=("answers", "lead"))
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--longest", type=int, default=30, help="most words of such a sentence")
    parser.add_argument("--dest", type=Path, required=True)
    args = parser.parse_args()
    make = {"answers": answers, "lead": lead}[args.kind]
    lines, count = make(passages(args.texts, args.longest), np.random.default_rng(1))
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    args.dest.write_text(text, encoding="utf-8")
    print(f"{args.dest}: {count:,} sentences to copy")


if __name__ == "__main__":
    main()
