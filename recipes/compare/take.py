"""So many questions from all over a file of SQuAD.

    python3 take.py --squad train.json.gz --questions 20000 --dest train.json

Articles keep their order; paragraphs without a question left are dropped. A file with fewer
questions is taken as it is.
"""

import argparse
import gzip
import json
from pathlib import Path


def taken(articles, limit):
    """The articles with `limit` of their questions, evenly spaced, and how many these are."""
    total = sum(len(part["qas"]) for article in articles for part in article["paragraphs"])
    limit, number, kept = min(limit, total), -1, []
    for article in articles:
        paragraphs = []
        for part in article["paragraphs"]:
            some = []
            for entry in part["qas"]:
                number += 1
                if (number + 1) * limit // total > number * limit // total:
                    some.append(entry)
            if some:
                paragraphs.append({**part, "qas": some})
        kept.append({**article, "paragraphs": paragraphs})
    return [article for article in kept if article["paragraphs"]], limit


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--squad", type=Path, required=True, help="SQuAD's json, gzipped")
    parser.add_argument("--questions", type=int, required=True)
    parser.add_argument("--dest", type=Path, required=True)
    args = parser.parse_args()
    with gzip.open(args.squad, "rt", encoding="utf-8") as file:
        squad = json.load(file)
    squad["data"], count = taken(squad["data"], args.questions)
    args.dest.write_text(json.dumps(squad, ensure_ascii=False), encoding="utf-8")
    print(f"{args.dest}: {count:,} questions")


if __name__ == "__main__":
    main()
