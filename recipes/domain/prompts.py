"""What the model reads: texts to train on, and labelled texts alone and before each prompt.

    python3 prompts.py FOLDER DEST PROMPT...

FOLDER has texts.jsonl (field text), train.tsv and test.tsv (columns sentence and label), each also
as .gz. DEST gets texts.jsonl and valid.jsonl, 1 % of the texts, plain.txt with the sentences of
train and test, prompt1.txt and so on with each prompt after them, and labels.json.
"""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path

from shared import find_file, parse_arguments, read_record_pairs

from unitk.data.files.pairs import Fields
from unitk.data.files.readers import records

HELD_OUT = 100
"""One in so many texts is for validation."""


def main(folder: Path, dest: Path, prompts: list[str]) -> None:
    """Write the files."""
    texts = [
        record.text("text") for record in records(find_file(folder / "texts.jsonl"), given="jsonl")
    ]
    tables = {
        name: read_record_pairs(
            find_file(folder / f"{name}.tsv"), Fields(("sentence",), ("label",))
        )
        for name in ("train", "test")
    }
    dest.mkdir(parents=True, exist_ok=True)
    parts = {"valid": texts[::HELD_OUT], "texts": [t for i, t in enumerate(texts) if i % HELD_OUT]}
    for name, part in parts.items():
        lines = (json.dumps({"text": text}) + "\n" for text in part)
        (dest / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
    sentences = [" ".join(record.source[0].split()) for record in chain(*tables.values())]
    behind = {"plain": "", **{f"prompt{n}": text for n, text in enumerate(prompts, 1)}}
    for name, prompt in behind.items():
        lines = (f"{sentence}{prompt}\n" for sentence in sentences)
        (dest / f"{name}.txt").write_text("".join(lines), encoding="utf-8")
    labels = {name: [record.target for record in rows] for name, rows in tables.items()}
    (dest / "labels.json").write_text(json.dumps(labels) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*parse_arguments(__doc__, folder=Path, dest=Path, prompts=[str]))
