"""The bundled sample is what its README says."""

from __future__ import annotations

import gzip
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "quickstart"
README = (RECIPE / "data" / "README.md").read_text()


def read(path: Path) -> str:
    return gzip.decompress(path.read_bytes()).decode()


def documents(split):
    text = read(RECIPE / "data" / "openstax-ccby" / f"openstax.{split}.jsonl.gz")
    return [json.loads(line) for line in text.removesuffix("\n").split("\n")]


def articles(split):
    return json.loads(read(RECIPE / "data" / "squad-v1.1-nqg-split" / f"{split}.json.gz"))["data"]


def counts(name):
    """The figures of a table row of the README."""
    row = re.search(rf"^\| `{re.escape(name)}` \| (.*) \|$", README, re.M)[1]
    return [float(cell.split()[0].replace(",", "")) for cell in row.split(" | ")]


def test_documents():
    train, valid = documents("train"), documents("valid")
    assert not {d["id"] for d in train} & {d["id"] for d in valid}
    assert len({d["book"] for d in train}) == 20
    for split, found in (("train", train), ("valid", valid)):
        size = sum(len(d["text"].encode()) for d in found)
        assert counts(f"openstax.{split}.jsonl.gz") == [len(found), round(size / 1e6, 2)]
        assert all(d["text"].strip() for d in found)


@pytest.mark.parametrize("split", ["train", "dev", "test"])
def test_every_answer_is_in_its_passage(split):
    found = articles(split)
    paragraphs = [p for article in found for p in article["paragraphs"]]
    questions = [(p["context"], q) for p in paragraphs for q in p["qas"]]
    assert counts(f"{split}.json.gz") == [len(found), len(paragraphs), len(questions)]
    assert len({q["id"] for _, q in questions}) == len(questions)
    for context, question in questions:
        assert question["question"].strip() and question["answers"]
        for answer in question["answers"]:
            start, text = answer["answer_start"], answer["text"]
            assert text and context[start : start + len(text)] == text


def test_articles_are_kept_apart():
    titles = [article["title"] for split in ("train", "dev", "test") for article in articles(split)]
    assert len(set(titles)) == len(titles)


def test_every_book_is_attributed():
    for split, column in (("train", 1), ("valid", 2)):
        found = [d["book"] for d in documents(split)]
        for book in set(found):
            row = re.search(rf"`osbooks-{book}` \| [0-9a-f]{{40}} \| (\d+) \| (\d+) \|", README)
            assert int(row[column]) == found.count(book)


@pytest.mark.slow
def test_the_script_makes_the_sample(shared_data, tmp_path):
    openstax, squad = shared_data("openstax-ccby"), shared_data("squad-v1.1-nqg-split")
    script = [sys.executable, RECIPE / "make_sample.py", "--dest", tmp_path]
    subprocess.run([*script, "--openstax", openstax, "--squad", squad], check=True)
    made = sorted(path.relative_to(tmp_path) for path in tmp_path.glob("*/*.gz"))
    assert len(made) == 5
    for name in made:
        assert read(tmp_path / name) == read(RECIPE / "data" / name)
