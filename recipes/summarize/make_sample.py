"""Make the bundled sample from SciTLDR's abstract-only files; the same input gives the same sample.

    python make_sample.py --scitldr DIR

Papers are taken whole, in the order of a hash of their id; fields and files are named as in the
full set: a recipe changes one path.
"""

import argparse
import gzip
import hashlib
import json
from pathlib import Path

PAPERS = {"train": 800, "dev": 80, "test": 150}
FIELDS = ("paper_id", "title", "source", "target")


def sample(lines, count):
    """So many of the records, in their order, with the fields that are used."""
    records = [json.loads(line) for line in lines]
    ids = sorted((record["paper_id"] for record in records), key=digest)[:count]
    return [{name: paper[name] for name in FIELDS} for paper in records if paper["paper_id"] in ids]


def digest(name):
    return hashlib.md5(name.encode()).digest()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scitldr", type=Path, required=True, help="train.jsonl.gz, ...")
    parser.add_argument("--dest", type=Path, default=Path(__file__).parent / "data" / "scitldr-a")
    args = parser.parse_args()
    args.dest.mkdir(parents=True, exist_ok=True)
    for split, count in PAPERS.items():
        name = f"{split}.jsonl.gz"
        with gzip.open(args.scitldr / name, "rt", encoding="utf-8") as file:
            records = sample(file, count)
        text = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
        (args.dest / name).write_bytes(gzip.compress(text.encode(), 9, mtime=0))
        print(f"{name}: {len(records)} papers, {sum(len(r['target']) for r in records)} summaries")


if __name__ == "__main__":
    main()
