"""Made-up reviews and questions, where no real ones are there.

What a label says is said by a few of many words; all of these are in the texts without labels.
"""

import argparse
import json
import random
from pathlib import Path

THINGS = "plot cast score dialogue ending camera pace script acting humour".split()
SAYS = ("dull weak clumsy tired hollow flat".split(), "superb moving fresh sharp warm bold".split())
ASKS = {
    "HUM": ("Who", "wrote painted founded won led".split()),
    "LOC": ("Where", "lies begins ends grows stands".split()),
    "NUM": ("How many", "people miles books ships islands".split()),
}


def review(rng: random.Random, label: int) -> str:
    """Some sentences, of which most say what the label says."""
    kinds = (label if rng.random() < 0.8 else 1 - label for _ in range(rng.randint(3, 12)))
    return " ".join(f"The {rng.choice(THINGS)} was {rng.choice(SAYS[kind])}." for kind in kinds)


def main(dest: Path) -> None:
    """Write the files."""
    rng = random.Random(1)
    (dest / "imdb").mkdir(parents=True, exist_ok=True)
    for part, size in {"train": 2000, "test": 400}.items():
        labels = (rng.randrange(2) for _ in range(size))
        lines = (json.dumps({"text": review(rng, label), "label": label}) for label in labels)
        (dest / "imdb" / f"{part}.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for name, size in {"train_5500.label": 1500, "TREC_10.label": 300}.items():
        with (dest / name).open("w", encoding="utf-8") as file:
            for _ in range(size):
                label = rng.choice(list(ASKS))
                first, words = ASKS[label]
                question = f"{first} {rng.choice(words)} the {rng.choice(THINGS)} ?"
                file.write(f"{label}:made {question}\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dest", type=Path)
    main(parser.parse_args().dest)
