"""Verdicts of a reader hold for what they were given on, and nothing else."""

import csv
import os
import subprocess
import sys
from pathlib import Path

RECIPES = Path(__file__).resolve().parents[2] / "recipes"
KINDS = ("fills", "continuations", "questions", "analogies", "walks")


def report(run, texts, verdicts):
    words = [sys.executable, str(RECIPES / "read" / "report.py"), *map(str, (run, texts, verdicts))]
    env = {**os.environ, "PYTHONPATH": f"{RECIPES}{os.pathsep}{RECIPES.parent}"}
    return subprocess.run(words, capture_output=True, text=True, env=env)


def test_a_verdict_holds_for_the_same_output_of_the_same_input(tmp_path):
    run, texts = tmp_path / "run", tmp_path / "texts"
    for folder, word in ((texts, "in"), (run, "out")):
        folder.mkdir()
        for kind in KINDS:
            (folder / f"{kind}.txt").write_text(f"{word} 1\n{word}\t2\n")
    verdicts = tmp_path / "verdicts.tsv"
    verdicts.write_text("good\tfills\tin 1\tout 1\noff\tfills\tin 1\tout 2\n")
    assert "| fills | 1 | 0 | 0 | 1 |" in report(run, texts, verdicts).stdout
    rows = list(csv.reader((run / "report.tsv").open(newline=""), "excel-tab"))
    assert rows[:2] == [["good", "fills", "in 1", "out 1"], ["", "fills", "in | 2", "out 2"]]
    # a reader's own verdicts count, also against the kept ones, and stay where nothing changed
    (run / "report.tsv").write_text("broken\tfills\tin 1\tout 1\noff\tquestions\tin | 2\tout 2\n")
    (run / "analogies.txt").write_text("other\nout 2\n")
    for _ in range(2):
        printed = report(run, texts, verdicts).stdout
        assert "| fills | 0 | 0 | 1 | 1 |" in printed and "| questions | 0 | 1 | 0 | 1 |" in printed
    (run / "report.tsv").write_text("fine\tfills\tin 1\tout 1\n")
    done = report(run, texts, verdicts)
    assert done.returncode == 1 and "report.tsv, line 1: fine is none of" in done.stderr


def test_a_walk_is_read_without_its_ends_and_a_sample_has_no_input(tmp_path):
    run, texts = tmp_path / "run", tmp_path / "texts"
    for folder in (texts, run):
        folder.mkdir()
    (texts / "walks.txt").write_text("a\te\nf\ti\n")
    (run / "walks.txt").write_text("0\ta\n0.3\tb\n0.7\tc\n1\te\n\n0\tf\n0.5\tg\n1\ti\n")
    (run / "samples.txt").write_text("x\ny\n")
    report(run, texts, tmp_path / "none.tsv")
    rows = list(csv.reader((run / "report.tsv").open(newline=""), "excel-tab"))
    outputs = [("walks", "a | e", "b / c"), ("walks", "f | i", "g")]
    assert rows == [["", *one] for one in (*outputs, ("samples", "", "x"), ("samples", "", "y"))]


def test_every_kept_verdict_is_on_a_text_of_the_recipe():
    rows = list(csv.reader((RECIPES / "read" / "verdicts.tsv").open(newline=""), "excel-tab"))
    for kind in KINDS:
        texts = (RECIPES / "read" / "texts" / f"{kind}.txt").read_text().splitlines()
        asked = [text.replace("\t", " | ") for text in texts]
        assert [row[2] for row in rows if row[1] == kind] == asked
