"""ERNIE 2.0's tasks of words.  Sun et al. 2020, arXiv 1907.12412, "Word-aware Pre-training Tasks".

Tokens are shown in lower case, and the model predicts which of them had a capital (`capital`). It
is asked where the vocabulary has both forms.

    text     A  b  C  d  e             of e there is no other form
    token    C  a  b  c  d  e  S
    capital  .  1  0  1  0  .  .

The model predicts which tokens of a part occur in another part of the document (`document`), which
is not shown.

    parts    a b c d | e c a
    token    C  a  b  c  d  S
    document .  1  0  1  0  .
"""

from __future__ import annotations

import numpy as np

from unitk.slots import Ask, Bools, Example, Ids, stay
from unitk.tasks.base import frame_parts
from unitk.vocab.base import Vocab


def lower_case(vocab: Vocab) -> tuple[Ids, Bools]:
    """For each id that of its text in lower case, or itself where there is none; and which ids
    are one of two such forms."""
    texts = [vocab.model.text(index) for index in range(vocab.model.size)]
    # of several ids with one text, as bytes have, the first
    number = {text: index for index, text in reversed([*enumerate(texts)])}
    lowered = np.arange(len(vocab))
    lowered[: len(texts)] = [number.get(text.lower(), i) for i, text in enumerate(texts)]
    capital = lowered != np.arange(len(vocab))
    capital[: len(texts)] &= [text != text.lower() for text in texts]
    # what has no capital keeps its id, also where another id has the same text
    lowered = np.where(capital, lowered, np.arange(len(vocab)))
    return lowered, capital | np.isin(np.arange(len(vocab)), lowered[capital])


def ask_tags(name: str, rows: Ids, label: Ids) -> Ask:
    """Ask slots for a class each."""
    return Ask(name, f"tag:{name}", "x", rows[:, None], label, np.ones(len(rows), np.float32))


def capital(tokens: Ids, seg: Ids, lower: Ids, cased: Bools) -> Example | None:
    """Lay out framed tokens in lower case; None where no token has two forms."""
    rows = np.flatnonzero(cased[tokens])
    if not len(rows):
        return None
    label = (lower[tokens] != tokens)[rows].astype(np.int64)
    slots = stay(lower[tokens], pos=np.arange(len(tokens)), seg=seg)
    return Example({"x": slots}, [ask_tags("capital", rows, label)])


def document(part: Ids, other: Ids, cls: int, sep: int) -> Example:
    """Lay out a part, and ask which of its tokens are in the other one."""
    tokens, _ = frame_parts([part], cls, sep)
    label = np.isin(part, other).astype(np.int64)
    slots = stay(tokens, pos=np.arange(len(tokens)))
    return Example({"x": slots}, [ask_tags("document", 1 + np.arange(len(part)), label)])
