"""recipes/compare: the questions taken, noise and verdicts, and the whole at a tiny size."""

import gzip
import importlib.util
import json
import math
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from unitk.evaluation.pairs import read_pairs
from unitk.pretrained import FOLDER
from unitk.vocab.base import Vocab

from .test_recipes import recipe

RECIPES = Path(__file__).resolve().parents[2] / "recipes"


@pytest.fixture
def report(monkeypatch):
    """The module recipes/compare/report.py."""
    monkeypatch.syspath_prepend(str(RECIPES))
    spec = importlib.util.spec_from_file_location("compare", RECIPES / "compare" / "report.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_questions_are_taken_from_all_over(tmp_path):
    entries = [{"id": str(i), "question": f"{i}?", "answers": []} for i in range(30)]
    paragraphs = [{"context": f"c{i}", "qas": entries[i : i + 3]} for i in range(0, 30, 3)]
    data = [
        {"title": "a", "paragraphs": paragraphs[:4]},
        {"title": "b", "paragraphs": paragraphs[4:]},
    ]
    with gzip.open(tmp_path / "squad.json.gz", "wt") as file:
        json.dump({"version": "1.1", "data": data}, file)

    def taken(count):
        command = [sys.executable, str(RECIPES / "compare" / "take.py"), "--squad", "squad.json.gz"]
        command += ["--questions", str(count), "--dest", "few.json"]
        subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
        found = json.loads((tmp_path / "few.json").read_text())["data"]
        parts = [part for article in found for part in article["paragraphs"]]
        assert all(part["qas"] for part in parts)
        return [int(entry["id"]) for part in parts for entry in part["qas"]]

    assert taken(10) == [*range(2, 30, 3)]
    assert taken(5) == [*range(5, 30, 6)]
    assert taken(20) == [i for i in range(30) if i % 3]
    assert taken(99) == [*range(30)]


def test_noise_is_pooled_over_objectives_with_seeds(report):
    rows = {f"lm-{seed}": {"BLiMP": value} for seed, value in ((1, 60.0), (2, 62.0), (3, 64.0))}
    rows |= {"glm_infill-1": {"BLiMP": 50.0}, "glm_infill-2": {"BLiMP": 51.0}}
    rows |= {"mlm-1": {"BLiMP": 99.0, "LAMBADA": 1.0}}
    # variances 4 with two degrees of freedom and 1/2 with one
    assert report.noise(report.by_objective(rows)) == {
        "BLiMP": pytest.approx(math.sqrt((4 + 4 + 0.5) / 3))
    }
    assert report.noise(report.by_objective({"lm-1": {"BLiMP": 1.0}})) == {}


def test_intervals_are_over_seeds_and_items(report):
    """The mean counts each set once; a difference on the same items is narrower than the means."""
    rng = np.random.default_rng(0)
    hard, weights = rng.normal(60, 20, 200), np.ones(200)
    sets = np.array([0.0, 0, 90]), 1 / np.array([2, 2, 1])
    each = {
        "lm-1": {"R-1": (hard, weights)},
        "lm-2": {"R-1": (hard + 1, weights)},
        "mlm-1": {"R-1": (hard - 5, weights), "BLiMP": sets},
        "scratch.unilm-1": {"R-1": (hard - 20, weights)},
    }
    found = report.intervals(each)
    lm, mlm = found["lm"]["R-1"], found["mlm"]["R-1"]
    assert lm["mean"]["value"] == pytest.approx(hard.mean() + 0.5) and lm["mean"]["seeds"] == 2
    apart = mlm["minus lm"]
    assert apart["value"] == pytest.approx(-5.5) and -6.1 < apart["low"] < apart["high"] < -4.9
    assert mlm["mean"]["high"] - mlm["mean"]["low"] > 2
    assert mlm["minus scratch"]["value"] == pytest.approx(15) and "minus scratch" not in lm
    assert found["mlm"]["BLiMP"]["mean"]["value"] == pytest.approx(45)
    lines = report.interval_table(found)
    assert "| `lm` | R-1 | 2 |" in lines and "minus lm: -5.5 [" in lines


def test_longer_rows_are_beside_those_of_equal_texts(report):
    """The best one is sought among equal texts, and a longer row is compared with its shorter."""
    scores = {"lm-1": 50.0, "mlm-1": 40.0, "mlm@labels-1": 60.0, "scratch.unilm-1": 10.0}
    each = {name: {"R-1": (np.full(4, one), np.ones(4))} for name, one in scores.items()}
    found = report.intervals(each)["mlm@labels"]["R-1"]
    apart = {what: one["value"] for what, one in found.items()}
    assert apart == {"mean": 60, "minus lm": 10, "minus mlm": 20, "minus scratch": 50}
    rows = {"mlm@labels-1": {"QG loss": 4.0}, "scratch.unilm-1": {"QG loss": 5.0}}
    [said] = report.verdicts(report.by_objective(rows), {}, {})
    assert "by 1.000" in said


def test_what_pretraining_had_is_a_table(report, tmp_path):
    """Counts of an update times the updates, beside those of `lm`; what is held equal is bold."""
    counts = {"tokens": 1e6, "slots": 1.5e6, "labels": 1e6, "computing": 2e12}
    (tmp_path / "counts").mkdir()
    for name, share in (("lm", 1.0), ("mlm", 0.25)):
        own = counts | {"labels": share * 1e6, "computing": 1.5 * share * 1e12}
        (tmp_path / "counts" / f"{name}.json").write_text(json.dumps(own))
    for name, updates in (("lm-1", 10), ("lm-2", 11), ("mlm@labels-1", 40)):
        place = tmp_path / "rows" / name / "pretrain"
        place.mkdir(parents=True)
        (place.parent / ".pretrain").touch()
        (place / "log.jsonl").write_text(json.dumps({"kind": "train", "step": updates}) + "\n")
    found = report.held_equal(tmp_path, ["lm-1", "lm-2", "mlm@labels-1", "mlm-1"])
    assert {name: one["updates"] for name, one in found.items()} == {"lm": 10, "mlm@labels": 40}
    cells = report.equal_table(found).splitlines()[3]
    assert cells == (
        "| `mlm@labels` | 40 | 40 (4.00) | 60 (4.00) | 1.50 | **10 (1.00)** | 0.25 | 15 (1.00) |"
    )


@pytest.mark.parametrize("row", ["lm", "lm@label-1", "scratch.mlm@labels-1", "scratch.hybrid-1"])
def test_a_row_that_there_is_not_is_refused_first(tmp_path, row):
    (tmp_path / "unitk").write_text("")
    (tmp_path / "unitk").chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "ROWS": f"lm-1 {row}", "RUN": "run"}
    command = ["bash", str(RECIPES / "compare" / "run.sh")]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.startswith(f"ROWS: there is no {row}: write")
    assert done.stderr.count("\n") == 1 and not (tmp_path / "run").exists()


