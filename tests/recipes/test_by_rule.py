"""Questions that rules make of statements."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "recipes" / "mini" / "by_rule.py"


@pytest.fixture(scope="module")
def rules():
    spec = importlib.util.spec_from_file_location("by_rule", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


BRIDGE = "The old bridge was built by John Roebling in 1869 for the city."


@pytest.mark.parametrize(
    ("sentence", "answer", "question"),
    [
        (BRIDGE, "The old bridge", "What was built by John Roebling in 1869 for the city?"),
        (BRIDGE, "John Roebling", "Who was the old bridge built by in 1869 for the city?"),
        (BRIDGE, "1869", "When was the old bridge built by John Roebling for the city?"),
        (BRIDGE, "1869", "In what year was the old bridge built by John Roebling for the city?"),
        ("A treaty was signed in Paris by them.", "Paris", "Where was a treaty signed by them?"),
        (
            "The tower is about 300 metres tall today.",
            "300",
            "How many metres is the tower about tall today?",
        ),
        (
            "Its roof can be lifted with 12 ropes at once.",
            "12",
            "With how many ropes can its roof be lifted at once?",
        ),
    ],
)
def test_a_clause_is_turned_around(rules, sentence, answer, question):
    found = {
        one for seed in range(200) if (one := rules.ask(sentence, np.random.default_rng(seed)))
    }
    assert (question, answer, sentence.index(answer)) in found


@pytest.mark.parametrize(
    "sentence",
    [
        "Although it was late, the bridge was built there.",  # what comes first is not the subject
        "The bridge that was built there fell down again.",
        "He said that it was too late for them now.",
        'The bridge was called "the old one" by all.',
        "The bridge fell.",
        "They built a bridge over the river in a year.",  # no auxiliary
    ],
)
def test_no_rule_fits(rules, sentence):
    assert not any(rules.ask(sentence, np.random.default_rng(seed)) for seed in range(50))


def test_answers_stand_where_the_file_says(tmp_path):
    lines = [f"Town {i} is old. {BRIDGE} It is near. So is the sea." for i in range(20)]
    (tmp_path / "texts.txt").write_text("\n\n".join(lines))
    words = ["--texts", tmp_path / "texts.txt", "--times", "3", "--dest", tmp_path / "asked.json"]
    subprocess.run([sys.executable, str(SCRIPT), *map(str, words)], check=True)
    (article,) = json.loads((tmp_path / "asked.json").read_text())["data"]
    found = article["paragraphs"]
    assert 40 <= len(found) <= 60
    for paragraph in found:
        (question,) = paragraph["qas"]
        (answer,) = question["answers"]
        start, text = answer["answer_start"], answer["text"]
        assert paragraph["context"][start : start + len(text)] == text
        assert text not in question["question"] and question["question"].endswith("?")
        assert paragraph["context"].startswith("Town") and "So is" in paragraph["context"]
