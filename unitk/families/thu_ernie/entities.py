"""Linkers, which find the names of entities in texts.

A linker is registered as kind `linker`. It is built from the path of a file ("" if none is given)
and the vocabulary. It then maps the ids of a text to links.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import regex

from unitk.data.files.lines import read_lines
from unitk.errors import DataError, UsageError
from unitk.registry import register
from unitk.slots import Ids
from unitk.vocab.base import Vocab
from unitk.vocab.scripts import UNSPACED

Link = tuple[int, int, str]
"""The tokens [start, stop) of a name, and the entity that it stands for."""
Linker = Callable[[Ids], list[Link]]
WORDS = regex.compile(rf"[\w--{UNSPACED}]", regex.V1)
"""A letter or digit of a script that has blanks between words."""


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
                raise DataError(
                    f"{path}, line {number}: a name, a tab and an entity are needed here"
                )
            # as it is split after a blank, and after a bracket
            for ids in (vocab.encode(form), vocab.encode_inside(form)):
                if ids and vocab.unk not in ids:
                    self.entities.setdefault(tuple(ids), entity)
        # first token -> sizes of its names, of which a text is compared with the longest first
        sizes: dict[int, set[int]] = {}
        for known in self.entities:
            sizes.setdefault(known[0], set()).add(len(known))
        self.sizes = {first: sorted(of_first, reverse=True) for first, of_first in sizes.items()}
        texts = [vocab.model.text(index).strip() for index in range(vocab.model.size)]
        self.first = np.array(list(self.sizes))
        # between which tokens a word may begin or end
        self.opens = vocab.starts.copy()
        self.opens[: len(texts)] |= [not WORDS.match(text) for text in texts]
        self.closes = np.ones(len(vocab), bool)
        self.closes[: len(texts)] = [not WORDS.match(text[-1:]) for text in texts]

    def __call__(self, ids: Ids) -> list[Link]:
        links = list[Link]()
        last_stop = 0
        tokens = ids.tolist()
        border = np.append(True, self.opens[ids[1:]] | self.closes[ids[:-1]])
        border = np.append(border, True)
        # few tokens begin a name: all others are passed over at once
        for start in np.flatnonzero(np.isin(ids, self.first) & border[:-1]).tolist():
            if start < last_stop:  # inside a name
                continue
            for size in self.sizes[tokens[start]]:
                stop = start + size
                entity = self.entities.get(tuple(tokens[start:stop]))
                if entity is not None and stop <= len(tokens) and border[stop]:
                    links.append((start, stop, entity))
                    last_stop = stop
                    break
        return links