def test_what_is_said_of_an_objective(report):
    scratch = {"QG loss": 5.0, "BLEU-4": 3.0}
    rows = {"mlm-1": {"QG loss": 4.0, "BLEU-4": 4.0}, "hybrid-1": {"QG loss": 4.9}}
    rows |= {"scratch.unilm-1": scratch, "scratch.lm-1": {"QG loss": 4.7, "TLDR loss": 6.0}}
    runs = report.by_objective(rows)
    mlm, hybrid = report.verdicts(runs, {"BLEU-4": 5.0}, {"QG loss": 0.1})
    assert "scratch by 1.000" in mlm and "NOT above copying (-1.00)" in mlm
    assert "BLEU-4 above scratch (+1.00)" in mlm
    assert "QG loss within noise of scratch by -0.200" in hybrid and "TLDR" not in hybrid
    assert "ABOVE" in report.verdicts(runs, {"BLEU-4": 5.0}, {"QG loss": 0.01})[1]

    # two runs each: their means differ by 0.2, of which 2 * 0.09 is noise, and 2 * 0.11 would be
    more = {"hybrid-2": {"QG loss": 4.9}, "scratch.lm-2": {"QG loss": 4.7}}
    runs = report.by_objective(rows | more)
    assert report.seeds_of(runs["scratch.lm"]) == "1-2"
    for deviation, word in ((0.09, "ABOVE"), (0.11, "within noise of")):
        assert word in report.verdicts(runs, {"BLEU-4": 5.0}, {"QG loss": deviation})[1]


def test_the_rates_that_were_tried_are_a_table(report, tmp_path):
    for name, losses in (("lm", (4.0, 3.5)), ("mlm", (5.0, None))):
        (tmp_path / "rates" / name).mkdir(parents=True)
        trials = [
            {"lr": f"{r}", "valid/loss": one} for r, one in zip((1e-2, 2e-3), losses, strict=True)
        ]
        text = json.dumps({"trials": trials})
        (tmp_path / "rates" / name / "sweep.json").write_text(text)
    lines = report.rate_table(report.tried_rates(tmp_path)).splitlines()
    assert lines[0] == "| rates tried | 0.002 | 0.01 |"
    assert lines[2:4] == ["| `lm` | **3.500** | 4.000 |", "| `mlm` |  | **5.000** |"]
    # of two rates, each is at an edge
    assert lines[5].endswith(": `lm`, `mlm`.")
    assert report.rate_table(report.tried_rates(tmp_path / "rates")) == ""


