"""Search by words, exactly: `lexical.py bm25|tfidf DIR OUTPUT` writes a TREC run of 100 texts.

    bm25    Robertson and Zaragoza 2009, k1 1.2 and b 0.75; idf = log(1 + (N - n + .5) / (n + .5))
    tfidf   the cosine of (1 + log tf) * log(N / n), as SMART's ltc

Words are runs of letters and digits in lower case; none is left out or stemmed.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from pathlib import Path

from shared import parse_arguments, read_jsonl

K1, B, MOST = 1.2, 0.75, 100
Postings = dict[str, list[tuple[int, float]]]


def words(text: str) -> Counter[str]:
    """How often each word of a text occurs."""
    return Counter(re.findall(r"\w+", text.lower()))


def bm25(texts: list[Counter[str]]) -> Postings:
    """Word -> the texts that have it, with what the word adds to their scores."""
    count, lengths = len(texts), [text.total() for text in texts]
    mean = sum(lengths) / count
    has = Counter(word for text in texts for word in text)
    postings: Postings = defaultdict(list)
    for number, text in enumerate(texts):
        norm = K1 * (1 - B + B * lengths[number] / mean)
        for word, n in text.items():
            idf = math.log(1 + (count - has[word] + 0.5) / (has[word] + 0.5))
            postings[word].append((number, idf * n * (K1 + 1) / (n + norm)))
    return postings


def tfidf(texts: list[Counter[str]]) -> Postings:
    """The same for cosines; the length of the query changes no order."""
    has = Counter(word for text in texts for word in text)
    idf = {word: math.log(len(texts) / n) for word, n in has.items()}
    postings: Postings = defaultdict(list)
    for number, text in enumerate(texts):
        weights = {word: (1 + math.log(n)) * idf[word] for word, n in text.items()}
        length = math.sqrt(sum(weight**2 for weight in weights.values())) or 1.0
        for word, weight in weights.items():
            postings[word].append((number, idf[word] * weight / length))
    return postings


def search(query: Counter[str], postings: Postings, how: str) -> list[tuple[int, float]]:
    """The texts with the largest scores; of equal ones, the first."""
    scores: dict[int, float] = defaultdict(float)
    for word, n in query.items():
        times = n if how == "bm25" else 1 + math.log(n)
        for number, score in postings.get(word, ()):
            scores[number] += times * score
    return sorted(scores.items(), key=lambda entry: (-entry[1], entry[0]))[:MOST]


def main(how: str, folder: Path, output: Path) -> None:
    """Index the texts and search for each query."""
    texts, queries = (read_jsonl(folder / f"{name}.jsonl") for name in ("texts", "queries"))
    postings = {"bm25": bm25, "tfidf": tfidf}[how]([words(record["text"]) for record in texts])
    lines = [
        f"{query['id']} Q0 {texts[number]['id']} {rank} {score:.6f} {how}\n"
        for query in queries
        for rank, (number, score) in enumerate(search(words(query["source"]), postings, how), 1)
    ]
    output.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main(*parse_arguments(__doc__, how=str, folder=Path, output=Path))
