"""Summaries and questions by rule, worked out by hand."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "recipes"))
from rules import find_announcement, write_question

BRIDGE = "The old bridge was built by John Roebling in 1869, for the city of New York."


def test_the_first_sentence_that_announces_something():
    said = ["Networks forget.", "We also propose a memory.", "This paper shows it."]
    assert find_announcement(said) == said[1]
    assert find_announcement(said[::2]) == said[2]
    assert find_announcement(["Networks forget.", "They learn again."]) == "Networks forget."


@pytest.mark.parametrize(
    ("answer", "question"),
    [
        ("1869", "in what year bridge was built by john roebling in for the city of new york ?"),
        ("John Roebling", "who the old bridge was built by in 1869 for the city of new ?"),
        ("New York", "who old bridge was built by john roebling in 1869 for the city of ?"),
    ],
)
def test_a_question_has_the_words_around_the_answer(answer, question):
    assert write_question(answer, BRIDGE) == question


@pytest.mark.parametrize(
    ("answer", "asked"),
    [
        ("May 3, 1869", "when"),
        ("two hundred", "how many"),
        ("the bank", "what"),
    ],
)
def test_the_answer_tells_what_asks(answer, asked):
    assert write_question(answer, f"It was {answer} there.") == f"{asked} it was there ?"


def test_what_follows_a_preposition_and_is_a_name_is_a_place():
    assert write_question("Lyon", "He lived in Lyon then.") == "where he lived in then ?"