@pytest.mark.slow
def test_rows_are_made_and_go_on_after_a_stop(report, tmp_path):
    with gzip.open(RECIPES / "babylm" / "data" / "blimp.jsonl.gz", "rt") as file:
        (tmp_path / "few.jsonl").write_text("".join(list(file)[::50]))
    (tmp_path / "last.jsonl").write_text(json.dumps({"text": "The cell has a wall"}) + "\n")
    env = {"ROWS": "mlm@labels-1 scratch.unilm-1 hybrid-2", "SETS": "sst2", "RUN": "run"}
    env |= {"BOOKS": "5k", "STEPS": "4", "TEXTS": "4", "QUESTIONS": "40", "ASKED": "10"}
    env |= {"LABELLED": "40", "GLUE_STEPS": "2", "QG_STEPS": "2", "SUM_STEPS": "2"}
    env |= {"RATES": "2.5e-3,1e-2", "JOBS": "2"}
    env |= {"PAIRS": str(tmp_path / "few.jsonl"), "LAMBADA": str(tmp_path / "last.jsonl")}
    printed = recipe("compare", tmp_path, OMP_NUM_THREADS="1", **env)
    assert "| `hybrid` | 1 |" in printed and "Not finished" not in printed.rpartition("==")[2]
    run = tmp_path / "run"
    table = json.loads((run / "table.json").read_text())
    full = {"loss", "BLiMP", "LAMBADA", "sst2", "QG loss", "BLEU-4", "TLDR loss", "R-1"}
    means = {name: one["BLiMP"]["mean"] for name, one in table["intervals"].items()}
    mlm = table["rows"]["mlm@labels-1"]
    assert means["mlm@labels"]["value"] == pytest.approx(mlm["BLiMP"])
    assert full <= mlm.keys() and table["not finished"] == []
    assert {"loss", "BLiMP"} & table["rows"]["scratch.unilm-1"].keys() == set()
    assert (run / "compare.png").read_bytes().startswith(b"\x89PNG")
    for name in ("mlm", "hybrid"):
        tried = json.loads((run / "rates" / name / "sweep.json").read_text())["trials"]
        assert {float(row["lr"]) for row in tried} == {2.5e-3, 1e-2}
    written = (run / "table.md").read_text()
    assert "| rates tried |" in written and "a token" in written

    # as many labels as 4 updates of `lm`, which asks for every token and the end of a text
    lm, own = (json.loads((run / "counts" / f"{one}.json").read_text()) for one in ("lm", "mlm"))
    assert 0 <= lm["labels"] - lm["tokens"] <= lm["texts"]
    had = table["pre-training"]["mlm@labels"]
    assert had["labels"] == had["updates"] * own["labels"]
    assert abs(had["labels"] - 4 * lm["labels"]) <= own["labels"] / 2
    assert own["computing"] < lm["computing"]

    # unigrams, from the counts of the text's tokens
    vocab = Vocab.load(FOLDER / "unitk-base-en" / "vocab")
    ids = vocab.encode_batch((run / "books.txt").read_text().splitlines())
    count = [1] * len(vocab)
    for one in ids:
        for token in one:
            count[token] += 1

    def score(text):
        return math.prod(count[token] / 1000 for token in vocab.encode(text)) / (
            (sum(count) / 1000) ** len(vocab.encode(text))
        )

    pairs = read_pairs([tmp_path / "few.jsonl"])
    values = [tuple(map(score, pair.sentences)) for pair in pairs]
    right = [0.5 if math.isclose(a, b, rel_tol=1e-9) else a > b for a, b in values]
    assert table["baselines"]["unigram"]["BLiMP"] == pytest.approx(100 * sum(right) / len(right))

    # stopped in the last row: while it pre-trained
    gone = [run / "rows" / "hybrid-2" / name for name in (".pretrain", ".blimp.json", "finished")]
    gone += [run / "rows" / "hybrid-2" / name for name in ("blimp.json", ".sst2", "sst2.json")]
    for path in gone:
        path.unlink()
    shutil.rmtree((run / "rows" / "hybrid-2" / "pretrain" / "last").resolve())
    shutil.rmtree(tmp_path / "bin")
    printed = recipe("compare", tmp_path, OMP_NUM_THREADS="1", **env | {"JOBS": "1"})
    assert "step 4/4" not in printed.partition("hybrid-2")[0]  # what is finished is not repeated

    def alike(one):
        return {k: v for k, v in one.items() if k != "minutes"}

    again = json.loads((run / "table.json").read_text())["rows"]
    assert {k: alike(v) for k, v in again.items()} == {
        k: alike(v) for k, v in table["rows"].items()
    }
