"""What a model chose of each minimal pair, as BabyLM's collator reads it.

    python3 predictions.py SCORES PREDICTIONS

SCORES are the json-lines of `unitk evaluate --pairs --output`. PREDICTIONS has for each set the
likelier sentence of each of its pairs, in their order. Where both are equally likely it is the bad
one, so that a tie is no success.
"""

import json
from collections import defaultdict
from pathlib import Path

from shared import parse_arguments, read_jsonl

from unitk.files import create


def chosen(pair: dict) -> str:
    """The likelier sentence of a pair."""
    return pair["sentence_good" if pair["score_good"] > pair["score_bad"] else "sentence_bad"]


def main(scores: Path, predictions: Path) -> None:
    """Write the file."""
    sets = defaultdict(list)
    for pair in read_jsonl(scores):
        own = sets[pair["set"]]
        own.append({"id": f"{pair['set']}_{len(own)}", "pred": chosen(pair)})
    entries = {name: {"predictions": own} for name, own in sets.items()}
    create(predictions, json.dumps(entries))


if __name__ == "__main__":
    main(*parse_arguments(__doc__, scores=Path, predictions=Path))
