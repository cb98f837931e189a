"""Corpora of every kind are read as they were, and written byte by byte as they were.

`tests/fixtures/corpora` holds what `unitk preprocess` made of `sources/` when the fixtures were
added; `expected.json` has each one's fingerprint and all that was read from it. Its files are
written again only when a format changes, by this module (`python -m`), and the changelog says so.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from unitk.data.corpus.columns import WORDS
from unitk.data.corpus.folders import open_corpus
from unitk.verbs import merge, preprocess

OLD = Path(__file__).resolve().parents[2] / "fixtures" / "corpora"
FIELDS = "--source-field a --label-field y --labels"
TWO = "--source-field a,b --label-field y --labels"
RECIPES = {
    "text": "--input text.txt --annotate phrases=phrases.txt --languages 3",
    "pairs": "--input pairs.jsonl --source-field a,b --target-field t --languages 0,1",
    "lines": "--source-file source.txt --target-file target.txt",
    "class": f"--input class.jsonl {TWO} class",
    "number": f"--input number.jsonl {FIELDS} number",
    "tags": f"--input tags.jsonl {FIELDS} tags",
    "choice": f"--input choice.jsonl {TWO} choice",
    "span": f"--input span.jsonl {TWO} span",
    "links": f"--input links.jsonl {FIELDS} links",
    "fairseq_text": "--input text.txt --format fairseq",
    "fairseq_pairs": "--source-file source.txt --target-file target.txt --format fairseq",
}
"""Corpus -> the options it was made with."""
SHARDED = [name for name in RECIPES if not name.startswith("fairseq")]


def write(name: str, dest: Path, *more: str) -> None:
    """Make a corpus of the sources in the current folder."""
    vocab = [] if name.startswith("fairseq") else ["--vocab", "vocab.words", "--workers", "1"]
    preprocess.run([*RECIPES[name].split(), *vocab, "--dest", str(dest), *more])


def contents(path: Path) -> dict[str, object]:
    """All that is read from a corpus."""
    corpus = open_corpus(path)
    sides = [corpus.source, corpus.target] if corpus.kind == "pairs" else [corpus]
    for one in [corpus] if "files" in corpus.manifest else sides:
        one.verify()
    found: dict[str, object] = {
        "kind": corpus.kind,
        "fingerprint": corpus.fingerprint,
        "manifest": {k: v for k, v in corpus.manifest.items() if k != "files"},
        "counts": [vars(side.counts) for side in sides],
        "texts": [
            [[ids.tolist() for ids in side.document(i)] for i in range(len(side))] for side in sides
        ],
    }
    if sides[0].has(WORDS):
        found["words"] = [side.words.tolist() for side in sides]
    if (notes := sides[0].notes((0, sides[0].counts.tokens))) is not None:
        found["notes"] = notes.tolist()
    if corpus.kind != "text":
        found["leads to"] = [corpus.record(i)[1].tolist() for i in range(len(corpus))]
        found["labels"] = getattr(corpus, "labels", None)
    return found


def files(folder: Path) -> dict[str, bytes]:
    """Path -> content of all files below a folder."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def expected() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = json.loads((OLD / "expected.json").read_text())
    return found


@pytest.mark.parametrize("name", RECIPES)
def test_an_old_corpus_is_read_as_it_was(name, monkeypatch):
    monkeypatch.chdir(OLD)  # manifests of fairseq's data name the path that was given
    assert json.loads(json.dumps(contents(Path(name)))) == expected()[name]


@pytest.mark.parametrize("name", RECIPES)
def test_the_same_bytes_are_written(name, tmp_path, monkeypatch):
    monkeypatch.chdir(OLD / "sources")
    write(name, tmp_path / "new")
    assert files(tmp_path / "new") == files(OLD / name)


@pytest.mark.parametrize("name", SHARDED)
def test_shards_are_joined_to_the_same_bytes(name, tmp_path, monkeypatch):
    monkeypatch.chdir(OLD / "sources")
    shards = [str(tmp_path / str(i)) for i in range(2)]
    for i, shard in enumerate(shards):
        write(name, Path(shard), "--shard", f"{i}/2")
    merge.run([*shards, "--dest", str(tmp_path / "new")])
    assert files(tmp_path / "new") == files(OLD / name)


if __name__ == "__main__":
    os.chdir(OLD / "sources")
    for one in RECIPES:
        shutil.rmtree(OLD / one, ignore_errors=True)
        write(one, OLD / one)
    os.chdir(OLD)
    found = {one: contents(Path(one)) for one in RECIPES}
    (OLD / "expected.json").write_text(json.dumps(found, indent=1) + "\n")
