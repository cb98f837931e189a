"""Summaries and questions by rule: baselines without a model.

`find_announcement` is one regular expression over the sentences of an abstract. `write_question`
puts the word that asks for an answer of its kind in front of the words around it.
"""

import re

VERBS = "propose present introduce develop describe show study investigate demonstrate"
ANNOUNCES = re.compile(
    rf"\bwe (?:\w+ )?(?:{VERBS.replace(' ', '|')})\b|\bthis (?:paper|work|article)\b", re.IGNORECASE
)
"""How authors say what their paper is about."""

YEAR = re.compile(r"\b(?:1\d{3}|20\d\d)\b")
MONTH = re.compile(
    r"\b(?:January|February|March|April|May|June|July|August|September|October|November|December)\b"
)
DIGIT = re.compile(r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|hundred|million)\b")
PLACE = re.compile(r"\b(?:in|at|from|to|near|into)(?: the)?\s*$")
NAME = re.compile(r"^(?:[A-Z][\w.'-]*)(?: (?:[A-Z][\w.'-]*|of|the|de|von))*$")
MARKS = re.compile(r"""[,;:.?!"()]""")
LONGEST = 13
"""Most words of a question, without its question word."""


def find_announcement(sentences: list[str]) -> str:
    """The first sentence that announces what is proposed or shown, else the first."""
    return next(filter(ANNOUNCES.search, sentences), sentences[0])


def choose_question_word(answer: str, before: str) -> str:
    """The question word for an answer, which comes after the words `before`."""
    if YEAR.search(answer) or MONTH.search(answer):
        return "when" if len(answer.split()) > 1 else "in what year"
    if DIGIT.search(answer):
        return "how many"
    if PLACE.search(before) and NAME.match(answer):
        return "where"
    return "who" if NAME.match(answer) and " " in answer else "what"


def write_question(answer: str, sentence: str) -> str:
    """A question word, and the words of the sentence that are nearest to the answer."""
    before, _, after = sentence.partition(answer)
    left, right = (MARKS.sub("", part).split() for part in (before, after))
    half = LONGEST // 2
    left = left[-max(half, LONGEST - len(right)) :]
    words = [*left, *right[: max(half, LONGEST - len(left))]][:LONGEST]
    return " ".join([choose_question_word(answer, before), *words, "?"]).lower()
