"""Made-up sets in GLUE's files, where no real ones are at hand."""

import argparse
import random
from pathlib import Path

NOUNS = "dog cat bird fish horse cow sheep goat".split()
VERBS = "sees hears likes knows follows finds".split()
SIZES = {"train": 400, "dev": 100}


def sentence(rng: random.Random) -> str:
    """A few words that say who does what to whom."""
    return f"the {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)}"


def row(name: str, rng: random.Random) -> list[str]:
    """The cells of a record whose label follows from its words."""
    first, good = sentence(rng), rng.random() < 0.5
    if name == "CoLA":
        words = first.split()
        return ["x", str(int(good)), "", first if good else " ".join(words[::-1])]
    if name == "SST-2":
        return [f"{first} , which is {'fine' if good else 'dull'}", str(int(good))]
    second = first if good else sentence(rng)
    if name == "RTE":
        return ["0", first, second, "entailment" if first == second else "not_entailment"]
    if name == "MRPC":
        return [str(int(first == second)), "1", "2", first, second]
    same = sum(a == b for a, b in zip(first.split(), second.split(), strict=True))
    return [str(same), first, second]


TITLES = {
    "CoLA": [],
    "SST-2": ["sentence", "label"],
    "RTE": ["index", "sentence1", "sentence2", "label"],
    "MRPC": ["Quality", "#1 ID", "#2 ID", "#1 String", "#2 String"],
    "STS-B": ["score", "sentence1", "sentence2"],
}


def main(dest: Path) -> None:
    """Write the files of all sets."""
    rng = random.Random(1)
    for name, titles in TITLES.items():
        (dest / name).mkdir(parents=True, exist_ok=True)
        for part, size in SIZES.items():
            file = f"{part}.tsv"
            if name == "MRPC":
                file = f"msr_paraphrase_{part.replace('dev', 'test')}.txt"
            rows = [titles] * bool(titles) + [row(name, rng) for _ in range(size)]
            text = "".join("\t".join(cells) + "\n" for cells in rows)
            (dest / name / file).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("dest", type=Path)
    main(parser.parse_args().dest)
