"""Entities: files of their vectors, and linkers, which find their names in texts.

A linker is registered as kind `linker`. It is built from the path of a file ("" if none is given)
and the vocabulary. It then maps the ids of a text to links.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import regex

from unitk.data.files.labels import split_words
from unitk.data.files.lines import read_lines
from unitk.errors import DataError, UsageError
from unitk.registry import register
from unitk.slots import Floats, Ids
from unitk.vocab.base import Vocab
from unitk.vocab.scripts import UNSPACED

Link = tuple[int, int, str]
"""The tokens [start, stop) of a name, and the entity that it stands for."""
Linker = Callable[[Ids], list[Link]]
WORDS = regex.compile(rf"[\w--{UNSPACED}]", regex.V1)
"""A letter or digit of a script that has blanks between words."""


def read_vectors(path: Path) -> tuple[list[str], Floats]:
    """The names of entities and their vectors [E, D], of a file as word2vec writes it.

    A line has a name and D numbers; the first one may have E and D. A checkpoint's copy has D = 0.
    """
    names, rows, width, where = list[str](), list[Floats](), -1, dict[str, int]()
    for number, line in enumerate(read_lines(path), 1):
        name, *values = split_words(line) or [""]
        place = f"{path}, line {number}"
        # the counts of word2vec's first line
        if number == 1 and len(values) == 1 and name.isdecimal() and values[0].isdecimal():
            width = int(values[0])
            continue
        try:
            row = np.array(values, np.float32)
        except ValueError as error:
            raise DataError(f"{place}: not an entity and the numbers of its vector") from error
        width = len(row) or width if width < 0 else width
        if not name or len(row) != width or not np.isfinite(row).all():
            finite = f"{place}: an entity and {max(width, 1)} finite numbers must stand here"
            raise DataError(f"{finite}, got {len(row)}")
        if name in where:
            raise DataError(f"{place}: {name} has a vector in line {where[name]}")
        where[name] = number
        names.append(name)
        rows.append(row)
    if not names:
        raise DataError(f"{path}: there is no entity in it")
    return names, np.stack(rows)


@register("linker", "forms")
class Forms:
    """Links names listed in a file, a name and its entity a line, with a tab between them.

    Of overlapping names, the one that begins first is linked, and of these the longest. A name that
    is listed several times stands for the entity in its first line.
    """

    def __init__(self, path: str, vocab: Vocab) -> None:
        if not path:
            raise UsageError("--task.linker forms needs a file of names: --task.forms FILE")
        self.entities: dict[tuple[int, ...], str] = {}
        for number, line in enumerate(read_lines(Path(path)), 1):
            form, tab, entity = (part.strip() for part in line.partition("\t"))
            if line and not (form and entity):
                where = f"{path}, line {number}"
                raise DataError(f"{where}: a name, a tab and an entity must stand here")
            # as it stands behind a blank, and behind a bracket
            for ids in (vocab.encode(form), vocab.encode_inside(form)):
                if ids and vocab.unk not in ids:
                    self.entities.setdefault(tuple(ids), entity)
        # first token -> sizes of its names, of which a text is compared with the longest first
        sizes: dict[int, set[int]] = {}
        for known in self.entities:
            sizes.setdefault(known[0], set()).add(len(known))
        self.sizes = {first: sorted(some, reverse=True) for first, some in sizes.items()}
        texts = [vocab.model.text(index).strip() for index in range(vocab.model.size)]
        self.first = np.array(list(self.sizes))
        # between which tokens a word may begin or end
        self.opens = vocab.starts.copy()
        self.opens[: len(texts)] |= [not WORDS.match(text) for text in texts]
        self.closes = np.ones(len(vocab), bool)
        self.closes[: len(texts)] = [not WORDS.match(text[-1:]) for text in texts]

    def __call__(self, ids: Ids) -> list[Link]:
        found, behind, tokens = list[Link](), 0, ids.tolist()
        border = np.append(True, self.opens[ids[1:]] | self.closes[ids[:-1]])
        border = np.append(border, True)
        # few tokens begin a name: all others are passed over at once
        for start in np.flatnonzero(np.isin(ids, self.first) & border[:-1]).tolist():
            if start < behind:  # inside a name
                continue
            for size in self.sizes[tokens[start]]:
                stop = start + size
                entity = self.entities.get(tuple(tokens[start:stop]))
                if entity is not None and stop <= len(tokens) and border[stop]:
                    found.append((start, stop, entity))
                    behind = stop
                    break
        return found
