"""Pairs of lines, lower-cased and cut into pieces of one BPE vocabulary, blanks between them.

    python3 prepare.py --train train.en.gz train.de.gz --valid val.en.gz val.de.gz \
        --test test.en.gz test.de.gz --langs en de --pieces 10000 --dest text

Writes SPLIT.LANG of pieces, the sentencepiece model bpe.model, which learnt from both sides of the
training pairs, and plain.LANG, the lower-cased test set.
"""

import argparse
from pathlib import Path

import sentencepiece
from shared import open_packed

SPLITS = ("train", "valid", "test")


def lines(path):
    """The lines of a file, lower-cased."""
    with open_packed(path) as file:
        return [" ".join(line.lower().split()) for line in file]


def write(path, texts):
    path.write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for split in SPLITS:
        parser.add_argument(f"--{split}", type=Path, nargs=2, required=True)
    parser.add_argument("--langs", nargs=2, default=("en", "de"))
    parser.add_argument("--pieces", type=int, required=True, help="size of the vocabulary")
    parser.add_argument("--dest", type=Path, required=True)
    args = parser.parse_args()
    args.dest.mkdir(parents=True, exist_ok=True)
    sides = {split: [lines(path) for path in getattr(args, split)] for split in SPLITS}
    for split, (sources, targets) in sides.items():
        if len(sources) != len(targets):
            parser.error(f"--{split}: {len(sources):,} sources, {len(targets):,} targets")
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for side in sides["train"] for line in side]),
        model_prefix=str(args.dest / "bpe"),
        vocab_size=args.pieces,
        model_type="bpe",
        character_coverage=1.0,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    bpe = sentencepiece.SentencePieceProcessor(model_file=str(args.dest / "bpe.model"))
    for split, texts in sides.items():
        for lang, side in zip(args.langs, texts, strict=True):
            write(args.dest / f"{split}.{lang}", map(" ".join, bpe.encode(side, out_type=str)))
    for lang, side in zip(args.langs, sides["test"], strict=True):
        write(args.dest / f"plain.{lang}", side)
    print(f"{args.dest}: {len(sides['train'][0]):,} pairs, {bpe.vocab_size():,} pieces")


if __name__ == "__main__":
    main()
