"""`unitk.preprocess`: files become a vocabulary and a binary corpus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from unitk.api.arguments import takes, words
from unitk.data.corpus.columns import Counts
from unitk.data.corpus.preprocess import Options, check
from unitk.data.corpus.preprocess import preprocess as made
from unitk.options import config

if TYPE_CHECKING:
    from unitk.keywords import PreprocessOptions


@takes(Options)
def preprocess(**arguments: Unpack[PreprocessOptions]) -> dict[str, dict[str, Counts]]:
    """Make a vocabulary and a corpus as `unitk preprocess` does with the same options.

        unitk.preprocess(input="docs/*.txt", valid="dev.txt", vocab_size=8000, dest="data/docs")

    Options have the names and the values of the command line (`unitk preprocess --help`), with `_`
    for `-`. Returns what each part holds, by part and by side: `found["train"][""].tokens` of
    texts, `found["train"]["source"].tokens` of pairs. Large files are encoded by several processes,
    which import the program that calls: a script calls it under `if __name__ == "__main__":`.

    Raises `unitk.errors.UsageError` for options that cannot be meant and DataError for files.
    """
    parsed = config.parse("preprocess", Options, words(arguments))
    check(parsed)
    return made(parsed.main)
