"""GLUE's sets are read from the files of GLUE and of the sets' authors, and judged."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from .test_recipes import SCRIPTS, recipe

GLUE = Path(__file__).resolve().parents[2] / "recipes" / "glue"
ROW = {"sentence1": "a", "sentence2": 'b "x', "label": "1"}


def collected(folder, *words):
    command = [sys.executable, str(GLUE / "collect.py"), str(folder), str(folder / "made"), *words]
    return subprocess.run(command, capture_output=True, text=True, env=SCRIPTS)


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


def read(folder, name):
    return [json.loads(line) for line in (folder / "made" / name).read_text().splitlines()]


def test_the_files_of_both(tmp_path):
    for part in ("train", "test"):
        mrpc = 'Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t7\t8\ta\tb "x\r\n'
        write(tmp_path / "mrpc" / f"msr_paraphrase_{part}.tsv.gz", "\ufeff" + mrpc)
    for part in ("train", "dev"):
        write(tmp_path / "stsb" / f"sts-{part}.csv", 'g\tf\ty\t0\t1\ta\tb "x\tsource\n')
        write(tmp_path / "STS-B" / f"{part}.tsv", "wrong\n")
        write(tmp_path / "CoLA" / f"{part}.tsv", "gj04\t0\t*\ta\ngj04\t1\t\tb\n")
    done = collected(tmp_path, "mrpc", "stsb", "cola")
    assert done.returncode == 0, done.stderr
    for name in ("mrpc", "stsb"):
        assert read(tmp_path, f"{name}.train.jsonl") == read(tmp_path, f"{name}.dev.jsonl") == [ROW]
    # the one dev set of GLUE is both of CoLA's, and is read once
    assert [row["label"] for row in read(tmp_path, "cola.dev.jsonl")] == ["0", "1"]
    assert collected(tmp_path, "cola", "--rows", "1").returncode == 0
    assert [len(read(tmp_path, f"cola.{part}.jsonl")) for part in ("train", "dev")] == [1, 2]


def test_what_is_wrong_is_named(tmp_path):
    done = collected(tmp_path, "rte")
    assert done.returncode == 1 and f"DATA has none of {tmp_path}/rte/train.tsv" in done.stderr
    write(tmp_path / "rte" / "train.tsv", "index\tsentence1\tsentence2\tlabel\n0\ta\n")
    assert "rte/train.tsv, line 2: 2 cells, not 4" in collected(tmp_path, "rte").stderr


@pytest.mark.slow
def test_every_set_is_judged(tmp_path):
    folder = tmp_path / "sets"
    subprocess.run([sys.executable, str(GLUE / "make_sample.py"), str(folder)], check=True)
    few = {"PRETRAIN_STEPS": "4", "FINETUNE_STEPS": "4", "ROWS": "60", "PRETRAIN_TOKENS": "512"}
    few["TOGETHER"] = "1"
    printed = recipe("glue", tmp_path, DATA=str(folder), RUN=str(tmp_path / "run"), **few)
    *_, trivial, scratch, pretrained, together, alone = printed.strip().splitlines()
    assert trivial.startswith("| majority") and scratch.startswith("| scratch")
    assert pretrained.startswith("| pretrained |") and pretrained.count("|") == 7
    assert together.startswith("| pretrained,") and alone.startswith("| the same")
