"""Sequences to copy, reverse or sort: train, valid and test as source and target files.

Writes DEST/SPLIT.source.txt and SPLIT.target.txt, and DEST/letters.words. Splits share no sequence.
"""

from __future__ import annotations

import argparse
import random
from pathlib import Path

LETTERS = "abcdefghijklmnopqrst"
SIZES = {"train": 20000, "valid": 200, "test": 500}
RULES = {"copy": list, "reverse": lambda letters: letters[::-1], "sort": sorted}


def main(dest: Path, rule: str = "copy") -> None:
    """Write the files."""
    rng = random.Random(1)
    seen: set[tuple[str, ...]] = set()
    dest.mkdir(parents=True, exist_ok=True)
    (dest / "letters.words").write_text("\n".join(LETTERS) + "\n")
    for split, count in SIZES.items():
        sources: list[tuple[str, ...]] = []
        while len(sources) < count:
            letters = tuple(rng.choices(LETTERS, k=rng.randint(4, 10)))
            if letters not in seen:
                seen.add(letters)
                sources.append(letters)
        for end, rows in (("source", sources), ("target", [RULES[rule](s) for s in sources])):
            (dest / f"{split}.{end}.txt").write_text("".join(" ".join(row) + "\n" for row in rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dest", metavar="DEST", type=Path)
    parser.add_argument("rule", choices=RULES, nargs="?", default="copy")
    main(**vars(parser.parse_args()))
