"""Files of entities for tests: vectors, and names that are words of a vocabulary."""

from pathlib import Path

import numpy as np


def write_entities(folder: Path, vocab, width=16, every=3):
    """Write vectors and names of entities; options of `--task thu_ernie` with both paths.

    Each `every`-th word of the vocabulary names an entity, the last one that of the first word.
    """
    words = [vocab.decode([index]) for index in np.flatnonzero(vocab.starts)[::every]]
    words = [word for word in dict.fromkeys(words) if word and len(vocab.encode(word)) == 1]
    vectors = np.random.default_rng(0).normal(size=(len(words) - 1, width))
    rows = [f"Q{number} " + " ".join(map(str, row)) for number, row in enumerate(vectors)]
    lines = [f"{word}\tQ{number % len(rows)}" for number, word in enumerate(words)]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vectors.txt").write_text("\n".join(rows) + "\n")
    (folder / "names.tsv").write_text("\n".join(lines) + "\n")
    return {"entities": str(folder / "vectors.txt"), "forms": str(folder / "names.tsv")}
