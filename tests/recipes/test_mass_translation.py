"""recipes/mass_translation: halves that share nothing, and the whole at a tiny size."""

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from .test_recipes import SCRIPTS, recipe

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "mass_translation"


def prepared(folder, pairs, train=21):
    for language, word in enumerate(("Dog", "Hund")):
        with gzip.open(folder / f"train.{language}.gz", "wt", encoding="utf-8") as file:
            file.write("".join(f"{word}  {n}\n" for n in range(train - language * (train == 20))))
        (folder / f"test.{language}").write_text(f"{word} x\n")
    command = [sys.executable, str(RECIPE / "prepare.py"), "--pairs", str(pairs)]
    for split, name in {"train": "train.{}.gz", "valid": "test.{}", "test": "test.{}"}.items():
        command += [f"--{split}", *(str(folder / name.format(language)) for language in (0, 1))]
    command += ["--dest", str(folder / "text")]
    return subprocess.run(command, capture_output=True, text=True, env=SCRIPTS)


def test_texts_are_no_translations_of_each_other(tmp_path):
    done = prepared(tmp_path, 5)
    assert done.returncode == 0, done.stderr
    read = {path.name: path.read_text().splitlines() for path in (tmp_path / "text").iterdir()}
    assert read["pairs.0"] == [f"dog {n}" for n in range(5)]
    assert read["pairs.1"] == [f"hund {n}" for n in range(5)]
    assert read["mono.0"] == [f"dog {n}" for n in range(5, 13)]
    assert read["mono.1"] == [f"hund {n}" for n in range(13, 21)]
    assert read["valid.1"] == read["test.1"] == ["hund x"]
    assert "--pairs 20: --train has 21, and none is left" in prepared(tmp_path, 20).stderr
    assert "--train: 20 sources, 19 targets" in prepared(tmp_path, 5, 20).stderr


@pytest.mark.slow
def test_stages_follow_each_other_and_go_on(tmp_path):
    env = {"RUN": "run", "OMP_NUM_THREADS": "1", "PRECISION": "fp32"}
    env |= {"MASS_STEPS": "2", "BACK_STEPS": "2", "EPOCHS": "1"}
    printed = recipe("mass_translation", tmp_path, **env)
    assert "MASS: 2 updates, 128 texts in all" in printed  # 64 an update
    run = tmp_path / "run"
    found = {
        path.name.partition(".")[0]: json.loads(path.read_text()) for path in run.glob("[!.]*.json")
    }
    assert {name: len(scores) for name, scores in found.items()} == {
        "scratch": 6,
        "mass": 6,
        "back": 2,
    }
    weights = {
        path: path.stat().st_mtime_ns for path in run.glob("*/checkpoints/*/model.safetensors")
    }
    printed = recipe("mass_translation", tmp_path, ROWS="back unsupervised", **env)
    rows = [line for line in printed.splitlines() if line.startswith("| ")][2:]
    assert [row.split(" | ")[0] for row in rows] == [
        "| copy the words",
        "| MASS, pairs, then back-translation",
        "| MASS, then back-translation, no pairs",
    ]
    assert all(path.stat().st_mtime_ns == time for path, time in weights.items())
    assert (run / "unsupervised.bleu.json").exists()
