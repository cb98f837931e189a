"""Titles of SciTLDR's abstracts, and the sentence that is nearest the summary, as pairs to learn.

    python3 abstracts.py --scitldr train.jsonl.gz --dest first.jsonl

A record becomes two: abstract -> title, and abstract -> the sentence marked in `source_labels`.
"""

import argparse
import gzip
import json
import random
from pathlib import Path


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scitldr", type=Path, required=True, help="json-lines, gzipped")
    parser.add_argument("--dest", type=Path, required=True)
    args = parser.parse_args()
    with gzip.open(args.scitldr, "rt", encoding="utf-8") as file:
        papers = [json.loads(line) for line in file]
    if not all("source_labels" in paper for paper in papers):
        parser.error(f"--scitldr {args.scitldr} lacks source_labels, as the bundled sample does")
    pairs = []
    for paper in papers:
        sentence = paper["source"][paper["source_labels"].index(1)]
        pairs += [(paper["source"], target) for target in (paper["title"], sentence)]
    random.Random(1).shuffle(pairs)
    lines = (json.dumps({"source": s, "target": t}, ensure_ascii=False) for s, t in pairs)
    args.dest.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    print(f"{args.dest}: {len(pairs):,} pairs")


if __name__ == "__main__":
    main()
