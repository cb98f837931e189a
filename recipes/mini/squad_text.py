"""The paragraphs of SQuAD's training articles as text to pre-train on, without their questions.

    python3 squad_text.py --squad train.json.gz --dest squad.jsonl --times 3

An article is a document.
"""

import argparse
import gzip
import json
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--squad", type=Path, required=True, help="SQuAD's json, gzipped")
    parser.add_argument("--dest", type=Path, required=True)
    parser.add_argument("--times", type=int, default=1, help="write all of it so often")
    args = parser.parse_args()
    with gzip.open(args.squad, "rt", encoding="utf-8") as file:
        articles = json.load(file)["data"]
    with args.dest.open("w", encoding="utf-8") as file:
        for article in articles * args.times:
            passages = (
                " ".join(paragraph["context"].split()) for paragraph in article["paragraphs"]
            )
            text = "\n".join(dict.fromkeys(passages))  # some paragraphs occur there twice
            file.write(json.dumps({"text": text}) + "\n")


if __name__ == "__main__":
    main()
