"""Statements -> questions, by rule: an answer in a passage, and what asks for it.

    python3 by_rule.py --texts a.jsonl.gz b.txt --dest asked.json [--times 3]

"The bridge was built by John Roebling in 1869 for the city." becomes "Who was the bridge built by
in 1869 for the city?", "When was the bridge built by John Roebling for the city?" or "What was
built by John Roebling in 1869 for the city?". Nobody has labelled anything: from these pairs a
model learns to find the clause of an answer and to turn it around (Lewis et al. 2019, arXiv
1906.04980, made questions without labels to train readers). Written as SQuAD's json, with two
sentences on both sides.
"""

import argparse
import json
import re
from pathlib import Path

import numpy as np

from unitk.data.files.documents import Reading, read_documents
from unitk.data.files.readers import format_of

AUXILIARIES = set(
    "was were is are had has have can could will would may might must should did does do".split()
)
PREPOSITIONS = set(
    "in on at by of for with from to during after before since into between among under "
    "through as".split()
)
PRONOUNS = set("it he she they we you i there this that these those who which what".split())
SMALL = PRONOUNS | set(
    "the a an his her its their our my in on at some many most all each every one another other "
    "both several such".split()
)
OPENERS = set(
    "if when while although as because after before since however but and or that which who thus "
    "in on at by for with from to during where".split()
)
RELATIVES = {"that", "which", "who", "where"}
MONTHS = set(
    "January February March April May June July August September October November December".split()
)
NUMBERS = set(
    "two three four five six seven eight nine ten twelve twenty hundred thousand million".split()
)
STOP = re.compile(r"[,;:.]$")
LONGEST, FEWEST, MOST = 25, 4, 20
"""Spaces of a sentence; words of a question."""
SUBJECT = 0.3
"""How often the subject is asked for."""


def bare(word):
    """The word without the marks around it."""
    return word.strip(",.;:!?\"'()[]“”")


def named(word):
    """Whether it begins with a capital."""
    return bare(word)[:1].isupper()


def year(word):
    """Whether it is a year."""
    return re.fullmatch(r"1\d{3}|20\d\d", bare(word)) is not None


def number(word):
    """Whether it is a number."""
    return bool(re.fullmatch(r"\d[\d,.]*", bare(word))) or bare(word).lower() in NUMBERS


def split(sentence):
    """The words of a simple statement and the place of its auxiliary, else None."""
    words = sentence.split()
    plain = re.search(r"[a-z)][.]$", sentence) and '"' not in sentence and "(" not in sentence
    at = next((i for i, word in enumerate(words) if word in AUXILIARIES), None)
    if not plain or len(words) < 6 or not at or at > 8:
        return None
    subject = words[:at]
    nested = any(re.search("[,;:]", word) or word in RELATIVES for word in subject)
    return None if nested or subject[0].lower() in OPENERS else (words, at)


def spans(words, at):
    """What could be asked for behind the auxiliary: names, numbers, what prepositions govern."""
    found, i = [], at + 1
    while i < len(words):
        j = i + 1
        if not (named(words[i]) or number(words[i])):
            i = j
            continue
        while j < len(words) and not STOP.search(words[j - 1]):
            inside = words[j] in ("of", "the") and j + 1 < len(words) and named(words[j + 1])
            if not (named(words[j]) or year(words[j]) or inside):
                break
            j += 1
        found.append((i, j))
        i = j
    for i in range(at + 1, len(words) - 1):
        if words[i] in PREPOSITIONS:
            j = i + 1
            while j < len(words) and words[j] not in PREPOSITIONS and j - i <= 5:
                j += 1
                if STOP.search(words[j - 1]):
                    break
            if j - i <= 5 and (i + 1, j) not in found:
                found.append((i + 1, j))
    return found


def asked_word(words, span, before, after, rng):
    """The question's first words, and what is left before and behind the answer."""
    first, last = words[span[0]], words[span[1] - 1]
    governed = before[-1] if before and before[-1] in PREPOSITIONS else None
    if year(last) or bare(first) in MONTHS:
        when = rng.random() < 0.5 or not year(first)
        wh = ["When"] if when else ["In", "what", "year"]
        return wh, before[:-1] if governed else before, after
    if number(first) and after:
        many = ["How", "many", bare(after[0])]
        if governed:
            many, before = [governed.capitalize(), "how", "many", bare(after[0])], before[:-1]
        return many, before, after[1:]
    if governed in ("in", "at", "on", "from") and named(first):
        return ["Where"], before[:-1], after
    someone = governed == "by" or (not governed and rng.random() < 0.3) if named(first) else False
    return ["Who" if someone else "What"], before, after


def ask(sentence, rng):
    """A question, its answer, and the characters before the answer; None if no rule fits."""
    found = split(sentence) if sentence.count(" ") <= LONGEST else None
    if found is None:
        return None
    words, at = found
    subject, end = words[:at], [*words[:-1], bare(words[-1])]
    aside = subject[0].lower() in PRONOUNS
    if rng.random() < SUBJECT and at <= 5 and not aside:
        person = all(map(named, subject)) and rng.random() < 0.5 and at > 1
        span, question = (0, at), ["Who" if person else "What", *end[at:]]
    else:
        places = [] if aside else spans(words, at)
        if not places:
            return None
        span = places[int(rng.integers(len(places)))]
        before, after = end[at + 1 : span[0]], end[span[1] :]
        wh, before, after = asked_word(words, span, before, after, rng)
        if subject[0].lower() in SMALL:
            subject[0] = subject[0].lower()
        question = [*wh, words[at], *subject, *before, *after]
    text = " ".join(question).rstrip(" ,;:.") + "?"
    answer = " ".join(words[slice(*span)]).rstrip(",;:.")
    if not FEWEST <= len(text.split()) <= MOST or not answer or re.search("[,;:]", answer):
        return None
    return text, answer, sum(len(word) + 1 for word in words[: span[0]])


def paragraphs(paths, times, rng):
    """SQuAD's paragraphs, with one question each."""
    for path in paths:
        reading = Reading(format=format_of(path, "auto", "--texts"), sentences="punct")
        for document in read_documents(path, reading):
            sentences = [" ".join(one.split()) for one in document]
            for i, sentence in enumerate(sentences):
                for question, answer, at in filter(
                    None, (ask(sentence, rng) for _ in range(times))
                ):
                    before = " ".join(sentences[max(0, i - 2) : i])
                    start = len(before) + bool(before) + at
                    answers = [{"text": answer, "answer_start": start}]
                    context = " ".join(sentences[max(0, i - 2) : i + 3])
                    yield {"context": context, "qas": [{"question": question, "answers": answers}]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--times", type=int, default=1, help="try each sentence so often")
    parser.add_argument("--dest", type=Path, required=True)
    given = parser.parse_args()
    found = list(paragraphs(given.texts, given.times, np.random.default_rng(1)))
    article = {"title": "by rule", "paragraphs": found}
    given.dest.write_text(json.dumps({"data": [article]}, ensure_ascii=False), encoding="utf-8")
    print(f"{given.dest}: {len(found):,} questions")


if __name__ == "__main__":
    main()
