"""Words of texts in any script, and warnings about characters that a metric ignores.

A word is a run of letters, accents and digits; in scripts without blanks between words it is one
character, as the scripts of CMRC, DRCD and MLQA count Chinese.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

import regex

from unitk.vocab.scripts import UNSPACED

LETTER = regex.compile(r"[\p{L}\p{N}]", regex.V1)
WORD = regex.compile(rf"(?={UNSPACED})\X|[[\p{{L}}\p{{M}}\p{{N}}]--{UNSPACED}]+", regex.V1)
UNSPACED_LETTER = regex.compile(UNSPACED, regex.V1)
PUNCTUATION = regex.compile(r"[\p{P}\p{S}]", regex.V1)
MOST, SOME = 0.5, 0.01

log = logging.getLogger(__name__)


def words(text: str) -> list[str]:
    """The lower-cased words of a text."""
    return WORD.findall(text.lower())


def share_of_letters(texts: Iterable[str], pattern: str) -> float:
    """The share of the texts' letters and digits that a pattern of one character matches."""
    matching = regex.compile(rf"[[\p{{L}}\p{{N}}]&&{pattern}]", regex.V1)
    letters = total = 0
    for text in texts:
        if text.isascii() and pattern == UNSPACED:  # which has no letters of ASCII
            total += len(text)
        else:
            letters += len(matching.findall(text))
            total += len(LETTER.findall(text))
    return letters / max(total, 1)


def warn_uncounted(texts: Iterable[str], remedy: str) -> None:
    """Log a warning if ROUGE, which knows words of a-z and digits, leaves out much of the texts."""
    left = share_of_letters(texts, r"[^a-zA-Z0-9]")
    if left >= SOME:
        log.warning(
            "rouge counts a-z and digits only, and leaves out %.0f %% of the letters; %s",
            100 * left,
            remedy,
        )


def warn_unspaced(metric: str, texts: Iterable[str], remedy: str) -> None:
    """Log a warning if most letters are of scripts without the blanks that a metric splits at."""
    if share_of_letters(texts, UNSPACED) > MOST:
        log.warning(
            "%s splits words at blanks, and most of these texts have none; %s", metric, remedy
        )
