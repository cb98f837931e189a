"""So many words of texts: documents in a random order, a sentence a line, a blank line between.

    python3 take.py --texts a.jsonl.gz 'train_10M/*.train' --words 10M --dest words.txt

The last document is cut after the sentence that reaches the count. Fewer words than that are taken
as they are, with a warning.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

from unitk.comparison.texts import read_documents
from unitk.data.corpus.encode import count_words
from unitk.data.files.documents import Separators
from unitk.data.files.files import expand
from unitk.data.files.readers import format_of
from unitk.options.fields import parse_value


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--texts", nargs="+", required=True)
    parser.add_argument("--words", required=True, help="how many, such as 10M")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dest", type=Path, required=True)
    args = parser.parse_args()
    limit, documents = parse_value(args.words, int, "--words"), []
    for path in expand(tuple(args.texts), "--texts"):
        reading = Separators(format=format_of(path, "auto", "--texts"), sentences="punct")
        texts = read_documents(path, reading)
        documents += [
            "\n".join(" ".join(sentence.split()) for sentence in some) + "\n" for some in texts
        ]
    taken = 0
    with args.dest.open("w", encoding="utf-8") as file:
        for number in np.random.default_rng(args.seed).permutation(len(documents)):
            lines = documents[number].encode()
            total = taken + count_words(lines).cumsum()
            kept = lines.splitlines(keepends=True)[: int(total.searchsorted(limit)) + 1]
            file.write(b"".join(kept).decode() + "\n")
            taken = int(total[len(kept) - 1])
            if taken >= limit:
                break
    print(f"{args.dest}: {taken:,} words")
    if taken < limit:
        print(f"warning: the texts have {taken:,} words only, not {limit:,}", file=sys.stderr)


if __name__ == "__main__":
    main()
