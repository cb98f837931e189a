"""Sentences of a small grammar, about 16 nats each: train and valid files, and the word list."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

SIZES = {"train": 20000, "valid": 1000}
WORDS = {
    "the": "a the",
    "old": "big cold dark old red sad small tall warm young",
    "dog": "bird boat boy car cat child cook dog farmer girl horse king man nurse pilot poet queen "
    "singer teacher woman",
    "sees": "calls carries draws feeds finds follows helps hears likes meets paints sees",
    "near": "above behind below beside near under",
    "house": "bridge garden house lake mill road shop station tower tree",
}
"""A word of each class -> the words of the class."""


def sentence(rng: random.Random) -> str:
    """The old dog sees a cat near the house: every choice is made alone and evenly."""

    def one(kind: str) -> str:
        return rng.choice(WORDS[kind].split())

    def phrase(noun: str) -> list[str]:
        old = [one("old")] if rng.random() < 0.5 else []
        return [one("the"), *old, one(noun)]

    words = [*phrase("dog"), one("sees"), *phrase("dog")]
    if rng.random() < 0.5:
        words += [one("near"), *phrase("house")]
    return " ".join(words)


def main(dest: Path) -> None:
    """Write train.txt, valid.txt and grammar.words."""
    rng = random.Random(1)
    dest.mkdir(parents=True, exist_ok=True)
    words = sorted(word for some in WORDS.values() for word in some.split())
    (dest / "grammar.words").write_text("\n".join(words) + "\n")
    for split, count in SIZES.items():
        (dest / f"{split}.txt").write_text("".join(sentence(rng) + "\n" for _ in range(count)))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dest", metavar="DEST", type=Path)
    main(parser.parse_args().dest)
