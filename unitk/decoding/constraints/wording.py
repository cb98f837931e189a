"""From words to ids for the rules of the search; torch-free."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from unitk.data.reading.sources import read_lines
from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.demands import Lexicon
from unitk.errors import DataError, UsageError
from unitk.vocab.base import Vocab


def lexicon(config: GenerateConfig, vocab: Vocab) -> Lexicon:
    """What the options say of certain words."""
    free = tuple(_spellings(config.no_repeat_ngram_ignore.split(), vocab))
    bad = _bad_words(config.bad_words, vocab) if config.bad_words else ()
    symbols = dict(zip(vocab.pieces(vocab.symbols.values()), vocab.symbols.values(), strict=True))
    allowed = config.allow_symbols.split()
    if lacking := [word for word in allowed if word not in symbols]:
        known = ", ".join(symbols)
        raise UsageError(f"--allow-symbols: {lacking[0]} is no special symbol (known: {known})")
    unk = vocab.unk if config.unkpen else None
    return Lexicon(unk, free, tuple(bad), tuple(symbols[word] for word in allowed))


def _spellings(words: list[str], vocab: Vocab) -> Iterator[int]:
    """Every id that spells one of the words, whether it begins a word or goes on within one."""
    for word in words:
        if word not in _spelt(vocab):
            raise UsageError(f"--no-repeat-ngram-ignore: {word!r} is no piece of the vocabulary")
        yield from sorted(_spelt(vocab)[word])


@functools.lru_cache(maxsize=4)
def _spelt(vocab: Vocab) -> dict[str, set[int]]:
    """Ids by the text that they stand for, and by how they are spelt."""
    found: dict[str, set[int]] = defaultdict(set)
    for index, piece in enumerate(vocab.pieces(range(len(vocab)))):
        found[piece].add(index)
    for index in range(vocab.model.size):
        found[vocab.model.text(index).strip()].add(index)
    return dict(found)


def _bad_words(path: Path, vocab: Vocab) -> list[tuple[int, ...]]:
    """The spellings of each line, at the beginning of a text and after a blank."""
    lines = [line.strip() for line in read_lines(path)]
    found = {tuple(vocab.encode(start + line)) for line in lines if line for start in ("", " ")}
    # what the vocabulary cannot spell is never written
    return sorted(ids for ids in found if ids and vocab.unk not in ids)


def encode_phrase(text: str, vocab: Vocab, where: str) -> tuple[int, ...]:
    """The ids of words that must be written; DataError if the vocabulary lacks one."""
    ids = tuple(vocab.encode(text))
    if vocab.unk in ids:
        words = [word for word in text.split() if vocab.unk in vocab.encode(word)]
        raise DataError(f"{where}: the vocabulary cannot spell {(' '.join(words) or text)!r}")
    return ids
