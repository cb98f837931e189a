"""Sequences to copy, reverse or sort: train, valid and test as source and target files.

python3 make_data.py DEST [copy|reverse|sort] [SEED]
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

LETTERS = "abcdefghijklmnopqrst"
SIZES = {"train": 20000, "valid": 200, "test": 500}
RULES = {"copy": list, "reverse": lambda letters: letters[::-1], "sort": sorted}


def main(dest: Path, rule: str = "copy", seed: int = 1) -> None:
    """Write SPLIT.source.txt, SPLIT.target.txt and the word list; splits share no sequence."""
    rng = random.Random(seed)
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
    words = sys.argv[1:]
    main(Path(words[0]), *words[1:2], *map(int, words[2:3]))
