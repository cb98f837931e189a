"""XLNet.  Yang et al. 2019, arXiv 1906.08237, sections 2.2 to 2.5 and 3.1, figures 1 and 4.

Spans of a text are predicted token by token in a random order. A predicted token has two slots: as
itself, which those after it in the order see (content stream), and as Q, which is asked, sees
those before it in the order and is seen by nobody (query stream). S and C have a place in the
order, too, and are not asked for. All other tokens are seen by all.

    text     a  b  c  d  e  f        spans [1, 2) and [4, 5), parts of 4 and 2, order e S b S C
    token    a  b  c  d  S  e  f  S  C | Q  Q
    pos      0  1  2  3  4  5  6  7  8 | 1  5     a text read from its end: 8 7 6 5 4 ...
    seg      0  0  0  0  0  1  1  1  2 | 0  1
    at       0  5  0  0  3  1  0  7  9 | 4  0     place r: content 2r + 1, query 2r
    label    .  .  .  .  .  .  .  .  . | b  e

Longer texts are permuted in runs of `perm_size` slots, each of which comes after all of the runs
before it. Fine-tuning for understanding has the content stream alone. Outputs have both:

    token    a  b  S  Q | c  Q  d  Q              source a b, target c d
    pos      0  1  2  3 | 3  4  4  5
    seg      0  0  0  1 | 1  1  1  1
    at       0  0  0  0 | 1  2  3  4
    label    .  .  .  c | .  d  .  S
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np

from unitk.data.cuts import Text
from unitk.options.fields import Bound, Positive
from unitk.registry import register
from unitk.slots import Bools, Doubles, Example, Ids, Protocol, Slots, lm, query, stay, unroll
from unitk.spans import Spans, draw_lengths, length_law, places_in
from unitk.tasks.base import Encoded, Task, places_of
from unitk.vocab.base import Vocab

RUN = 16
"""The fewest slots that are permuted together: one of them is always seen by all."""


def layout(tokens: Ids, seg: Ids, pos: Ids, at: Ids, predicted: Ids, *, asking: int) -> Example:
    """Lay out framed tokens that come at these times; those at `predicted` places are asked for."""
    content = stay(tokens, pos=pos, at=at, seg=seg)
    asks = np.full(len(predicted), asking)
    queries = query(asks, pos=pos[predicted], at=at[predicted] - 1, seg=seg[predicted])
    rows = len(tokens) + np.arange(len(predicted))
    return Example({"x": content + queries}, [lm(rows, tokens[predicted])])


def context_spans(
    size: int, beside: int, share: int, law: Doubles, rng: np.random.Generator
) -> Spans:
    """Spans of lengths from the law, each anywhere in a context `share` times as long as itself.

    Contexts lie side by side, and the last one has what is left of [0, size). One place in `share`
    is in a span, `beside` others counted; one is at least, and not all of several (XLNet, 3.1).
    """
    lengths = draw_lengths(law, size // share + 1, rng)
    lengths = lengths[: int((share * lengths).cumsum().searchsorted(size, "right"))]
    # the context that the next length would need is cut off at the end
    done = int(lengths.sum())
    rest = size - share * done
    left = max((size + beside) // share, 1) - done
    contexts = np.append(share * lengths, rest)
    lengths = np.append(lengths, min(left, rest, max(size - 1, 1) - done))
    # a span begins anywhere in its context where it still ends within it
    starts = contexts.cumsum() - contexts + rng.integers(contexts - lengths + 1)
    return np.stack([starts, starts + lengths], axis=1)[lengths > 0]


def order(late: Bools, size: int, rng: np.random.Generator) -> Ids:
    """The time at which each slot comes.

    A text is cut into runs of `size` slots. The slots of a run that are not `late` come first, all
    at one even time. Its late ones follow in a random order, each at an odd time of its own.
    """
    run = np.arange(len(late)) // size
    place = np.flatnonzero(late)
    # a random order within each run
    shuffled = place[np.lexsort([rng.random(len(place)), run[place]])]
    at: Ids = 2 * run[place].searchsorted(run)  # twice the late ones in the runs before
    at[shuffled] = 2 * np.arange(len(place)) + 1
    return at


@register("task", "xlnet")
class XLNet(Task):
    """Predict spans in a random order, from both sides (XLNet)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Task.Config):
        """How much is predicted, in which order, and how texts are read."""

        one_in: Annotated[int, Bound(2)] = 6
        """Predict one token of this many (K in section 2.3); special symbols count."""
        max_span: Positive = 5
        """Maximum tokens of a span (section 3.1). A span of n tokens is drawn with a weight of 1/n
        (official code)."""
        perm_size: Annotated[int, Bound(RUN)] = 256
        """Slots that are permuted together. Longer texts are permuted in runs of this many."""
        pairs: bool = True
        """The second half of a text is cut at a random token into two segments, of which each has a
        [SEP]."""
        both_ways: bool = True
        """Read each text from its beginning and, as another example, from its end (section
        3.1)."""

    config: Config
    arch = "xlnet_small"

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        self.frame = 3 if config.pairs else 2
        self.both_ways = config.both_ways
        self.first_rows = {"embed.virtual.weight": ("embed.tokens.weight", (vocab.mask,))}
        self.virtual = ("[Q]",)
        self.asking = len(vocab)
        self.law = length_law(tuple(1 / n for n in range(1, config.max_span + 1)))

    @cached_property
    def protocol(self) -> Protocol:
        v = self.vocab
        return Protocol(end=v.sep, probe=self.asking, unseen=True, banned=(v.pad, v.cls, v.mask))

    def slots(self, n: Ids) -> Ids:
        return n + self.frame + np.maximum((n + self.frame) // self.config.one_in, 1)

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        ids = text.ids[::-1] if text.flag else text.ids
        n = len(text.ids)
        spans = context_spans(n, self.frame, self.config.one_in, self.law, rng)
        cut = int(rng.integers(max(n // 2, 1), n)) if self.config.pairs and n > 1 else n
        tokens, seg = self.frame_parts([part for part in np.split(ids, [cut]) if len(part)])
        chosen = places_in(spans)
        predicted = np.sort(chosen + (chosen >= cut))  # after the first S
        late = np.zeros(len(tokens), bool)
        # each part's S, and C; an S between documents is a word like any other
        late[predicted] = late[[cut, -2, -1]] = True
        late[-2] = n > 1  # where all of a text is predicted, it is so after S
        pos = np.arange(len(tokens))[:: -1 if text.flag else 1]
        at = order(late, self.config.perm_size, rng)
        return layout(tokens, seg, pos, at, predicted, asking=self.asking)

    def frame_parts(self, parts: list[Ids]) -> tuple[Ids, Ids]:
        """Each part with an S, and C; the segments are 0, 1 and C's 2."""
        tokens = np.concatenate([*(np.append(part, self.vocab.sep) for part in parts), [0]])
        tokens[-1] = self.vocab.cls
        sizes = [len(part) + 1 for part in parts]
        seg = np.minimum(np.arange(len(parts)).repeat(sizes), 1)
        return tokens, np.append(seg, 2)

    def reading(self, source: list[Ids]) -> Slots:
        tokens, seg = self.frame_parts(source)
        return stay(tokens, pos=np.arange(len(tokens)), seg=seg)

    def lay_out_parts(self, parts: list[Ids]) -> Encoded:
        """a S b S C, read at C, which comes last."""
        slots = self.reading(parts)
        return Encoded(Example({"x": slots}), "x", len(slots) - 1, places_of(parts, 0))

    def finetune(self, source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        written = np.append(target, self.vocab.sep)
        return unroll(self.lay_out_prompt(self.join(source), answers=True), self.protocol, written)

    def lay_out_continuation(self, before: Ids, text: Ids) -> Example:
        return unroll(self.lay_out_prompt(before, answers=False), self.protocol, text)

    def prompt(self, source: list[Ids]) -> Example:
        return self.lay_out_prompt(self.join(source), self.trained.pairs)

    def lay_out_prompt(self, source: Ids, answers: bool) -> Example:
        """A source that is answered, S after it, or continued, S before it."""
        end = [self.vocab.sep]
        tokens = np.concatenate([source, end] if answers else [end, source]).astype(np.int64)
        n = len(tokens)
        asked = query([self.asking], [n], at=0, seg=int(answers))
        return Example({"x": stay(tokens, pos=np.arange(n)) + asked})
