"""IMDb and TREC are read from the files of their authors and others; every row is judged."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from .test_recipes import SCRIPTS, recipe

ULMFIT = Path(__file__).resolve().parents[2] / "recipes" / "ulmfit"


def collected(folder, *sets, labels=4, unlabelled=6, test=3, words=2):
    command = [sys.executable, str(ULMFIT / "collect.py"), str(folder), str(folder / "made"), *sets]
    command += [f"--labels={labels}", f"--unlabelled={unlabelled}", f"--test={test}"]
    return subprocess.run(
        [*command, f"--words={words}"], capture_output=True, text=True, env=SCRIPTS
    )


def made(folder, name):
    return [json.loads(line) for line in (folder / "made" / name).read_text().splitlines()]


def reviews(folder, published):
    """Reviews that name their number and their label, as in the archive or as json-lines."""
    for part in ("train", "test"):
        texts = [(f"{part} {i} it is<br />so <b>{i % 2}", i % 2) for i in range(10)]
        if published:
            for number, (text, label) in enumerate(texts):
                path = folder / "aclImdb" / part / ("neg", "pos")[label] / f"{number}_1.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
        else:
            lines = [json.dumps({"text": text, "label": label}) for text, label in texts]
            (folder / "imdb").mkdir(exist_ok=True)
            packed = gzip.compress("\n".join(lines).replace("<br />", "\\n").encode())
            (folder / "imdb" / f"{part}.jsonl.gz").write_bytes(packed)


@pytest.mark.parametrize("published", [True, False])
def test_reviews(tmp_path, published):
    reviews(tmp_path, published)
    done = collected(tmp_path, "imdb")
    assert done.returncode == 0, done.stderr
    sizes = {"train": 4, "valid": 2, "test": 3}
    for part, size in sizes.items():
        rows = made(tmp_path, f"imdb.{part}.jsonl")
        assert len(rows) == size
        for row in rows:  # the last two words, and their label
            word, label = row["text"].split()
            assert word == "so" and ("negative", "positive")[int(label[3:])] == row["label"]
    whole = {
        name: (tmp_path / "made" / f"imdb.{name}.txt").read_text().splitlines()
        for name in ("texts", "heldout")
    }
    assert {name: len(lines) for name, lines in whole.items()} == {"texts": 6, "heldout": 2}
    assert all(line.startswith("train") and line[8:13] == "it is" for line in whole["texts"])
    assert not {*whole["texts"]} & {*whole["heldout"]}


@pytest.mark.parametrize(
    "names", [("train_5500.label", "TREC_10.label"), ("TREC.train.raw.gz", "TREC.test.raw.gz")]
)
def test_questions(tmp_path, names):
    folder = tmp_path if names[0].endswith("label") else tmp_path / "nlu-small" / "sent-conv"
    folder.mkdir(parents=True, exist_ok=True)
    text = "".join(f"LOC:city Where is {i} caf\xe9 ?\n" for i in range(10)).encode("latin-1")
    for name in names:
        packed = gzip.compress(text) if name.endswith("gz") else text
        (folder / name).write_bytes(packed)
    done = collected(tmp_path, "trec")
    assert done.returncode == 0, done.stderr
    rows = made(tmp_path, "trec.train.jsonl")
    assert len(rows) == 4 and {row["label"] for row in rows} == {"LOC"}
    assert all(row["text"] == "caf\xe9 ?" for row in rows)


def test_what_is_missing_is_named(tmp_path):
    done = collected(tmp_path, "imdb")
    assert done.returncode == 1 and f"DATA has none of {tmp_path}/imdb/train.jsonl" in done.stderr
    done = collected(tmp_path, "trec")
    assert done.returncode == 1 and f"{tmp_path}/trec/train_5500.label" in done.stderr


@pytest.mark.slow
def test_every_row_is_judged(tmp_path):
    folder = tmp_path / "sets"
    subprocess.run([sys.executable, str(ULMFIT / "make_sample.py"), str(folder)], check=True)
    few = {"GENERAL_STEPS": "4", "TARGET_STEPS": "4", "FINETUNE_STEPS": "8", "VOCAB": "1200"}
    few["ROWS"] = "scratch no-target no-thaw full siatl backward both"
    few |= {"LABELS": "40", "TEST": "40", "UNLABELLED": "200", "SETS": "trec"}
    printed = recipe("ulmfit", tmp_path, DATA=str(folder), RUN=str(tmp_path / "run"), **few)
    lines = printed.strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    names = few["ROWS"].split()
    assert rows[0] == ["accuracy", "trec"]
    assert [row[0] for row in rows[2:]] == ["majority class", *names]
    assert all(0 <= float(cell) <= 100 for row in rows[2:] for cell in row[1:])
    told = [line.partition(":")[0] for line in lines[-4:]]
    assert told == ["general", "general.backward", "trec.lm", "trec.lm.backward"]
