"""Labels from the states of a model that was trained on with texts of the domain."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from .test_recipes import ROOT, recipe

DOMAIN = ROOT / "recipes" / "domain"


def run(script, *words):
    path = os.pathsep.join([str(ROOT), str(ROOT / "recipes")])
    command = [sys.executable, str(DOMAIN / script), *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture
def report(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    return runpy.run_path(str(DOMAIN / "report.py"))


def test_films_are_collected_without_their_labels(tmp_path):
    files = {
        "imdb/train.jsonl": '{"text": "1\u20282", "label": 1}\n{"text": "two", "label": 0}\n',
        "nlu-small/sent-conv/stsa.binary.train": "1 a fine film\n0 a dull one\n",
        "nlu-small/sst2/train.tsv": 'sentence\tlabel\na "fine film\t1\ndull \t0\n',
        "nlu-small/sst2/dev.tsv": "sentence\tlabel\nwarm\t1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    done = run("collect.py", tmp_path, dest := tmp_path / "made")
    assert done.returncode == 0, done.stderr
    texts = [json.loads(line) for line in (dest / "texts.jsonl").read_text().splitlines()]
    wanted = ["1\u20282", "two", "a fine film", "a dull one"]
    assert texts == [{"text": text} for text in wanted]
    head, *rows = (dest / "train.tsv").read_text().splitlines()
    assert (head, sorted(rows)) == ("sentence\tlabel", ['a "fine film\t1', "dull\t0"])
    assert (dest / "test.tsv").read_text() == "sentence\tlabel\nwarm\t1\n"


def test_prompts_come_after_the_texts_in_their_order(tmp_path):
    lines = "".join(json.dumps({"text": f"text {i}"}) + "\n" for i in range(250))
    (tmp_path / "texts.jsonl").write_text(lines)
    (tmp_path / "train.tsv").write_text("sentence\tlabel\nfine \tyes\ndull\tno\n")
    (tmp_path / "test.tsv").write_text("sentence\tlabel\nwarm\tyes\n")
    done = run("prompts.py", tmp_path, dest := tmp_path / "made", " . It is", " . We were")
    assert done.returncode == 0, done.stderr
    read = {path.name: path.read_text().splitlines() for path in dest.iterdir()}
    assert read["plain.txt"] == ["fine", "dull", "warm"]
    assert read["prompt1.txt"] == ["fine . It is", "dull . It is", "warm . It is"]
    assert read["prompt2.txt"][2] == "warm . We were"
    held = [json.loads(line)["text"] for line in read["valid.jsonl"]]
    kept = [json.loads(line)["text"] for line in read["texts.jsonl"]]
    assert held == ["text 0", "text 100", "text 200"] and len(kept) == 247
    assert not {*held} & {*kept}
    labels = json.loads((dest / "labels.json").read_text())
    assert labels == {"train": ["yes", "no"], "test": ["yes"]}


def test_what_is_missing_is_named(tmp_path):
    (tmp_path / "texts.jsonl").write_text('{"text": "a"}\n')
    done = run("prompts.py", tmp_path, tmp_path / "made")
    assert done.returncode == 1 and f"{tmp_path}/train.tsv (or .gz)" in done.stderr
    assert not (tmp_path / "made").exists()


def test_labels_that_states_hold_are_learnt_and_others_are_not(report):
    rng = np.random.default_rng(0)
    labels = [str(one) for one in rng.integers(2, size=240)]
    told = np.array(labels, float)[:, None] + 0.1 * rng.normal(size=(240, 400))
    noise = rng.normal(size=(240, 400))
    shares = [
        report["accuracies"](report["by_states"](states, labels, 200), labels, 200, 40, 6)
        for states in (told, noise)
    ]
    assert shares[0].tolist() == [1.0] * 6
    # 240 tosses of a coin stay within five standard deviations of a half
    assert abs(shares[1].mean() - 0.5) < 5 * 0.5 / np.sqrt(240)


def test_labels_are_learnt_from_training_texts_alone(report):
    seen = []

    def learn(places):
        seen.append(places)
        return np.array(["a"] * 4)

    shares = report["accuracies"](learn, ["b"] * 9 + ["a", "a", "a", "b"], 9, 5, 3)
    assert shares.tolist() == [0.75] * 3
    assert all(len({*places}) == 5 and places.max() < 9 for places in seen)
    assert len({tuple(places) for places in seen}) == 3


@pytest.mark.slow
def test_made_up_reviews_make_a_table(tmp_path):
    sample = tmp_path / "sample"
    assert run("make_sample.py", sample).returncode == 0
    env = {"DATA": str(sample), "STEPS": "2", "TOKENS": "512", "LABELS": "20", "DRAWS": "3"}
    printed = recipe("domain", tmp_path, **env)
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines() if " | " in line][-6:]
    assert [row[0] for row in rows] == [
        "the most frequent label",
        "TF-IDF, the best of nine settings",
        "the bundled model, mean state",
        "the bundled model, and prompts",
        "trained on the texts, mean state",
        "trained on the texts, and prompts",
    ]
    shares = [float(row[1].split(" ± ")[0]) for row in rows]
    assert shares[0] == 50 and min(shares[1:]) > 60  # a word tells the label
    before = Path(tmp_path / "runs/domain/table.md").read_text()
    assert recipe("domain", tmp_path, **env).endswith(before)  # nothing is done again
