"""Made-up sentences in Yelp's files, where no real ones are there."""

import argparse
import random
from pathlib import Path

WHAT = "food service staff pizza place room coffee burger".split()
SAYS = {
    0: "bad cold rude dirty slow awful".split(),
    1: "great fresh kind clean fast lovely".split(),
}
SIZES = {"train": 1500, "dev": 300}


def main(dest: Path) -> None:
    """Write the files."""
    rng = random.Random(1)
    dest.mkdir(parents=True, exist_ok=True)
    for part, size in SIZES.items():
        for label, words in SAYS.items():
            pairs = ((rng.choice(WHAT), rng.choice(words)) for _ in range(size))
            lines = [f"the {what} here was {word} .\n" for what, word in pairs]
            (dest / f"sentiment.{part}.{label}").write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dest", type=Path)
    main(parser.parse_args().dest)
