"""Pairs, texts, queries and judgements from SQuAD: `prepare.py TRAIN DEV DIR`.

pairs.jsonl      {"question", "paragraph"}: what is learnt
texts.jsonl      {"id", "text"}: each paragraph of DEV once
queries.jsonl    {"id", "source"}: the questions of DEV
qrels.txt        question 0 paragraph 1, as TREC writes it
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from shared import parse_arguments


def questions(path: Path) -> Iterator[tuple[str, str]]:
    """Each question with its paragraph."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield " ".join(question["question"].split()), " ".join(paragraph["context"].split())


def write(path: Path, records: list[dict[str, Any]]) -> None:
    """Write json-lines."""
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    path.write_text("".join(lines), encoding="utf-8")


def main(train: Path, dev: Path, folder: Path) -> None:
    """Read both files and write the four."""
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "pairs.jsonl", [{"question": q, "paragraph": p} for q, p in questions(train)])
    judged = list(questions(dev))
    ids = {text: f"p{number}" for number, text in enumerate(dict.fromkeys(p for _, p in judged))}
    write(folder / "texts.jsonl", [{"id": id_, "text": text} for text, id_ in ids.items()])
    queries = [{"id": f"q{n}", "source": question} for n, (question, _) in enumerate(judged)]
    write(folder / "queries.jsonl", queries)
    lines = (f"q{n} 0 {ids[text]} 1\n" for n, (_, text) in enumerate(judged))
    (folder / "qrels.txt").write_text("".join(lines), encoding="utf-8")
    print(f"{len(judged):,} questions about {len(ids):,} paragraphs")


if __name__ == "__main__":
    main(*parse_arguments(__doc__, train=Path, dev=Path, folder=Path))
