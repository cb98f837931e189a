"""Texts as hashes of their words, so that case, blanks, marks and pieces do not tell them apart.

The letters of all tokens are in one array, with a gap where two words meet. Only the pieces of a
vocabulary are spelt out in Python, each once.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import regex

from unitk.data.corpus.corpus import Corpus
from unitk.slots import Ids
from unitk.vocab.base import Vocab
from unitk.vocab.scripts import UNSPACED

STEP = 1 << 20  # tokens that are read at a time
BASE = np.uint64(0x9E3779B97F4A7C15)
INVERSE = np.uint64(pow(int(BASE), -1, 1 << 64))  # an odd number has one modulo 2^64
GAP = 0  # where two words meet
UNSPELLED = 1 << 21  # beyond all characters: ids that have no text of their own
LONE = regex.compile(UNSPACED, regex.V1)

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class HashedTexts:
    """The hashes of the words of D texts, and where each text begins among them, [D + 1]."""

    words: Hashes
    bounds: Ids

    @property
    def lengths(self) -> Ids:
        """The number of words of each text."""
        return np.diff(self.bounds)

    def text(self, number: int) -> Hashes:
        """The words of a text."""
        return self.words[self.bounds[number] : self.bounds[number + 1]]


@dataclass(frozen=True)
class Spelling:
    """The letters of each id of a vocabulary: those of id i are [first[i], first[i + 1]).

    One id more stands for a gap.
    """

    letters: Hashes
    first: Ids

    @classmethod
    def of(cls, vocab: Vocab) -> Spelling:
        """The letters that the ids of a vocabulary stand for."""
        spelled = [spell_id(vocab, index) for index in range(len(vocab))]
        spelled.append([GAP])
        letters = np.array([code for codes in spelled for code in codes], np.uint64)
        return cls(letters, np.cumsum([0, *map(len, spelled)]))

    def hash_words(self, tokens: Ids, texts: Ids, sentences: Ids) -> HashedTexts:
        """The words of texts that begin at the tokens `texts` [D + 1], in sentences that begin at
        the tokens `sentences` [S + 1], among which those of the texts are."""
        # a gap in front of each sentence, so that no word belongs to two
        ids = np.insert(tokens, sentences[:-1], len(self.first) - 2)
        size = np.diff(self.first)[ids]
        at = np.append(0, np.cumsum(size))  # where the letters of each id begin
        letters = self.letters[np.arange(at[-1]) + np.repeat(self.first[ids] - at[:-1], size)]
        inner = letters != GAP
        begins = inner & ~np.append(False, inner[:-1])
        # the place of each letter in its word; gaps are 0 and add nothing
        where = np.arange(len(letters))
        since = where - np.maximum.accumulate(np.where(begins, where, 0))
        first = np.flatnonzero(begins)
        weighted = letters * powers(BASE, int(since.max(initial=0)) + 1)[since]
        words = np.add.reduceat(weighted, first) if len(first) else letters[:0]
        # the gaps before a text count in the places of its tokens
        gaps = np.searchsorted(sentences[:-1], texts)
        return HashedTexts(mix_bits(words), np.searchsorted(first, at[texts + gaps]))


def spell_id(vocab: Vocab, index: int) -> list[int]:
    """The letters that an id adds to a text."""
    if index >= vocab.model.size or vocab.model.is_control(index):
        return [UNSPELLED + index] if index == vocab.unk else []
    text = vocab.model.text(index)
    # such as a byte of a character
    return [UNSPELLED + index] if not text or index == vocab.unk else fold_letters(text)


def fold_letters(text: str) -> list[int]:
    """The folded letters and digits of a text, and the gaps between its words."""
    folded = list[int]()
    for letter in unicodedata.normalize("NFKC", text).casefold():
        if letter.isspace():
            folded.append(GAP)
        elif LONE.match(letter):
            folded += [GAP, ord(letter), GAP]
        # marks part no words, so that "don't" is "dont"
        elif letter.isalnum():
            folded.append(ord(letter))
    return folded


def folded_words(text: str) -> list[str]:
    """The words of a text as they are compared."""
    return "".join(chr(code) if code != GAP else " " for code in fold_letters(text)).split()


def hash_corpus(corpus: Corpus, vocab: Vocab) -> Iterator[HashedTexts]:
    """The documents of a corpus in order, about `STEP` tokens at a time."""
    spelling = Spelling.of(vocab)
    sentences = np.asarray(corpus.sentences).astype(np.int64)
    documents = np.asarray(corpus.documents).astype(np.int64)
    bounds = sentences[documents]
    first = 0
    while first < len(bounds) - 1:  # one document at least, however long it is
        last = int(np.searchsorted(bounds, bounds[first] + STEP, "right")) - 1
        last = min(max(last, first + 1), len(bounds) - 1)
        tokens = corpus.tokens(int(bounds[first]), int(bounds[last]))
        inner = sentences[documents[first] : documents[last] + 1]
        yield spelling.hash_words(
            tokens, bounds[first : last + 1] - bounds[first], inner - inner[0]
        )
        first = last


def mix_bits(hashes: Hashes) -> Hashes:
    """Hashes whose bits all depend on all bits (Steele et al. 2014, SplitMix, figure 15)."""
    hashes = (hashes ^ (hashes >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashes = (hashes ^ (hashes >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return hashes ^ (hashes >> np.uint64(31))


def powers(base: np.uint64, count: int) -> Hashes:
    """The first powers of a number modulo 2^64, from the first one on."""
    return np.cumprod(np.full(count, base, np.uint64), dtype=np.uint64)


def hash_runs(words: Hashes, size: int) -> Hashes:
    """A hash of the `size` words from each word on, but the last ones."""
    count = max(len(words) - size + 1, 0)
    sums = np.append(np.uint64(0), np.cumsum(words * powers(BASE, len(words))))
    # sums modulo 2^64: a difference of two is that of the words between them
    return mix_bits((sums[size : size + count] - sums[:count]) * powers(INVERSE, count))


def runs_within(texts: HashedTexts, size: int) -> tuple[Hashes, Ids]:
    """The hashes of the runs that do not cross the end of a text, and the text of each."""
    hashes = hash_runs(texts.words, size)
    lengths = texts.lengths
    text = np.repeat(np.arange(len(lengths)), lengths)[: len(hashes)]
    inside = texts.bounds[text + 1] - np.arange(len(hashes)) >= size
    return hashes[inside], text[inside]


def hash_texts(texts: HashedTexts) -> tuple[Hashes, Hashes]:
    """A hash of each text, and for each word of all texts, the hash of its text without it."""
    starts = texts.bounds[:-1]
    lengths = texts.lengths
    place = np.arange(len(texts.words)) - np.repeat(starts, lengths)
    weighted = texts.words * powers(BASE, int(lengths.max(initial=0)))[place]
    sums = np.append(np.uint64(0), np.cumsum(weighted))
    whole = sums[texts.bounds[1:]] - sums[starts]
    before = sums[:-1] - np.repeat(sums[starts], lengths)
    # what follows the word moves to the place before
    after = (np.repeat(whole, lengths) - before - weighted) * INVERSE
    return mix_bits(whole), mix_bits(before + after)


def join_texts(parts: Iterable[HashedTexts]) -> HashedTexts:
    """Texts that were read in parts, as one."""
    texts_of_parts = [*parts]
    words = np.concatenate([np.zeros(0, np.uint64), *(texts.words for texts in texts_of_parts)])
    return HashedTexts(
        words, np.cumsum([0, *(n for texts in texts_of_parts for n in texts.lengths)])
    )
