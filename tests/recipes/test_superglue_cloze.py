"""SuperGLUE's files become records of the patterns' fields, and labels become its figures."""

import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from .test_glue import read, write
from .test_recipes import SCRIPTS, recipe

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "superglue_cloze"

PASSAGE = "Ann met Bo.\n@highlight\nBo won"
ENTITIES = [{"start": 0, "end": 2}, {"start": 8, "end": 9}, {"start": 23, "end": 24}]
ROWS = {
    "COPA": {"premise": "p", "choice1": "a", "choice2": "b", "question": "cause", "label": 1},
    "MultiRC": {
        "idx": 3,
        "passage": {
            "text": "t",
            "questions": [
                {"question": "q", "idx": 5, "answers": [{"text": x, "label": y} for x, y in ZIP]}
                for ZIP in ([("yes", 1), ("no", 0)],)
            ],
        },
    },
    "ReCoRD": {
        "passage": {"text": PASSAGE, "entities": ENTITIES},
        "qas": [{"query": "@placeholder won", "idx": 1, "answers": [{"text": "Bo"}] * 2}],
    },
    "WSC": {
        "text": "Ann thanked the old man because he was kind to her dog.",
        "target": {"span1_text": "the old man", "span2_text": "he", "span2_index": 6},
        "label": False,
    },
    "RTE": {"premise": "p", "hypothesis": "h", "label": "entailment"},
}


def files(folder):
    for name, row in ROWS.items():
        for part in ("train.jsonl.gz", "dev32.jsonl" if name == "ReCoRD" else "val.jsonl"):
            write(folder / name / part, json.dumps(row) + "\n")


def collected(folder, *words):
    command = [sys.executable, str(RECIPE / "collect.py"), str(folder), str(folder / "made")]
    return subprocess.run([*command, *words], capture_output=True, text=True, env=SCRIPTS)


def test_the_files_become_fields_of_patterns(tmp_path):
    files(tmp_path)
    done = collected(tmp_path, "copa", "multirc", "record", "wsc", "rte")
    assert done.returncode == 0, done.stderr
    copa = {"premise": "p", "question": "cause", "choices": ["a", "b"], "label": 1}
    assert read(tmp_path, "copa.dev.jsonl") == [copa]
    other = copa | {"choices": ["b", "a"], "label": 0}
    assert read(tmp_path, "copa.train.jsonl") == [copa, other]
    one = {"passage": "t", "question": "q", "number": "3.5"}
    wanted = [one | {"answer": "yes", "label": True}, one | {"answer": "no", "label": False}]
    assert read(tmp_path, "multirc.dev.jsonl") == wanted
    [one] = read(tmp_path, "record.train.jsonl")
    assert one == {
        "passage": "Ann met Bo. - Bo won",
        "query": "@placeholder won",
        "choices": ["Bo", "Ann"],
        "label": 0,
    }
    assert read(tmp_path, "record.dev.jsonl") == [one | {"answers": ["Bo"]}]
    [one] = read(tmp_path, "wsc.dev.jsonl")
    assert one["text"] == "Ann thanked the old man because *he* was kind to her dog."
    assert one["choices"] == ["the old man", "Ann", "her dog"] and one["right"] is False
    assert read(tmp_path, "wsc.train.jsonl") == []  # nothing is learnt from nouns that are wrong
    assert read(tmp_path, "rte.dev.jsonl") == [ROWS["RTE"]]
    done = collected(tmp_path, "cb")
    assert done.returncode == 1 and f"DATA has none of {tmp_path}/CB/train" in done.stderr


def test_figures_are_those_of_superglue(monkeypatch):
    monkeypatch.syspath_prepend(RECIPE.parent)  # for shared.py
    report = runpy.run_path(str(RECIPE / "report.py"))
    judged, trivial = report["judged"], report["trivial"]
    dev = [{"label": y, "number": n} for y, n in ((True, 1), (False, 1), (True, 2), (False, 2))]
    found = judged("multirc", ["True", "False", "True", "True"], dev)
    assert found["em"] == 50 and found["f1"] == pytest.approx(100 * 4 / 5)
    dev = [{"label": 0, "right": right} for right in (True, False, False)]
    assert judged("wsc", ["0", "2", "0"], dev)["accuracy"] == pytest.approx(200 / 3)
    assert judged("wsc", trivial("wsc", [], dev), dev)["accuracy"] == pytest.approx(200 / 3)
    one = {"label": 0, "choices": ["Bo B", "Ann"], "passage": "Ann Bo B", "answers": ["Bo B"]}
    assert judged("record", ["0", "1"], [one, one])["em"] == 50
    assert trivial("record", [], [one]) == ["1"]
    train = [{"label": "a"}, {"label": "b"}, {"label": "b"}]
    assert trivial("rte", train, [one]) == ["b"]


@pytest.mark.slow
def test_sets_are_judged(tmp_path):
    files(tmp_path / "sets")
    for name, labels in {"RTE": ("entailment", "not_entailment"), "COPA": (0, 1)}.items():
        rows = (json.dumps(ROWS[name] | {"label": label}) + "\n" for label in labels)
        write(tmp_path / "sets" / name / "val.jsonl", "".join(rows))
    few = {"PRETRAIN_STEPS": "2", "FINETUNE_STEPS": "2", "SETS": "rte copa multirc record"}
    printed = recipe(
        "superglue_cloze",
        tmp_path,
        **{"DATA": str(tmp_path / "sets"), "RUN": str(tmp_path / "run"), "VOCAB": "1000", **few},
    )
    *_, trivial, scratch, pretrained = printed.strip().splitlines()
    assert trivial.startswith("| majority") and scratch.startswith("| scratch")
    assert pretrained.startswith("| pretrained") and pretrained.count("|") == 6
