"""`unitk merge`: join the shards of a corpus."""

from __future__ import annotations

from collections.abc import Sequence

from unitk.data.corpus.merge import Options, merge
from unitk.options import config


def run(argv: Sequence[str]) -> None:
    """Join them."""
    merge(config.parse("merge", Options, argv, positional="parts").main)
