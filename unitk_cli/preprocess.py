"""`unitk preprocess`: text -> vocabulary and binary corpus."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from unitk import config
from unitk.config import Parsed, flag
from unitk.data.preprocess import Options, preprocess
from unitk.errors import UsageError

TRAINING = (
    "vocab_size",
    "vocab_kind",
    "byte_fallback",
    "vocab_normalization",
    "vocab_coverage",
    "vocab_sample",
    "vocab_only",
    "seed",
)
"""Options of a vocabulary that is trained."""


def run(argv: Sequence[str]) -> None:
    """Make the corpora."""
    parsed = config.parse("preprocess", Options, argv)
    _check(parsed)
    # ended by a signal, it cleans up as after any failure
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    preprocess(parsed.main)


def _check(parsed: Parsed) -> None:
    """A setting without effect is an error."""
    given: Options = parsed.main
    for name in TRAINING:
        if given.vocab is not None and name in parsed.origins:
            raise UsageError(f"{flag(name)} has no effect with --vocab {given.vocab}")
    if given.source_file:
        for name in ("format", "documents", "sentences", "field"):
            if name in parsed.origins:
                raise UsageError(f"{flag(name)} has no effect on pairs of lines")
