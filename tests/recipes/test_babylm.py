"""recipes/babylm: the words that are taken, the bundled pairs, and the whole at a tiny size."""

import gzip
import json
import os
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


def test_a_tie_is_no_success_of_the_collator(tmp_path):
    pair = {"set": "a", "sentence_good": "He runs.", "sentence_bad": "He run."}
    scores = [(-1.0, -2.0), (-2.0, -1.0), (-1.0, -1.0)]
    lines = [json.dumps({**pair, "score_good": good, "score_bad": bad}) for good, bad in scores]
    (tmp_path / "scores").write_text(
        "\n".join([*lines, json.dumps({**pair, "set": "b"} | {"score_good": 0, "score_bad": -1})])
    )
    script = [sys.executable, str(RECIPE / "predictions.py"), "scores", "predictions.json"]
    folders = {"PYTHONPATH": os.pathsep.join([str(RECIPE.parent), str(RECIPE.parents[1])])}
    subprocess.run(script, cwd=tmp_path, env=os.environ | folders, check=True)
    found = json.loads((tmp_path / "predictions.json").read_text())
    assert found == {
        "a": {
            "predictions": [
                {"id": "a_0", "pred": "He runs."},
                {"id": "a_1", "pred": "He run."},
                {"id": "a_2", "pred": "He run."},
            ]
        },
        "b": {"predictions": [{"id": "b_0", "pred": "He runs."}]},
    }


@pytest.mark.slow
def test_a_track_from_text_to_an_entry(tmp_path):
    with gzip.open(RECIPE / "data" / "blimp.jsonl.gz", "rt") as file:
        pairs = list(file)
    (tmp_path / "all.jsonl").write_text("".join(pairs[::25]))
    (tmp_path / "fast.jsonl").write_text("".join(pairs[::50]))
    small = {"WORDS": "10k", "READ": "20k", "MARKS": "10k,20k", "VOCAB": "1000"}
    small |= {"ARCH": "qwen3_tiny", "BATCH_TOKENS": "2048", "MAX_TOKENS": "2048", "SEEDS": "1 2"}
    small |= {"PAIRS": str(tmp_path / "all.jsonl"), "FAST": str(tmp_path / "fast.jsonl")}
    small |= {"DATA": str(tmp_path / "none")}
    recipe("babylm", tmp_path, RUN="run", SETTING="strict-small", OMP_NUM_THREADS="1", **small)
    run = tmp_path / "run"
    tables = [json.loads((run / f"seed-{n}" / "table.json").read_text()) for n in (1, 2)]
    title = "BLiMP, causal"
    for i, row in enumerate(json.loads((run / "table.json").read_text())):
        assert row[title] == sum(one[i][title] for one in tables) / 2
    for seed in ("seed-1", "seed-2"):
        entry = run / seed / "entry"
        assert {path.name for path in entry.iterdir()} == {
            "chck_10k",
            "chck_20k",
            "main",
            "push.sh",
        }
        assert json.loads((entry / "main" / "config.json").read_text())["model_type"] == "qwen3"
        for name, part, count in (("main", "filtered", 2), ("chck_10k", "fast", 1)):
            folder = run / seed / f"results/entry/{name}/zero_shot/causal/blimp/blimp_{part}"
            found = json.loads((folder / "predictions.json").read_text())
            assert len(found) == 67
            assert {len(one["predictions"]) for one in found.values()} == {count}
            # the share of good sentences is the accuracy, where no pair is a tie
            scores = json.loads((folder / "scores.json").read_text())
            good = {json.loads(line)["sentence_good"] for line in pairs}
            chosen = [p["pred"] in good for one in found.values() for p in one["predictions"]]
            right = 100 * sum(chosen) / len(chosen) + 50 * scores["ties"] / len(chosen)
            assert abs(right - scores["mean_of_sets"]) < 1e-6


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
