"""Constraints on outputs as token ids: what they must and must not contain; torch-free."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from unitk.data.files.lines import read_lines
from unitk.decoding.config import GenerateConfig, length
from unitk.errors import DataError, UsageError, require
from unitk.registry import nearest
from unitk.slots import Ids
from unitk.vocab.base import Vocab

HYPHENS = "-\u2010\u2011_/"
"""Characters that can be inside a word, besides letters and digits."""

Phrases = tuple[tuple[int, ...], ...]
"""Runs of words."""


@dataclass(frozen=True)
class Constraint:
    """The constraint on the outputs of one input."""

    prefix: tuple[int, ...] = ()
    """The words that they begin with; of several blanks, the first one does."""
    phrases: Phrases = ()  # runs of words that they contain, in any order
    avoid: Phrases = ()  # runs of words that they do not contain
    min_len: int = 0  # fewest words of a blank
    max_len: int = 0  # most words of a blank
    apart: bool = False  # it does not begin inside a word
    own: Any = None  # what only another search knows, which begins with `own.search(request)`

    def with_lengths(
        self, config: GenerateConfig, words: int, *, exactly: int | None = None, name: str = ""
    ) -> Constraint:
        """This constraint with the lengths for a source of this many words.

        `exactly` is the only length allowed. Raises DataError, which names the input, if no output
        can meet the constraint.
        """
        low = length(config.min_len, words) if exactly is None else exactly
        high = max(1, length(config.max_len, words)) if exactly is None else exactly
        if low > high:
            raise DataError(
                f"{name}: --min-len {config.min_len} is {low} here, and --max-len {high}"
            )
        if len(self.prefix) > high:
            raise DataError(
                f"{name} begins with {len(self.prefix)} tokens, and --max-len is {high}"
            )
        longest = max(map(len, self.phrases), default=0)  # they may overlap
        if longest > high:
            raise DataError(f"{name} needs a phrase of {longest} tokens, and --max-len is {high}")
        return replace(self, min_len=low, max_len=high)


@dataclass(frozen=True)
class WordRules:
    """Rules about single words, which hold for the outputs of all inputs."""

    unk: int | None = None  # the unknown word, which `--unkpen` makes less likely
    free: tuple[int, ...] = ()  # words with which an n-gram may be repeated
    bad: tuple[tuple[int, ...], ...] = ()  # runs of words that are never written
    allowed: tuple[int, ...] = ()  # symbols that may be written though the task bans them
    inside: tuple[int, ...] = ()  # what goes on inside a word
    ends: tuple[int, ...] = ()  # what ends an output besides the task's end symbol


@dataclass(frozen=True)
class Constraints:
    """The constraints of several inputs."""

    by_input: Sequence[Constraint]
    words: WordRules = field(default_factory=WordRules)

    @staticmethod
    def plain(config: GenerateConfig, count: int) -> Constraints:
        """Constraints for this many inputs that only hold the lengths of the config."""
        return Constraints([Constraint().with_lengths(config, 0)] * count)

    def select(self, numbers: Sequence[int]) -> Constraints:
        """The constraints of these inputs."""
        return Constraints([self.by_input[i] for i in numbers], self.words)

    @property
    def max_len(self) -> int:
        """The longest output that any constraint allows, in words of one blank."""
        return max(constraint.max_len for constraint in self.by_input)


def word_rules(config: GenerateConfig, vocab: Vocab) -> WordRules:
    """The rules of the options, in words of a vocabulary."""
    free = tuple(_pieces_of(config.no_repeat_ngram_ignore.split(), vocab))
    lines = read_lines(config.bad_words) if config.bad_words else ()
    bad = sorted({ids for line in lines for ids in spellings(line, vocab)})
    require(bool(bad) or config.bad_words is None, f"{config.bad_words} holds no word")
    symbols = _symbols(vocab)
    allowed = config.allow_symbols.split()
    if lacking := [word for word in allowed if word not in symbols]:
        known = ", ".join(symbols)
        raise UsageError(f"--allow-symbols: {lacking[0]} is not a special symbol (known: {known})")
    unk = vocab.unk if config.unkpen else None
    inside = _continuing_ids(vocab) if config.begin_word else ()
    return WordRules(
        unk=unk,
        free=free,
        bad=tuple(bad),
        allowed=tuple(symbols[word] for word in allowed),
        inside=inside,
        ends=find_ends(config, vocab),
    )


def ends_in_word(source: Sequence[Ids], vocab: Vocab) -> bool:
    """Whether a source ends within a word, which an output could continue."""
    tail = vocab.decode(source[-1][-4:]) if source else ""
    return joins(tail[-1:])


@functools.lru_cache(maxsize=4)
def _continuing_ids(vocab: Vocab) -> tuple[int, ...]:
    """The ids whose text continues a word."""
    starts = vocab.starts.tolist()
    first = [vocab.model.text(index)[:1] for index in range(vocab.model.size)]
    return tuple(index for index, char in enumerate(first) if not starts[index] and joins(char))


def joins(character: str) -> bool:
    """Whether a character can be inside a word; "" cannot."""
    return character.isalnum() or (character != "" and character in HYPHENS)


def _symbols(vocab: Vocab) -> dict[str, int]:
    """The ids of the special symbols, by their names."""
    ids = vocab.symbols.values()
    return dict(zip(vocab.pieces(ids), ids, strict=True))


def find_ends(config: GenerateConfig, vocab: Vocab) -> tuple[int, ...]:
    """The ids of further tokens that end an output."""
    return tuple(_find_token(word, vocab) for word in config.end_symbols.split())


def _find_token(name: str, vocab: Vocab) -> int:
    """The id of a token by its name, as the vocabulary spells it."""
    index = _symbols(vocab).get(name, vocab.model.find(name))
    if index is None:
        pieces = vocab.pieces(range(len(vocab)))
        near = nearest(name, [piece for piece in pieces if piece[:1] == name[:1]])
        raise UsageError(f"--end-symbols: {name!r} is not a token of the vocabulary{near}")
    return index


def _pieces_of(words: list[str], vocab: Vocab) -> Iterator[int]:
    """All ids that spell one of the words, at the beginning of a word or within one."""
    for word in words:
        require(
            word in _group_by_text(vocab),
            f"--no-repeat-ngram-ignore: {word!r} is not a piece of the vocabulary",
        )
        yield from sorted(_group_by_text(vocab)[word])


@functools.lru_cache(maxsize=4)
def _group_by_text(vocab: Vocab) -> dict[str, set[int]]:
    """Ids grouped by the text they stand for."""
    groups: dict[str, set[int]] = defaultdict(set)
    for index, piece in enumerate(vocab.pieces(range(len(vocab)))):
        groups[piece].add(index)
    for index in range(vocab.model.size):
        groups[vocab.model.text(index).strip()].add(index)  # "." and "▁." read alike
    return dict(groups)


def spellings(phrase: str, vocab: Vocab) -> set[tuple[int, ...]]:
    """A phrase at the beginning of a text and after a blank; nothing where the vocabulary fails."""
    phrase = phrase.strip()
    spelled = {tuple(vocab.encode(start + phrase)) for start in ("", " ") if phrase}
    return {ids for ids in spelled if ids and vocab.unk not in ids}  # others are never written


def encode_phrase(text: str, vocab: Vocab, where: str) -> tuple[int, ...]:
    """The token ids of a phrase that must be written; DataError if the vocabulary lacks a word."""
    ids = tuple(vocab.encode(text))
    if vocab.unk in ids:
        words = [word for word in text.split() if vocab.unk in vocab.encode(word)]
        raise DataError(f"{where}: the vocabulary cannot spell {(' '.join(words) or text)!r}")
    return ids
