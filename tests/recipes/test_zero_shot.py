"""Prompts of zero-shot tasks are cut as said, and their tables are what is counted by hand."""

import gzip
import json
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from .test_recipes import SCRIPTS, recipe

RECIPE = Path(__file__).resolve().parents[2] / "recipes" / "zero_shot"


@pytest.fixture
def modules(monkeypatch):
    monkeypatch.syspath_prepend(RECIPE.parent)  # for shared.py
    return tuple(runpy.run_path(str(RECIPE / f"{name}.py")) for name in ("collect", "report"))


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_passages_are_whole_sentences_without_the_last_full_stop(modules):
    passages = modules[0]["passages"]
    text = "One two three. Four five six. Seven eight nine! Ten eleven of. The last word."
    assert list(passages(text, 4)) == ["One two three. Four five six"]
    assert list(passages(text, 3)) == [
        *("One two three", "Four five six", "Seven eight nine", "The last word")
    ]


def test_texts_are_cut_at_the_end_of_a_sentence(modules):
    cut = modules[0]["cut"]
    text = "One two three. Four five six. Seven."
    assert [cut(text, words) for words in (1, 5, 6, 7)] == [
        "One two three.",
        "One two three.",
        "One two three. Four five six.",
        text,
    ]


def test_prompts_are_those_of_the_paper(tmp_path):
    answers = [{"text": "cat", "answer_start": 8}]
    asked = [{"question": "Which\none?", "answers": answers, "id": "0"}]
    squad = {"data": [{"paragraphs": [{"context": "It is a cat.", "qas": asked}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(squad))
    lines(tmp_path / "sum.jsonl", [{"source": ["One.", "Two."], "target": ["First", "Second"]}])
    lines(tmp_path / "last.jsonl", [{"text": f"{i} is the end"} for i in range(10)])
    command = [sys.executable, str(RECIPE / "collect.py"), str(tmp_path / "made")]
    files = {"last-words": "last.jsonl", "summaries": "sum.jsonl", "questions": "dev.json"}
    command += [word for key, name in files.items() for word in (f"--{key}", str(tmp_path / name))]
    subprocess.run([*command, "--texts", "3"], check=True, env=SCRIPTS)
    made = {
        name: [
            json.loads(line) for line in (tmp_path / f"made/{name}.jsonl").read_text().splitlines()
        ]
        for name in ("last_words", "plain", "tldr", "alone", "answers")
    }
    assert [one["text"] for one in made["last_words"]] == [f"{i} is the end" for i in (0, 3, 6)]
    assert made["tldr"][0]["prompt"] == "One. Two. TL;DR:"
    assert made["plain"][0]["prompt"] == "One. Two."
    assert made["tldr"][0]["references"] == ["First", "Second"]
    assert made["answers"][0]["prompt"] == "It is a cat. Q: Which one? A:"
    assert made["alone"][0]["prompt"] == "Q: Which one? A:"
    assert made["answers"][0]["references"] == ["cat"]


def test_an_answer_ends_with_its_sentence_or_the_next_question(modules):
    answer = modules[1]["answer"]
    assert answer(" a cat. It is") == "a cat" and answer("a cat Q: and") == "a cat"
    assert answer("a cat") == "a cat" and answer("? no") == ""


def test_baselines_of_last_words_are_counted(modules, tmp_path):
    (tmp_path / "text").mkdir()
    texts = ["over there over", "there is some there there", "the rest of these"]
    lines(tmp_path / "text" / "last_words.jsonl", [{"text": text} for text in texts])
    lines(tmp_path / "last_words.jsonl", [{"right": right} for right in (True, False, True)])
    # before the last words: there 3 times; of each passage: there, there, rest
    rows = modules[1]["last_words"](tmp_path)
    assert [row[1] for row in rows] == ["33.3", "33.3", "66.7"]
    assert "(there)" in rows[0][0]
    assert modules[1]["frequent"](["a", "b", "b", "a"]) == "a"
    assert modules[1]["frequent"]([]) == ""


@pytest.mark.slow
def test_a_model_is_asked(tmp_path):
    lambada = tmp_path / "lambada.jsonl.gz"
    with gzip.open(lambada, "wt") as file:
        file.write(json.dumps({"text": "the sun and the sun and the sun and the sun"}) + "\n")
    few = {"TEXTS": "4", "WORDS": "40", "LAMBADA": str(lambada), "RUN": str(tmp_path / "run")}
    printed = recipe("zero_shot", tmp_path, **few)
    assert "| 1 last words |" in printed and "| 4 summaries |" in printed
    assert "| 4 answers |" in printed and printed.count("**") == 12
