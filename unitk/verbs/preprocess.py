"""`unitk preprocess`: make a vocabulary and a binary corpus of text."""

from __future__ import annotations

import gc

from unitk.api.verb import verb
from unitk.data.corpus.columns import Counts
from unitk.data.corpus.preprocess import Options, check_preprocess, preprocess
from unitk.options.config import Parsed
from unitk.registry import register


def value(parsed: Parsed) -> dict[str, dict[str, Counts]]:
    """Make the corpora; what each part holds, by part and by side.

    Large files are encoded by several processes, which import the program that calls.
    """
    check_preprocess(parsed)
    return preprocess(parsed.main)


@register("verb", "preprocess")
@verb(
    Options,
    cure="lower --workers, or break up the longest lines",
    records=dict.fromkeys(("input", "valid", "test"), ()),
    value=value,
    example='(input="docs/*.txt", valid="dev.txt", vocab_size=8000, dest="data/docs")',
)
def run(parsed: Parsed) -> None:
    """Make the corpora."""
    gc.freeze()  # what was imported need not be searched for garbage time and again
    value(parsed)
