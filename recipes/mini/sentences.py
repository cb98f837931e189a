"""Short sentences in the form of the Tanaka corpus: lower-case, marks and clitics apart.

    python3 sentences.py --sentences train.en.gz --texts a.jsonl b.jsonl.gz --held-out dev.en.gz \
        --dest train.txt

Those of --sentences, and sentences of 4 to 14 words of the texts, each once, shuffled: all whose
every word occurs --times or more in --sentences.
"""

import argparse
import gzip
import random
import re
from collections import Counter
from pathlib import Path

from unitk.data.files.readers import format_of, records

PLAIN = re.compile(r"[a-z][a-z' ,.?!-]*(?<! mr)(?<! mrs)(?<! dr)(?<! st) [.?!]")
APART = (
    (r'([.,!?;:"()])(?=\s|$)', r" \1"),
    (r'(^|\s)(["(])', r"\1\2 "),
    (r"(n)'t\b", r"\1 't"),  # as there: didn 't
    (r"'(s|re|ve|ll|d|m)\b", r" '\1"),
)


def split(text):
    """The sentences of a text in that form."""
    for sentence in re.split(r"(?<=[.?!])\s+(?=[A-Z])", " ".join(text.split())):
        sentence = re.sub("[“”]", '"', sentence.lower().replace("’", "'"))
        for pattern, instead in APART:
            sentence = re.sub(pattern, instead, sentence)
        yield " ".join(sentence.split())


def lines(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [line.strip() for line in file]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sentences", type=Path, required=True)
    parser.add_argument("--texts", type=Path, nargs="+", required=True)
    parser.add_argument("--held-out", type=Path, nargs="+", required=True)
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--dest", type=Path, required=True)
    args = parser.parse_args()
    sentences = lines(args.sentences)
    counts = Counter(word for sentence in sentences for word in sentence.split())
    known = {word for word, count in counts.items() if count >= args.times}
    for path in args.texts:
        for record in records(path, ("text",), format_of(path, "auto", "--texts")):
            several = split(record.text("text"))
            sentences += [
                sentence
                for sentence in several
                if 3 <= sentence.count(" ") <= 13 and PLAIN.fullmatch(sentence)
            ]
    held_out = {line for path in args.held_out for line in lines(path)}
    kept = [
        sentence
        for sentence in dict.fromkeys(sentences)
        if sentence not in held_out and known.issuperset(sentence.split())
    ]
    random.Random(1).shuffle(kept)
    args.dest.write_text("".join(f"{sentence}\n" for sentence in kept), encoding="utf-8")
    print(f"{args.dest}: {len(kept):,} sentences")


if __name__ == "__main__":
    main()
