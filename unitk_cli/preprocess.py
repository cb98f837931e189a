"""`unitk preprocess`: text -> vocabulary and binary corpus."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Sequence

from unitk.data.corpus.preprocess import Options, check, preprocess
from unitk.options import config


def run(argv: Sequence[str]) -> None:
    """Make the corpora."""
    parsed = config.parse("preprocess", Options, argv)
    check(parsed)
    # ended by a signal, it cleans up as after any failure
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    gc.freeze()  # what was imported need not be searched for garbage time and again
    preprocess(parsed.main)
