"""Choose the characters of a vocabulary from the text that it is trained on.

If they are few, all are included. Of thousands (Chinese, Japanese), those are included that make up
`COVERAGE` of the text, and all letters and digits that occur. Alphabets are completed if there is
room.
"""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

import numpy as np

COVERAGE = 0.9995  # share of a text of thousands of characters that gets pieces
FEW = 8  # all characters are in where they take at most this fraction of the ids
ALPHABETS = (
    "0123456789",
    "abcdefghijklmnopqrstuvwxyz",
    "αβγδεζηθικλμνξοπρστυφχψω",
    "абвгдежзийклмнопрстуфхцчшщъыьэюя",
)
"""Completed where half of one occurs."""
LARGE = 10**6
"""Characters of a text that is worth completing them; a small one may not fill the ids."""
USED = 1e-4  # share of the text from which on a script counts as used
IDEOGRAPHS = ("CJK", "HANGUL", "TANGUT", "YI", "NUSHU", "EGYPTIAN", "CUNEIFORM")
SHOWN = 40

log = logging.getLogger(__name__)


def count(lines: Iterable[str], normalization: str) -> Counter[str]:
    """Count the characters after the vocabulary's normalization, blanks excluded."""
    normal = _normalizer(normalization)
    stream, raw = iter(lines), np.zeros(0x110000, np.int64)
    while some := list(islice(stream, 100_000)):
        # code points are counted as numbers; each different one is normalised once, below
        codes = np.frombuffer("".join(some).encode("utf-32-le"), np.uint32)
        raw += np.bincount(codes, minlength=len(raw))
    found: Counter[str] = Counter()
    for code in np.flatnonzero(raw).tolist():
        for character in normal(chr(code)):
            found[character] += int(raw[code])
    return Counter({one: times for one, times in found.items() if one.strip()})


def choose(counts: Counter[str], size: int, normalization: str) -> tuple[float, str]:
    """The coverage for a vocabulary of this size, and the characters that are always included."""
    lower = {one.lower() for one in counts} if counts.total() >= LARGE else set()  # a toy's: none
    whole = [each for each in ALPHABETS if len(lower & {*each}) * 2 >= len(each)]
    normal = _normalizer(normalization)
    completed = {one for each in whole for one in normal(each + each.upper())}
    if len(counts.keys() | completed) * FEW <= size:
        return 1.0, "".join(sorted(completed))
    return COVERAGE, "".join(sorted(_letters(counts)))


def report(counts: Counter[str], known: Callable[[str], object]) -> None:
    """Log the characters that are not `known`, most frequent first."""
    lacking = [(one, times) for one, times in counts.most_common() if known(one) is None]
    if lacking:
        share = sum(times for _, times in lacking) / sum(counts.values())
        some = ", ".join(f"{_shown(one)} {times:,}" for one, times in lacking[:SHOWN])
        more = f", and {len(lacking) - SHOWN:,} more" if len(lacking) > SHOWN else ""
        log.warning(
            "the vocabulary leaves out %s of %s characters (%.3f %% of the text): %s%s",
            *(f"{len(lacking):,}", f"{len(counts):,}", 100 * share, some, more),
        )


def _shown(one: str) -> str:
    plain = one.isprintable() and unicodedata.category(one)[0] != "M"  # marks need a letter
    return one if plain else f"U+{ord(one):04X}"


def _normalizer(name: str) -> Callable[[str], str]:
    import sentencepiece

    normal = sentencepiece.SentencePieceNormalizer(
        rule_name=name,
        add_dummy_prefix=False,
        escape_whitespaces=False,
        remove_extra_whitespaces=False,
    )
    return lambda text: str(normal.normalize(text))


def _letters(counts: Counter[str]) -> Iterator[str]:
    """The letters and digits of the scripts that occur."""
    # the first word of a character's name: LATIN, CYRILLIC, CJK of "CJK UNIFIED IDEOGRAPH-4E00"
    script = {one: unicodedata.name(one, "").split(" ")[0].split("-")[0] for one in counts}
    weight: Counter[str] = Counter()
    for one, times in counts.items():
        weight[script[one]] += times
    least = USED * sum(counts.values())
    for one in counts:
        kind = unicodedata.category(one)
        letter = kind[0] in "LM" and script[one] not in IDEOGRAPHS and weight[script[one]] >= least
        if letter or kind == "Nd":
            yield one
