"""Windows of long passages around their answers (Du et al. 2022, section 3.4)."""

from __future__ import annotations

import bisect
import re
from collections.abc import Sequence
from dataclasses import replace

from unitk.data.reading.sources import SQUAD_SOURCE, PairText, arranged
from unitk.errors import DataError
from unitk.vocab.base import Vocab
from unitk.vocab.subwords import UNSPACED

UNIT = re.compile(rf"[{UNSPACED}]|[^\s{UNSPACED}]+")
"""A word, or a character of a script without blanks: what a window is made of."""


def windowed(pair: PairText, limit: int, vocab: Vocab, form: str = SQUAD_SOURCE) -> PairText:
    """Shorten the passage to a window, so that the source in this form has at most `limit` tokens.

    The window is the largest one that fits. It has equally many words before and after `focus`,
    unless the part begins or ends there. The focus stays whole, even if it alone is too long.
    """
    answer, passage = pair.source

    def tokens(text: str) -> int:
        return sum(len(vocab.encode(part)) for part in arranged([answer, text], form))

    if tokens(passage) <= limit:
        return pair
    if pair.focus is None:
        raise DataError(f"answer {answer!r} is not in its passage, so no window is around it")
    units = [found.span() for found in UNIT.finditer(passage)]
    first, stop = pair.focus
    before = sum(end <= first for _, end in units)
    after = sum(start >= stop for start, _ in units)

    def cut(more: int) -> tuple[int, int]:
        """The characters of the focus and of `more` units, shared between both sides."""
        left = min(before, max(more // 2, more - after))  # half, or what the other side lacks
        last = len(units) - after + more - left
        return units[before - left][0], units[last - 1][1]

    def size(more: int) -> int:
        return tokens(passage[slice(*cut(more))])

    # tokens of a window grow with its words: the largest that fits, by bisection
    most = bisect.bisect_right(range(before + after + 1), limit, key=size)
    start, end = cut(max(most - 1, 0))
    kept = passage[start:end]
    return replace(pair, source=[answer, kept], focus=(first - start, stop - start))


def around_answer(
    parts: Sequence[str],
    limit: int,
    vocab: Vocab,
    form: str = SQUAD_SOURCE,
    focus: tuple[int, int] | None = None,
) -> Sequence[str]:
    """`windowed` for a source that has this form already; `focus` is of its passage.

    Without `focus`, the window is around the first occurrence of the answer. A source whose parts
    are not answer and passage, and a passage without the answer, stay as they are.
    """
    names = [name.strip() for name in form.split("[SEP]")]
    if sorted(names) != ["{answer}", "{passage}"] or len(parts) != 2:
        return parts
    answer, passage = (parts[names.index(name)] for name in ("{answer}", "{passage}"))
    first = passage.find(answer)
    if not answer or first < 0:
        return parts
    pair = PairText([answer, passage], "", focus=focus or (first, first + len(answer)))
    return arranged(windowed(pair, limit, vocab, form).source, form)
