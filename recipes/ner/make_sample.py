"""Make the bundled samples from the full sets; the same input gives the same samples.

The full sets are wnut17/{train,test}.conll.gz and wikigold/all.conll.gz in FOLDER. Of each file as
many sentences are kept as `KEPT` says, in runs of ten from all over it.
"""

import argparse
import gzip
from pathlib import Path

KEPT = {"wnut17/train": 1_500, "wnut17/test": 500, "wikigold/all": 1_000}
RUN = 10
HERE = Path(__file__).parent / "data"


def sample(sentences, limit):
    """So many sentences, in runs at like distances."""
    runs = [sentences[at : at + RUN] for at in range(0, len(sentences), RUN)]
    count = limit // RUN
    return [sentence for i in range(count) for sentence in runs[i * len(runs) // count]]


def main(folder):
    for name, limit in KEPT.items():
        with gzip.open(folder / f"{name}.conll.gz", "rt", encoding="utf-8") as file:
            blocks = file.read().split("\n\n")
        kept = sample([block.strip("\n") for block in blocks if block.strip()], limit)
        path = HERE / f"{name}.conll.gz"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(("\n\n".join(kept) + "\n").encode(), 9, mtime=0))
        print(f"{name}: {len(kept)} of {len(blocks)} sentences, {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    main(parser.parse_args().folder)
