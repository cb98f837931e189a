"""`unitk preprocess`: text -> vocabulary and binary corpus."""

from __future__ import annotations

import gc
import signal
import sys
from collections.abc import Sequence

from unitk import config
from unitk.config import Parsed
from unitk.data.reading.files import expand
from unitk.data.storing.preprocess import Options, preprocess
from unitk.errors import UsageError

TRAINING = (
    *("vocab_size", "vocab_kind", "byte_fallback", "vocab_normalization", "vocab_coverage"),
    *("vocab_sample", "vocab_only", "vocab_threshold", "seed"),
)
"""Options of a vocabulary that is trained."""
FAIRSEQ = ("source_lang", "target_lang", "vocab_threshold")
"""Options of `--format fairseq` only."""
UNITK = (
    *("documents", "sentences", "vocab_kind", "byte_fallback", "vocab_normalization", "workers"),
    *("vocab_coverage", "vocab_sample", "seed", "shard", "annotate"),
)
"""Options that it leaves nothing to do."""


def run(argv: Sequence[str]) -> None:
    """Make the corpora."""
    parsed = config.parse("preprocess", Options, argv)
    _check(parsed)
    # ended by a signal, it cleans up as after any failure
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    gc.freeze()  # what was imported need not be searched for garbage time and again
    preprocess(parsed.main)


def _check(parsed: Parsed) -> None:
    """A setting without effect is an error."""
    given: Options = parsed.main
    if given.vocab is not None:
        parsed.idle(f"with --vocab {given.vocab}", *TRAINING)
    files = expand(given.input or given.valid or given.test, "--input")
    held = given.held(files, "--input", parsed.origins) or ["pairs of lines"]
    of_other = UNITK if given.format == "fairseq" else FAIRSEQ
    parsed.idle(f"with --format {given.format}", *of_other)
    if given.format == "fairseq" and not {*held} <= {"text", "pairs of lines"}:
        raise UsageError(f"--format fairseq takes text or pairs of lines, not {', '.join(held)}")
