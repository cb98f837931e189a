"""Make the bundled samples from the full sets; the same input gives the same samples.

Every third article of LINKED, and the first sentences of each relation of FEWREL.
"""

import argparse
import gzip
import json
from pathlib import Path

from data import read

RELATIONS = 100  # sentences of each
HERE = Path(__file__).parent / "data"


def written(name: str, lines: list[str]) -> None:
    """Write a file that holds no time."""
    data = gzip.compress("".join(f"{line}\n" for line in lines).encode(), 9, mtime=0)
    (HERE / name).write_bytes(data)
    print(f"{name}: {len(data):,} bytes")


def main(linked: Path, fewrel: Path) -> None:
    """Write both samples."""
    HERE.mkdir(exist_ok=True)
    articles = [json.dumps(article, ensure_ascii=False) for article in read(linked)[::3]]
    written("linked.jsonl.gz", articles)
    some = {name: rows[:RELATIONS] for name, rows in read(fewrel).items()}
    written("fewrel.json.gz", [json.dumps(some, ensure_ascii=False)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("linked", metavar="LINKED.jsonl.gz", type=Path)
    parser.add_argument("fewrel", metavar="FEWREL.json.gz", type=Path)
    main(**vars(parser.parse_args()))
