"""Annotators (`unitk preprocess --annotate`): one byte for each token, which tasks read.

An annotator is registered as kind `annotator`. It is built from the path behind NAME= (or None),
and then maps a sentence, its ids and the vocabulary to bytes. 0 means no annotation.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from unitk import registry
from unitk.data.reading.sources import read_lines
from unitk.data.reading.window import UNSPACED
from unitk.errors import DataError, UsageError
from unitk.registry import register
from unitk.vocab.base import Vocab

Notes = npt.NDArray[np.uint8]
Annotator = Callable[[str, list[int], Vocab], Notes]
FIRST, INSIDE = 1, 2
UNIT = re.compile(rf"[{UNSPACED}]|(?:(?![{UNSPACED}])\w)+|[^\w\s]")
"""A word, a mark, or a character of a script without blanks: what surface forms are made of."""


@register("annotator", "phrases")
class Phrases:
    """Mark the phrases listed in a file, one a line: 1 on the first token, 2 on the others.

    Of overlapping phrases, the one that begins first is marked, and of these the longest.
    """

    def __init__(self, path: Path | None) -> None:
        if path is None:
            raise UsageError("--annotate phrases needs a file of surface forms: phrases=FILE")
        units = (tuple(UNIT.findall(line)) for line in read_lines(path))
        self.forms = set(filter(None, units))
        if not self.forms:
            raise DataError(f"--annotate {path}: there is no surface form in it")
        self.sizes: dict[str, list[int]] = {}  # first unit -> sizes of its forms, longest first
        for form in self.forms:
            self.sizes.setdefault(form[0], []).append(len(form))
        self.sizes = {unit: sorted({*sizes}, reverse=True) for unit, sizes in self.sizes.items()}

    def __call__(self, text: str, ids: list[int], vocab: Vocab) -> Notes:
        notes, at = np.zeros(len(ids), np.uint8), 0
        found = [(unit[0], *unit.span()) for unit in UNIT.finditer(text)]
        units = tuple(unit for unit, _, _ in found)
        while at < len(units):
            sizes = self.sizes.get(units[at], ())
            # the longest form that begins here; what it covers begins no other
            size = next((n for n in sizes if units[at : at + n] in self.forms), 0)
            if size:
                start, stop = vocab.token_span(text, ids, found[at][1], found[at + size - 1][2])
                notes[start], notes[start + 1 : stop] = FIRST, INSIDE
            at += size or 1
        return notes


def open_annotator(text: str) -> Annotator:
    """The annotator that `NAME` or `NAME=FILE` names."""
    name, equals, path = text.partition("=")
    made = registry.get("annotator", name, "--annotate")
    annotator: Annotator = made(Path(path) if equals else None)
    return annotator
