"""Halves of a parallel corpus that have no sentence in common, and some pairs of their own.

    python3 prepare.py --train train.en.gz train.de.gz --valid val.en.gz val.de.gz \
        --test test.en.gz test.de.gz --pairs 1000 --dest text

Writes pairs.0 and pairs.1, the first pairs of the training set; of the others mono.0, the sources
of the first half, and mono.1, the targets of the second half; valid and test as they are. All are
lower-cased. 0 and 1 are the numbers of the languages.
"""

import argparse
from pathlib import Path

from shared import open_packed


def lines(path):
    """The lines of a file, lower-cased, with single blanks."""
    with open_packed(path) as file:
        return [" ".join(line.lower().split()) for line in file]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for split in ("train", "valid", "test"):
        parser.add_argument(f"--{split}", type=Path, nargs=2, required=True)
    parser.add_argument("--pairs", type=int, required=True, help="pairs to fine-tune on")
    parser.add_argument("--dest", type=Path, required=True)
    args = parser.parse_args()
    args.dest.mkdir(parents=True, exist_ok=True)
    train = [lines(path) for path in args.train]
    if len(train[0]) != len(train[1]):
        parser.error(f"--train: {len(train[0]):,} sources, {len(train[1]):,} targets")
    middle = (args.pairs + len(train[0])) // 2
    if not args.pairs < middle < len(train[0]):
        parser.error(f"--pairs {args.pairs}: --train has {len(train[0]):,}, and none is left")
    for language in (0, 1):
        mono = train[0][args.pairs : middle] if language == 0 else train[1][middle:]
        texts = {"pairs": train[language][: args.pairs], "mono": mono}
        texts |= {"valid": lines(args.valid[language]), "test": lines(args.test[language])}
        for name, text in texts.items():
            path = args.dest / f"{name}.{language}"
            path.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    print(f"{args.dest}: {args.pairs:,} pairs, {middle - args.pairs:,} texts of language 0")


if __name__ == "__main__":
    main()
