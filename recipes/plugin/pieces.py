"""`unitk pieces`: print the pieces of texts, one text a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from unitk.api.verb import verb
from unitk.errors import require
from unitk.options.config import Parsed
from unitk.registry import register
from unitk.vocab.open import open_vocab


@dataclass(frozen=True, kw_only=True)
class Options:
    """Print the pieces of which a vocabulary makes texts.

    unitk pieces --user-dir recipes/plugin --vocab unitk-base-en "The cats sleep."
    """

    texts: tuple[str, ...] = ()
    """Texts, each in quotes."""
    vocab: Path
    """Corpus, checkpoint or tokenizer file whose vocabulary is used."""
    user_dir: Path | None = None
    """Folder of plug-ins. Every .py file in it is imported."""


@register("verb", "pieces")
@verb(Options, words="texts")
def run(parsed: Parsed) -> None:
    """Print them."""
    options: Options = parsed.main
    require(len(options.texts) > 0, "a text is needed")
    vocab = open_vocab(options.vocab)
    for text in options.texts:
        print(*vocab.pieces(vocab.encode(text)))
