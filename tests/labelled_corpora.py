"""Small labelled corpora of every form, whose labels follow from the texts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.conftest import toy_lines
from unitk.data.corpus.preprocess import Options, preprocess
from unitk.vocab.base import Vocab

FORMS = {
    "classify": "class",
    "regress": "number",
    "tag": "tags",
    "span": "span",
    "choice": "choice",
}
"""Task -> form of the labels it learns from."""


def record(form: str, i: int) -> dict[str, Any]:
    """A record whose label follows from its text: whether, or where, the word `lala` is in it."""
    words = toy_lines(i + 1)[i].lower().rstrip(".").split()
    marked = [*words[: i % 3], "lala", *words[i % 3 :]] if i % 2 else words
    text = " ".join(marked)
    if form == "class":
        return {"a": text, "y": "yes" if i % 2 else "no"}
    if form == "classes":
        return {"a": text, "y": ["marked"] * (i % 2) + ["long"] * (len(marked) > 4)}
    if form == "number":
        return {"a": text, "y": float(i % 2)}
    if form == "tags":
        return {"a": marked, "y": ["L" if word == "lala" else "O" for word in marked]}
    if form == "span":
        at = text.find("lala")
        return {"a": "where?", "b": text, "y": [at, at + 4] if at >= 0 else None}
    good = words[0] + " lala"
    choices = [words[0], good] if i % 3 else [good, words[0]]
    return {"a": text, "b": choices, "y": choices.index(good)}


def write_corpora(folder: Path, vocab: Vocab) -> Path:
    """A corpus with train/ and valid/ by the name of each form."""
    vocab.save(folder / "vocab")
    for form in (*FORMS.values(), "classes"):
        for name, some in {"train": range(160), "valid": range(160, 200)}.items():
            lines = (json.dumps(record(form, i)) for i in some)
            (folder / f"{form}.{name}.jsonl").write_text("\n".join(lines))
        preprocess(
            Options(
                input=(str(folder / f"{form}.train.jsonl"),),
                valid=(str(folder / f"{form}.valid.jsonl"),),
                dest=folder / form,
                vocab=folder / "vocab",
                workers=1,
                source_field=("a", "b") if form in ("span", "choice") else ("a",),
                label_field="y",
                labels=form,
            )
        )
    return folder
