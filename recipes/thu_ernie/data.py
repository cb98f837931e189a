"""Texts for THU-ERNIE: linked records, vectors and names of entities, marked relations.

    python data.py wiki LINKED.jsonl.gz FOLDER [VECTORS]
                                                   train.jsonl, valid.jsonl, vectors.txt, names.tsv
    python data.py fewrel FEWREL.json.gz FOLDER    relations.{train,valid}.jsonl; more names.tsv

A line of LINKED is an article: sentences with tokens (WordPieces) and entities [start, stop, id].
Each tenth record is validated on. FEWREL has relations with sentences, heads and tails.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from shared import open_packed

WORDS = 90  # of a record
SIDE = 100  # numbers of a vector
MARKS = "#", "$"
"""Around a head and a tail, as in the official code."""


def read(path: Path) -> Any:
    """A json file that may be compressed."""
    with open_packed(path) as file:
        return json.load(file) if ".json." in f"{path}." else [*map(json.loads, file)]


def spelled(sentence: dict[str, Any]) -> tuple[str, list[tuple[int, int, str]]]:
    """The text of WordPieces, and its links as places of characters."""
    text, begins, ends = "", [], []
    for token in sentence["tokens"]:
        if not token.startswith("##"):
            text += " " * bool(text)
        begins.append(len(text))
        text += token.removeprefix("##")
        ends.append(len(text))
    return text, [(begins[a], ends[b - 1], entity) for a, b, entity in sentence["entities"]]


def records(article: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Consecutive sentences of an article, of no more than `WORDS` words where they can be cut."""
    text, links = "", list[tuple[int, int, str]]()
    for sentence in article["sentences"]:
        own, more = spelled(sentence)
        if text and len(text.split()) + len(own.split()) > WORDS:
            yield {"text": text, "links": links}
            text, links = "", []
        at = len(text) + bool(text)
        text += " " * bool(text) + own
        links = [*links, *((at + a, at + b, entity) for a, b, entity in more)]
    if text:
        yield {"text": text, "links": links}


def vectors(rows: list[dict[str, Any]]) -> tuple[list[str], np.ndarray]:
    """Vectors of the entities that occur twice: the largest singular vectors of their positive
    pointwise mutual information within records (Levy and Goldberg 2014). Stands for TransE."""
    entities_of = [sorted({entity for *_, entity in row["links"]}) for row in rows]
    counts = Counter(entity for own in entities_of for entity in own)
    names = sorted(name for name, count in counts.items() if count > 1)
    number = {name: i for i, name in enumerate(names)}
    table = np.zeros((len(names), len(names)), np.float32)
    for own in entities_of:
        known = [number[entity] for entity in own if entity in number]
        table[known, known] += 1
        for a, b in combinations(known, 2):
            table[[a, b], [b, a]] += 1
    total, side = table.sum(), table.sum(1)
    with np.errstate(divide="ignore"):
        table = np.maximum(np.log(table * total / np.outer(side, side)), 0)
    # randomized: a few products with the table instead of all of its singular vectors
    sketch = table @ np.random.default_rng(1).normal(size=(len(names), 2 * SIDE))
    for _ in range(4):
        sketch = table @ np.linalg.qr(table.T @ sketch)[0]
    basis = np.linalg.qr(sketch)[0]
    left, size, _ = np.linalg.svd(basis.T @ table, full_matrices=False)
    factors = (basis @ left[:, :SIDE]) * size[:SIDE] ** 0.5
    factors = np.pad(factors, ((0, 0), (0, SIDE - factors.shape[1])))
    return names, factors / (np.linalg.norm(factors, axis=1, keepdims=True) + 1e-6)


def write(path: Path, rows: list[Any]) -> None:
    """Write records, one a line."""
    lines = (json.dumps(row, ensure_ascii=False) for row in rows)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_vectors(path: Path) -> tuple[list[str], np.ndarray]:
    """The vectors of a file."""
    rows = [line.split() for line in path.read_text().splitlines()]
    rows = [row for row in rows if len(row) > 2]
    return [row[0] for row in rows], np.array([row[1:] for row in rows], float)


def wiki(path: Path, folder: Path, vector_file: Path | None = None) -> None:
    """Linked records, vectors, and names."""
    parts = {"train": [], "valid": []}
    for number, record in enumerate(
        record_read for article in read(path) for record_read in records(article)
    ):
        parts["valid" if number % 10 == 9 else "train"].append(record)
    names, table = read_vectors(vector_file) if vector_file else vectors(parts["train"])
    known = {*names}
    for name, rows in parts.items():
        for row in rows:  # others have no vector
            row["links"] = [link for link in row["links"] if link[2] in known]
        write(folder / f"{name}.jsonl", rows)
    lines = (
        f"{n} {' '.join(f'{x:.4f}' for x in row)}\n" for n, row in zip(names, table, strict=True)
    )
    (folder / "vectors.txt").write_text("".join(lines))
    spelt = Counter(
        (row["text"][a:b], entity) for row in parts["train"] for a, b, entity in row["links"]
    )
    # the entity that a name stands for most often comes first, and is linked
    lines = (f"{text}\t{entity}\n" for (text, entity), _ in spelt.most_common())
    (folder / "names.tsv").write_text("".join(lines), encoding="utf-8")
    print(f"{len(parts['train'])} + {len(parts['valid'])} records, {len(names)} entities")


def fewrel(path: Path, folder: Path) -> None:
    """Relations with marked heads and tails; their names are added to names.tsv."""
    known = {line.split()[0] for line in (folder / "vectors.txt").read_text().splitlines()}
    rows, names, linked = [], dict[str, None](), 0
    for relation, instances in sorted(read(path).items()):
        for number, instance in enumerate(instances):
            words = [word.lower() for word in instance["tokens"]]
            for side, mark in zip(("h", "t"), MARKS, strict=True):
                _, entity, (places, *_) = instance[side]
                if entity in known:
                    names[
                        f"{' '.join(words[places[0] : places[-1] + 1]).strip(' #$')}\t{entity}"
                    ] = None
                    linked += 1
                words[places[0]] = f"{mark} {words[places[0]]}"
                words[places[-1]] += f" {mark}"
            text = " ".join(" ".join(words).split())
            rows.append((number, {"text": text, "label": relation}))
    write(folder / "relations.train.jsonl", [row for number, row in rows if number % 5 < 4])
    write(folder / "relations.valid.jsonl", [row for number, row in rows if number % 5 == 4])
    with (folder / "names.tsv").open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in names)
    print(f"{len(rows)} relations; {linked} of {2 * len(rows)} heads and tails have a vector")


if __name__ == "__main__":
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("what", choices=("wiki", "fewrel"))
    parser.add_argument("paths", metavar="PATH", type=Path, nargs="+")
    given = parser.parse_args()
    given.paths[1].mkdir(parents=True, exist_ok=True)
    {"wiki": wiki, "fewrel": fewrel}[given.what](*given.paths)
