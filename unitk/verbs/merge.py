"""`unitk merge`: join the shards of a corpus."""

from __future__ import annotations

from unitk.api.verb import verb
from unitk.data.corpus.merge import Options, merge
from unitk.options.config import Parsed
from unitk.registry import register

EXAMPLE = '(parts=["data/0", "data/1"], dest="data/all")'


@register("verb", "merge")
@verb(Options, words="parts", value=lambda parsed: merge(parsed.main), example=EXAMPLE)
def run(parsed: Parsed) -> None:
    """Join the shards that are given."""
    merge(parsed.main)
