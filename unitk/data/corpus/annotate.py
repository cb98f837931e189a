"""Annotators (`unitk preprocess --annotate`): one byte for each token, which tasks read.

An annotator is registered as kind `annotator`. It is built from the path after NAME= (or None),
and then maps a sentence, its ids and the vocabulary to bytes. 0 means no annotation. The bytes of
several annotators are joined by a bitwise or.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import regex

from unitk import registry
from unitk.data.files.lines import read_lines
from unitk.errors import DataError, UsageError
from unitk.registry import register
from unitk.vocab.base import Vocab
from unitk.vocab.scripts import UNSPACED

Notes = npt.NDArray[np.uint8]
Annotator = Callable[[str, list[int], Vocab], Notes]
FIRST, INSIDE = 1, 2
ENTITY_FIRST, ENTITY_INSIDE = 4, 8
ASKER, ANSWERER = 16, 32
UNIT = regex.compile(rf"{UNSPACED}|[\w--{UNSPACED}]+|[^\w\s]", regex.V1)
"""A word, a mark, or a character of a script without blanks: what surface forms are made of."""


@register("annotator", "phrases")
class Phrases:
    """Mark the phrases listed in a file, one a line: 1 on the first token, 2 on the others.

    Of overlapping phrases, the one that begins first is marked, and of these the longest.
    """

    marks = FIRST, INSIDE

    def __init__(self, path: Path | None) -> None:
        units = (tuple(UNIT.findall(line)) for line in _listed(self, path))
        self.forms = set(filter(None, units))
        if not self.forms:
            raise DataError(f"--annotate {path}: there is no surface form in it")
        self.sizes: dict[str, list[int]] = {}  # first unit -> sizes of its forms, longest first
        for form in self.forms:
            self.sizes.setdefault(form[0], []).append(len(form))
        self.sizes = {unit: sorted({*sizes}, reverse=True) for unit, sizes in self.sizes.items()}

    def __call__(self, text: str, ids: list[int], vocab: Vocab) -> Notes:
        matches = list(UNIT.finditer(text))
        places = []
        at = 0
        units = tuple(match[0] for match in matches)
        while at < len(units):
            # the longest form that begins here; what it covers begins no other
            sizes = (n for n in self.sizes.get(units[at], ()) if at + n <= len(units))
            size = next((n for n in sizes if units[at : at + n] in self.forms), 0)
            if size:
                places.append((matches[at].start(), matches[at + size - 1].end()))
            at += size or 1
        return mark_tokens(text, ids, vocab, places, self.marks)


@register("annotator", "entities")
class Entities(Phrases):
    """Mark the names listed in a file as phrases are: 4 on the first token, 8 on the others."""

    marks = ENTITY_FIRST, ENTITY_INSIDE


@register("annotator", "roles")
class Roles:
    """Mark all tokens of a turn: 32 where it begins with a text listed in a file, and 16 elsewhere.

    Such a text is the name of the speaker who answers."""

    def __init__(self, path: Path | None) -> None:
        self.openings = tuple(filter(None, _listed(self, path)))
        if not self.openings:
            raise DataError(f"--annotate {path}: there is no opening in it")

    def __call__(self, text: str, ids: list[int], vocab: Vocab) -> Notes:
        answers = text.lstrip().startswith(self.openings)
        return np.full(len(ids), ANSWERER if answers else ASKER, np.uint8)


def _listed(annotator: Annotator, path: Path | None) -> Iterable[str]:
    name = registry.name_of("annotator", type(annotator))
    if path is None:
        raise UsageError(f"--annotate {name} needs a file with a text a line: {name}=FILE")
    return read_lines(path)


def mark_tokens(
    text: str, ids: list[int], vocab: Vocab, places: list[tuple[int, int]], marks: tuple[int, int]
) -> Notes:
    """Mark places in a text: `marks[0]` on the first token of each, `marks[1]` on the others."""
    notes = np.zeros(len(ids), np.uint8)
    if places:
        for start, stop in vocab.token_spans(text, places):
            notes[start], notes[start + 1 : stop] = marks
    return notes


def open_annotator(texts: Iterable[str]) -> Annotator:
    """The annotator that texts such as `NAME` or `NAME=FILE` name together."""
    annotators = []
    for text in texts:
        name, equals, path = text.partition("=")
        kind = registry.get("annotator", name, "--annotate")
        annotators.append(kind(Path(path) if equals else None))

    # one of a plug-in may give anything; numpy would cut its numbers down to bytes
    return lambda *text: np.bitwise_or.reduce(
        [
            np.frombuffer(bytes([*np.asarray(mark(*text)).tolist()]), np.uint8).reshape(
                len(text[1])
            )
            for mark in annotators
        ]
    )
