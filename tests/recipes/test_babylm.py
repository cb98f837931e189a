"""recipes/babylm: the words that are taken, the bundled pairs, and the whole at a tiny size."""

import gzip
import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from .test_recipes import recipe

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "babylm"


def take(folder, words, *texts):
    script = [sys.executable, str(RECIPE / "take.py"), "--words", words, "--dest", "words.txt"]
    done = subprocess.run([*script, "--texts", *texts], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return (folder / "words.txt").read_text(), done.stderr


def test_words_are_taken_until_the_count_is_reached(tmp_path):
    documents = [f"The {i}th one. It has seven words." for i in range(100)]
    lines = [json.dumps({"text": text}) for text in documents]
    (tmp_path / "a.jsonl").write_text("\n".join(lines[:60]))
    with gzip.open(tmp_path / "b.jsonl.gz", "wt") as file:
        file.write("\n".join(lines[60:]))
    found, said = take(tmp_path, "0.1k", "*.jsonl", "b.jsonl.gz")
    # 14 documents of 7 words, and the first sentence of another
    assert len(found.split()) == 101 and not said
    assert found.replace("\n\n", "\n").replace(".\nIt", ". It").count("It has") == 14
    taken = [one.replace("\n", " ").strip() for one in found.split("\n\n") if one]
    assert set(taken[:14]) <= set(documents) and len(set(taken)) == 15
    everything, said = take(tmp_path, "1M", "a.jsonl", "b.jsonl.gz")
    assert len(everything.split()) == 700 and "the texts have 700 words only" in said


def test_the_bundled_pairs_are_fifty_of_each_set():
    with gzip.open(RECIPE / "data" / "blimp.jsonl.gz", "rt") as file:
        pairs = [json.loads(line) for line in file]
    assert set(Counter(pair["UID"] for pair in pairs).values()) == {50} and len(pairs) == 3350
    assert f"{len(pairs):,} minimal pairs" in (RECIPE / "data" / "README.md").read_text()
    assert len({pair["linguistics_term"] for pair in pairs}) == 13


@pytest.mark.slow
def test_from_text_to_the_curve_and_on_after_a_stop(tmp_path):
    with gzip.open(RECIPE / "data" / "blimp.jsonl.gz", "rt") as file:
        (tmp_path / "few.jsonl").write_text("".join(list(file)[::50]))
    small = {"WORDS": "10k", "READ": "20k", "MARKS": "10k,20k", "VOCAB": "1000"}
    small |= {
        "SETTING": "tiny",
        "DATA": str(tmp_path / "none"),
        "PAIRS": str(tmp_path / "few.jsonl"),
    }
    printed = recipe("babylm", tmp_path, RUN="run", JUDGES="lm mlm", OMP_NUM_THREADS="1", **small)
    rows = [line for line in printed.splitlines() if line.startswith("| ")]
    assert len(rows) == 4 and "BLiMP, causal" in rows[0] and "BLiMP, masked" in rows[0]
    assert (tmp_path / "run" / "curve.png").read_bytes().startswith(b"\x89PNG")
    table = json.loads((tmp_path / "run" / "table.json").read_text())
    # stopped after the first count of words, of which everything was judged
    shutil.rmtree(tmp_path / "bin")
    for path in [*(tmp_path / "run" / "blimp").glob("words_20k*"), tmp_path / "run" / ".train"]:
        path.unlink()
    train = tmp_path / "run" / "train"
    for step in (train / "checkpoints").iterdir():
        if step != (train / "words_10k").resolve():
            shutil.rmtree(step)
    recipe("babylm", tmp_path, RUN="run", JUDGES="lm mlm", OMP_NUM_THREADS="1", **small)
    assert json.loads((tmp_path / "run" / "table.json").read_text()) == table
