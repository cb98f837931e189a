"""Labels from the states of a model that was trained on with texts of the domain."""

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import unitk

from .test_recipes import ROOT, recipe

DOMAIN = ROOT / "recipes" / "domain"


def run(script, *words):
    path = os.pathsep.join([str(ROOT), str(ROOT / "recipes")])
    command = [sys.executable, str(DOMAIN / script), *map(str, words)]
    environment = {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture
def report(monkeypatch):
    for folder in (ROOT / "recipes", DOMAIN):
        monkeypatch.syspath_prepend(str(folder))
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


def test_label_words_are_compared_with_what_is_usual(report):
    usual = np.array([-2.0, -9.0])  # the second label's words are rare after this prompt
    deviations = np.array([[1.0, -1.0], [-0.5, 0.5], [-0.25, 0.25], [-0.25, 0.25], [3.0, -3.0]])
    places, margins = report["guess"]((usual + deviations)[None], 4)
    assert places.tolist() == [0, 1, 1, 1, 0]
    assert margins / margins[1] == pytest.approx([2, 1, 0.5, 0.5, 6], abs=1e-5)
    # a prompt that says the same with other likelihoods changes nothing
    again = np.stack([usual + deviations, 7 + 10 * deviations])
    assert report["guess"](again, 4)[1] == pytest.approx(margins, abs=1e-5)


def test_guesses_are_learnt_where_no_label_is_told(report):
    rng = np.random.default_rng(0)
    labels = [str(one) for one in rng.integers(2, size=400)]
    told = np.array(labels, float)[:, None] + rng.normal(size=(400, 20))
    wrong = rng.random(400) < 0.2
    guesses = np.where(wrong, 1 - np.array(labels, int), np.array(labels, int)).astype(str)
    learn = report["by_guesses"](told, guesses, np.ones(400), labels, 200)
    right = report["accuracies"](learn, labels, 200, 5, 4).mean()
    by_five = report["accuracies"](report["by_states"](told, labels, 200), labels, 200, 5, 4)
    assert right > (~wrong).mean() and right > by_five.mean() + 0.1
    # a guess without a margin counts nothing, and labels that are told outweigh the guesses
    opposite = np.where(np.array(labels) == "0", "1", "0")
    nothing = report["by_guesses"](told, opposite, np.full(400, 1e-9), labels, 200)
    assert (nothing(np.arange(200)) == labels[200:]).mean() > 0.9
    outweighed = report["by_guesses"](told, opposite, np.ones(400), labels, 200)
    assert (outweighed(np.arange(100)) == labels[200:]).mean() > 0.9


def test_label_words_are_likelihoods_after_each_prompt(tmp_path):
    texts = ["a fine film", "rain"]
    for number, prompt in enumerate([" . It was", " . We were"], 1):
        lines = "".join(f"{text}{prompt}\n" for text in texts)
        (tmp_path / f"prompt{number}.txt").write_text(lines)
    words = "no: bad cold abracadabra|yes: good"
    done = run("label_words.py", tmp_path, "unitk-base-en", words, dest := tmp_path / "out.npy")
    assert done.returncode == 0, done.stderr
    assert "abracadabra" in done.stderr
    scores = np.load(dest)
    assert scores.shape == (2, 2, 2)
    model = unitk.load("unitk-base-en", task="lm")
    before = [f"{text} . We were" for text in texts]
    for label, among in enumerate((["bad", "cold"], ["good"])):
        wanted = np.mean(
            [[sum(each) for each in model.likelihood([word] * 2, before)] for word in among], 0
        )
        assert scores[1, :, label] == pytest.approx(wanted, rel=1e-4)


@pytest.mark.parametrize("words", ["good bad", "0: bad|1:", "0: bad|0: good", ""])
def test_words_without_their_labels_are_refused(tmp_path, words):
    done = run("label_words.py", tmp_path, "unitk-base-en", words, tmp_path / "out.npy")
    assert done.returncode == 1 and done.stderr.startswith('WORDS: write "LABEL: word')
    assert not (tmp_path / "out.npy").exists()


def test_a_label_without_words_is_named(report):
    assert report["read_words"]("0: bad|1: good", ["0", "0"]).tolist() == ["0", "1"]
    with pytest.raises(SystemExit, match="WORDS.*label 2"):
        report["read_words"]("0: bad|1: good", ["0", "2"])


@pytest.mark.slow
def test_made_up_reviews_make_a_table(tmp_path):
    sample = tmp_path / "sample"
    assert run("make_sample.py", sample).returncode == 0
    env = {"DATA": str(sample), "STEPS": "2", "TOKENS": "512", "LABELS": "20", "DRAWS": "3"}
    env["WORDS"] = "0: slow weak|1: bright warm"
    printed = recipe("domain", tmp_path, **env)
    rows = [line.strip("| ").split(" | ") for line in printed.splitlines() if " | " in line][-10:]
    assert [row[0] for row in rows] == [
        "the most frequent label",
        "TF-IDF, the best of nine settings",
        "the bundled model, mean state",
        "the bundled model, and prompts",
        "the bundled model, label words without labels",
        "the bundled model, prompts and label words",
        "trained on the texts, mean state",
        "trained on the texts, and prompts",
        "trained on the texts, label words without labels",
        "trained on the texts, prompts and label words",
    ]
    shares = [float(row[1].split(" ± ")[0]) for row in rows]
    assert shares[0] == 50
    learnt = [share for row, share in zip(rows, shares, strict=True) if "without" not in row[0]]
    assert min(learnt[1:]) > 60  # a word tells the label
    before = Path(tmp_path / "runs/domain/table.md").read_text()
    assert recipe("domain", tmp_path, **env).endswith(before)  # nothing is done again
