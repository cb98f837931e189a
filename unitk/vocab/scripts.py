"""Borders of words and sentences in any script, from the properties of Unicode.

All patterns are of the package `regex`, which knows these properties, and are joined by its
version 1: a set may be inside another one.
"""

from __future__ import annotations

import regex

UNSPACED = r"[[\p{L}\p{Nl}]&&[\p{LB=ID}\p{LB=CJ}\p{LB=NS}\p{LB=SA}\p{LB=AK}\p{LB=AS}]]"
"""Letters of scripts without blanks between words, for a pattern: those between which a line may
break (Chinese, Japanese, Javanese), or only where a dictionary has a border (Thai, Khmer)."""
WORD_MARK = r"[[\p{LB=BA}&&\p{Po}]--\p{Common}]"
"""Marks that part words or syllables in place of a blank, as in Tibetan and Ethiopic."""
UNIT = regex.compile(
    # with the accents and vowels above and below it
    rf"(?={UNSPACED})\X|[\S--{UNSPACED}--{WORD_MARK}]+{WORD_MARK}*|{WORD_MARK}+",
    regex.V1,
)
"""A word, a syllable, or a character of a script that shows neither."""
CHARACTER = regex.compile(r"(?=\S)\X", regex.V1)
"""What a reader takes for one character; no blank."""

BEGIN = r"[[\p{L}--\p{Lm}]--\p{CWT}]"  # CWT: changes when titlecased
"""Letters that may begin a sentence: capitals, and all letters of scripts without capitals."""
SURE = r"[\p{SB=STerm}\u0f0d-\u0f11--[!?]]"
"""Stops that end a sentence whatever follows, as 。 ؟ । ። do, and the shads of Tibetan."""
INITIAL = rf"[{BEGIN}&&[\p{{LB=AL}}\p{{LB=HL}}]]\p{{M}}*"  # not a syllable or a word of one letter
LEADING = (
    r"Mrs?|Ms|Messrs|Drs?|St|Profs?|Rev|Hon|Gov|Sen|Rep|Gen|Col|Maj|Capt|Lt|Sgt|Cpl|Adm|Cmdr|Mt|Ft"
    r"|Mmes?|Mlles?|Mgr|MM|Hr|Fr|Sra?|Srta|Dra|Sig|Dott|Mevr|Dhr"
    r"|Figs?|Eqs?|Vol|Nr|vs?|cf|viz|[Ee]\.\s?g|[Ii]\.\s?e|[Vv]gl|bzw|[Zz](?=\.\s?B\.)|[Dd]\.\s?h"
    r"|[Pp]\.\s?ex|т\.\s?е"
)
"""Abbreviations of what cannot end a sentence, as a name or a comparison comes after it."""
STOP = regex.compile(
    # a range in front of the properties: twice as fast
    r"[.!?;\u037e\u0589-\U0010ffff](?:"
    # these need a blank and the beginning of a sentence; and no title or initial before a dot
    # (French has blanks within its quotes; the semicolon is the question mark of Greek)
    r"(?<=[.!?…]|\p{Greek}\p{M}*[;\u037e])(?:\p{SB=Close}|\s»)*\s+"
    rf"(?=(?:[\p{{SB=Close}}¿¡]|«\s)*{BEGIN})(?<!\b(?:{LEADING}|{INITIAL})\.\s+)"
    # a sure stop needs nothing after it but may have closing quotes; typists of Ethiopic write two
    # marks of words in place of its stop
    rf"""|(?:(?<={SURE})|(?<=፡)፡)(?:\s*{SURE})*["'\p{{Pe}}\p{{Pf}}]*)""",
    regex.V1,
)
"""The end of a sentence, with the blanks after it."""
