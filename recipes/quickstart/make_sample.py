"""Make the bundled sample from the full sets; the same input gives the same sample.

    python make_sample.py --openstax DIR --squad DIR

Documents and paragraphs are taken whole, in the order of a hash of their name, so that all books
and nearly all articles are represented. Folders and files are named as in the full sets: a recipe
changes one path.
"""

import argparse
import gzip
import hashlib
import json
from collections import defaultdict
from pathlib import Path

TEXT_BYTES = {"train": 1_900_000, "valid": 100_000}
QUESTIONS = {"train": 12_000, "dev": 500, "test": 500}


def shuffled(names):
    """The names in an order that has nothing to do with their meaning, the same everywhere."""
    return sorted(names, key=lambda name: hashlib.md5(name.encode()).digest())


def sample_documents(lines, size):
    """Whole documents, one of each book in turn, until their text has `size` bytes."""
    line_of, books = {}, defaultdict(list)
    for line in lines:
        document = json.loads(line)
        line_of[document["id"]] = line
        books[document["book"]].append(document["id"])
    turns = [(turn, id) for ids in books.values() for turn, id in enumerate(shuffled(ids))]
    taken = set()
    for _, id in sorted(turns):
        if size <= 0:
            break
        size -= len(json.loads(line_of[id])["text"].encode())
        taken.add(id)
    return [line for id, line in line_of.items() if id in taken]


def sample_questions(squad, count):
    """Whole paragraphs that have `count` questions together."""
    sizes = {
        f"{article['title']}/{number}": len(paragraph["qas"])
        for article in squad["data"]
        for number, paragraph in enumerate(article["paragraphs"])
    }
    taken = set()
    for name in shuffled(sizes):
        if sizes[name] <= count:
            count -= sizes[name]
            taken.add(name)
    articles = [
        {
            "title": article["title"],
            "paragraphs": [
                paragraph
                for number, paragraph in enumerate(article["paragraphs"])
                if f"{article['title']}/{number}" in taken
            ],
        }
        for article in squad["data"]
    ]
    data = [article for article in articles if article["paragraphs"]]
    return {"version": squad["version"], "data": data}


def read(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return file.read()


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--openstax", type=Path, required=True, help="openstax.train.jsonl.gz, ...")
    parser.add_argument("--squad", type=Path, required=True, help="train.json.gz, ...")
    parser.add_argument("--dest", type=Path, default=Path(__file__).parent / "data")
    args = parser.parse_args()
    for split, size in TEXT_BYTES.items():
        name = f"openstax.{split}.jsonl.gz"
        lines = sample_documents(read(args.openstax / name).removesuffix("\n").split("\n"), size)
        write(args.dest / "openstax-ccby" / name, "".join(line + "\n" for line in lines))
        texts = [json.loads(line)["text"] for line in lines]
        print(f"{name}: {len(texts)} documents, {sum(map(len, map(str.encode, texts))):,} bytes")
    for split, count in QUESTIONS.items():
        name = f"{split}.json.gz"
        squad = sample_questions(json.loads(read(args.squad / name)), count)
        write(args.dest / "squad-v1.1-nqg-split" / name, json.dumps(squad, ensure_ascii=False))
        paragraphs = [p for article in squad["data"] for p in article["paragraphs"]]
        print(
            f"{name}: {len(squad['data'])} articles, {len(paragraphs)} paragraphs,"
            f" {sum(len(p['qas']) for p in paragraphs)} questions"
        )


if __name__ == "__main__":
    main()
