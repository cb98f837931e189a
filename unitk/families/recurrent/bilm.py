"""Bidirectional language model.  Peters et al. 2018, arXiv 1802.05365, section 3.1.

Two towers read the same words, one forward, one backward. Each predicts the word that comes next to
it, and the loss is the mean of both.

    text          a  b  c
    token      C  a  b  c  S
    pos        0  1  2  3  4
    fwd: at    0  1  2  3  4
         label a  b  c  S  .
    bwd: at    0 -1 -2 -3 -4
         label .  C  a  b  c
    fwd.chars  a row for each slot: the characters of its word

C and S are where a document begins and ends. Where a block cuts it, the words next to the block
are labels of its last and first word: of c d in a b c d e, fwd is asked for d e, bwd for b c.

Characters are ids as in the released models (bilm-tf): a byte b is 1 + b, a row begins with 259 and
ends with 260, C and S are 257 and 258 between these, 261 fills it up. 0 is no word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated

import numpy as np

from unitk.data.cuts import Text
from unitk.options.fields import Bound
from unitk.registry import register
from unitk.slots import Example, Ids, lm, stay
from unitk.tasks.base import Encoded, Task, places_of
from unitk.vocab.base import Vocab

CLS, SEP, BEGIN, END, FILL = 257, 258, 259, 260, 261
NOTHING = np.empty(0, np.int64)


def layout(tokens: Ids, chars: Ids, before: Ids = NOTHING, after: Ids = NOTHING) -> Example:
    """Lay out tokens, each asked from both sides, and the ones next to them [1] or [0], which are
    labels only; chars [T, C] are the characters of each."""
    places = np.arange(len(tokens))
    towers = {name: stay(tokens, pos=places, at=places * sign) for name, sign in WAYS.items()}
    later = np.append(tokens[1:], after)
    earlier = np.append(before, tokens[:-1])
    asks = [
        lm(places[: len(later)], later, name="fwd", tower="fwd"),
        lm(places[len(places) - len(earlier) :], earlier, name="bwd", tower="bwd"),
    ]
    return Example(towers, asks, inputs={"fwd.chars": chars})


WAYS = {"bwd": -1, "fwd": 1}


def spell_word(word: str, characters: int, symbol: int = 0) -> Ids:
    """The characters of a word as ids [C], or those of C or S; 0 for no word."""
    codes = [symbol] if symbol else [1 + byte for byte in word.encode()[: characters - 2]]
    ids = [BEGIN, *codes, END]
    return np.array(ids + [FILL] * (characters - len(ids)))


@register("task", "bilm")
class BiLM(Task):
    """Predict each word from those before it, and from those after it (ELMo)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Task.Config):
        """Ends of texts, and characters of words."""

        ends: bool = True
        """Enclose documents in [CLS] and [SEP], which are read and predicted, too. Where --blocks
        cuts a document, there are none. off: there are none at all, nor separators in a stream."""
        characters: Annotated[int, Bound(3)] = 50
        """Length of a word in bytes of UTF-8, with its begin and end. Longer ones are cut off."""

    config: Config
    arch = "elmo_small"
    asks = {"fwd": 0.5, "bwd": 0.5}

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        self.separates = config.ends
        self.frame = 2 * config.ends

    @cached_property
    def chars(self) -> Ids:
        """The characters [V, C] of every id of the vocabulary."""
        vocab = self.vocab
        size = self.config.characters
        named = {vocab.cls: CLS, vocab.sep: SEP}
        pieces = vocab.pieces(list(range(len(vocab))))
        rows = [spell_word(piece, size, named.get(id_, 0)) for id_, piece in enumerate(pieces)]
        rows[vocab.pad] = np.zeros(size, np.int64)
        return np.stack(rows)

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        first, last = (self.config.ends and edge for edge in (text.begins, text.ends))
        cls = [self.vocab.cls] if first else []
        sep = [self.vocab.sep] if last else []
        tokens = np.concatenate([cls, text.ids, sep]).astype(np.int64)
        # words of other documents are asked for where what was read of these is carried on
        before = text.before if not text.begins or (text.carried and not first) else NOTHING
        after = text.after if not text.ends or (text.carried and not last) else NOTHING
        return layout(tokens, self.chars[tokens], before, after)

    def to_embed(self, source: list[Ids]) -> Example:
        return self.lay_out_parts(source).example

    def lay_out_parts(self, parts: list[Ids]) -> Encoded:
        """C a S b S: the last S has read everything forward; a head reads both directions."""
        tokens, _ = self.frame_parts(parts)
        example = replace(layout(tokens, self.chars[tokens]), asks=[])
        return Encoded(example, "fwd", len(tokens) - 1, places_of(parts, 1))
