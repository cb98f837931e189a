"""SuperGLUE's sets as json-lines whose fields are those of unitk's patterns.

    python3 collect.py FOLDER DEST SETS... [--most N]

FOLDER has the files as they are published (BoolQ/train.jsonl, BoolQ/val.jsonl, ...), each also as
.gz. DEST/SET.train.jsonl and DEST/SET.dev.jsonl are written. Of train.jsonl the first N records are
read, or all. Where val.jsonl is missing, FewGLUE's dev32.jsonl is the dev set.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from shared import find_file, open_packed

Record = dict[str, Any]
NAMES = {
    **{"boolq": "BoolQ", "cb": "CB", "copa": "COPA", "multirc": "MultiRC"},
    **{"record": "ReCoRD", "rte": "RTE", "wic": "WiC", "wsc": "WSC"},
}
FILES = {"train": ["train"], "dev": ["val", "dev32"]}
NEGATIVES = 9
"""Wrong answers beside the right one in training: GLM's code."""
NOUN = re.compile(
    r"\b(?:[Tt]he|[Aa]n?|[Hh]is|[Hh]er|[Tt]heir|[Mm]y|[Oo]ur|[Ii]ts|Mrs?\.|Dr\.|Uncle|Aunt) [\w-]+"
    r"|\b[A-Z][a-z]+"
)
PRONOUNS = frozenset(
    "i he she it we you they him her them his its their my our me us who what when where why how"
    " this that these those there then but and or so if as at in on by for from of to with while"
    " since although because after before still not no yes".split()
)


def copa(row: Record, training: bool) -> Iterator[Record]:
    """The choices as a list; in training also in the other order."""
    first, second, label = row["choice1"], row["choice2"], int(row["label"])
    shared = {"premise": row["premise"], "question": row["question"]}
    yield {**shared, "choices": [first, second], "label": label}
    if training:
        yield {**shared, "choices": [second, first], "label": 1 - label}


def multirc(row: Record, training: bool) -> Iterator[Record]:
    """Each answer to each question of a passage, with the number of the question."""
    for question in row["passage"]["questions"]:
        shared = {"passage": row["passage"]["text"], "question": question["question"]}
        number = f"{row['idx']}.{question['idx']}"
        for answer in question["answers"]:
            label = bool(answer["label"])
            yield {**shared, "answer": answer["text"], "label": label, "number": number}


def record(row: Record, training: bool) -> Iterator[Record]:
    """Each query with the entities of its passage; in training each right one with a few others."""
    text = row["passage"]["text"]
    spans = [(entity["start"], entity["end"] + 1) for entity in row["passage"]["entities"]]
    known = list(dict.fromkeys(text[start:stop].strip() for start, stop in spans))
    passage = " ".join(text.replace("@highlight", "-").split())
    for question in row["qas"]:
        right = list(dict.fromkeys(answer["text"] for answer in question["answers"]))
        wrong = [name for name in known if name not in right]
        shared = {"passage": passage, "query": question["query"]}
        if training:
            rng = random.Random(question["idx"])
            for answer in right:
                some = rng.sample(wrong, min(NEGATIVES, len(wrong)))
                yield {**shared, "choices": [answer, *some], "label": 0}
        else:
            yield {**shared, "choices": [*right, *wrong], "label": 0, "answers": right}


def nouns(text: str, noun: str, pronoun: str) -> list[str]:
    """What else a pronoun could refer to: names, and words after an article or the like."""
    own = noun.lower().split()[-1]
    names = dict.fromkeys(match[0] for match in NOUN.finditer(text))
    kept = [name for name in names if name.lower() not in PRONOUNS | {pronoun.lower()}]
    kept = [
        name
        for name in kept
        if own not in name.lower().split() and name.lower() not in noun.lower()
    ]
    return kept[:NEGATIVES] or ["someone else"]


def wsc(row: Record, training: bool) -> Iterator[Record]:
    """The noun first, before others of the text; in training the rows where it is the right one."""
    target, words = row["target"], row["text"].split()
    noun, pronoun, place = target["span1_text"], target["span2_text"], target["span2_index"]
    words[place] = words[place].replace(pronoun, f"*{pronoun}*", 1)
    if row["label"] or not training:
        shared = {"text": " ".join(words), "pronoun": pronoun, "right": row["label"]}
        yield {**shared, "choices": [noun, *nouns(row["text"], noun, pronoun)], "label": 0}


def plain(row: Record, training: bool) -> Iterator[Record]:
    """A record as it is."""
    yield row


READERS: dict[str, Callable[[Record, bool], Iterator[Record]]] = {
    **{"copa": copa, "multirc": multirc, "record": record, "wsc": wsc}
}


def collect(folder: Path, dest: Path, name: str, limit: int | None) -> None:
    """Write the parts of a set."""
    reader = READERS.get(name, plain)
    for part, files in FILES.items():
        path = find_file(*(folder / NAMES[name] / f"{file}.jsonl" for file in files))
        with open_packed(path) as file:
            rows = [json.loads(line) for line in file]
        rows = rows[: limit if part == "train" else None]
        made = [record for row in rows for record in reader(row, part == "train")]
        with (dest / f"{name}.{part}.jsonl").open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in made)


def main() -> None:
    """Collect the sets that were asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("dest", type=Path)
    parser.add_argument("sets", nargs="+", choices=list(NAMES))
    parser.add_argument("--most", type=int)
    args = parser.parse_args()
    args.dest.mkdir(parents=True, exist_ok=True)
    for name in args.sets:
        collect(args.folder, args.dest, name, args.most)


if __name__ == "__main__":
    main()
