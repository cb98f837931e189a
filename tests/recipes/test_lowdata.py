"""Yelp's sentences are read as Shen et al. published them; few labels make a table that goes on."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from .test_recipes import SCRIPTS, recipe

LOWDATA = Path(__file__).resolve().parents[2] / "recipes" / "lowdata"


def collected(folder, rows=99):
    command = [sys.executable, str(LOWDATA / "collect.py"), str(folder), str(folder / "made")]
    return subprocess.run(
        [*command, "--rows", str(rows)], capture_output=True, text=True, env=SCRIPTS
    )


def test_sentences_and_their_labels(tmp_path):
    sentences = {part: [f"{part} {i} ." for i in range(30)] for part in ("train", "dev")}
    for part, lines in sentences.items():
        for label in (0, 1):
            text = "".join(f"{line} {label}\n" for line in lines).encode()
            (tmp_path / f"sentiment.{part}.{label}.gz").write_bytes(gzip.compress(text))
    done = collected(tmp_path, rows=40)
    assert done.returncode == 0, done.stderr
    made = {
        name: [json.loads(line) for line in (tmp_path / "made" / f"{name}.jsonl").open()]
        for name in ("train", "valid", "test")
    }
    assert {name: len(rows) for name, rows in made.items()} == {
        "train": 40,
        "valid": 30,
        "test": 30,
    }
    for name, rows in made.items():
        own = "train" if name == "train" else "dev"
        for row in rows:
            text, _, label = row["text"].rpartition(" ")
            assert text in sentences[own] and row["label"] == ("negative", "positive")[int(label)]
    texts = [{row["text"] for row in rows} for rows in made.values()]
    assert not texts[1] & texts[2] and len(set().union(*texts)) == 100
    plain = (tmp_path / "made" / "texts.txt").read_text().splitlines()
    assert plain == [row["text"] for row in made["train"]]


def test_what_is_missing_is_named(tmp_path):
    done = collected(tmp_path)
    assert done.returncode == 1 and f"DATA: {tmp_path} lacks sentiment.dev.0" in done.stderr


@pytest.mark.slow
def test_few_labels_are_a_table_and_it_goes_on(tmp_path):
    folder = tmp_path / "texts"
    subprocess.run([sys.executable, str(LOWDATA / "make_sample.py"), str(folder)], check=True)
    env = {"DATA": str(folder), "RUN": str(tmp_path / "run"), "VOCAB": "200", "SEEDS": "1"}
    env |= {"MLM_STEPS": "4", "VAE_STEPS": "4", "FINETUNE_STEPS": "4", "LABELS": "1 8"}
    names = ["scratch", "mlm-frozen", "vae-frozen", "vae-latent"]
    env["MODELS"] = " ".join(names)
    printed = recipe("lowdata", tmp_path, **env).strip().splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in printed[-7:]]
    assert rows[0] == ["labels a class", "1", "8"]
    assert [row[0] for row in rows[2:]] == ["majority class", *names]
    assert all(0 <= float(cell) <= 100 for row in rows[2:] for cell in row[1:])
    (tmp_path / "bin").rename(tmp_path / "before")
    written = {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*.json*")}
    again = recipe("lowdata", tmp_path, **env).strip().splitlines()
    assert again[-7:] == printed[-7:]
    assert written == {path: path.stat().st_mtime_ns for path in written}  # nothing is done again
