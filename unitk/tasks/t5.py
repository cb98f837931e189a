"""T5.  Raffel et al. 2020, arXiv 1910.10683, sections 3.1.4 and 3.3.4, figure 2.

The encoder reads a text of which each hidden span is one sentinel (X, Y, ...); the decoder writes
each sentinel and its span.

    text     a  b  c  d  e  f        spans [1, 3) and [5, 6)
             enc                     dec
    token    a  X  d  e  Y  S        P  X  b  c  Y  f
    pos      0  1  2  3  4  5        0  1  2  3  4  5
    at       0  0  0  0  0  0        0  1  2  3  4  5
    label    .  .  .  .  .  .        X  b  c  Y  f  S

Shown and hidden parts take turns, a shown one first and a hidden one last; both are cut into parts
uniformly. Fine-tuning is that of an encoder-decoder. MASKs of a prompt become sentinels, and what
is written after these fills them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np

from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.options.fields import Bound, Positive, Share
from unitk.registry import register
from unitk.slots import Example, Ids, unroll
from unitk.spans import Spans, alternating_spans, places_in
from unitk.tasks.base import max_share, share_at
from unitk.tasks.seq2seq import Opening, Seq2Seq
from unitk.vocab.base import Vocab


def corrupt_spans(text: Ids, spans: Spans, sentinels: Ids) -> tuple[Ids, Ids]:
    """The ids that the encoder reads and those that the decoder writes; `spans` are in order."""
    first = spans[:, 0]
    hidden = places_in(spans)
    read = text.copy()
    kept = np.ones(len(text), bool)
    read[first] = sentinels[: len(spans)]
    kept[hidden] = False
    kept[first] = True
    # a hidden token comes after the sentinels of its span and of those before
    slot = np.arange(len(hidden)) + np.arange(1, len(spans) + 1).repeat(np.diff(spans)[:, 0])
    written = np.empty(len(hidden) + len(spans), np.int64)
    marks = np.ones(len(written), bool)
    marks[slot] = False
    written[slot] = text[hidden]
    written[marks] = sentinels[: len(spans)]
    return read[kept], written


def hidden_counts(n: Ids, share: float, mean: float, max_spans: int) -> tuple[Ids, Ids]:
    """Tokens to hide of texts of `n`, and their spans: no more than are shown, or `max_spans`."""
    hidden = np.round(share * n).clip(1, np.maximum(n - 1, 1)).astype(np.int64)
    spans = np.round(hidden / mean).astype(np.int64)
    return hidden, np.maximum(np.minimum(spans, np.minimum(n - hidden, max_spans)), 1)


class Sentinels(Seq2Seq):
    """The base of tasks that write the spans for which sentinels stand."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Seq2Seq.Config):
        """Sentinels, and what is before source and target."""

        sentinels: Positive = 100
        """Number of sentinels <extra_id_0>, <extra_id_1> and so on that are added if the vocabulary
        has none."""
        opening: Opening = "pad"
        """Symbols before source and target. pad: none before the source, [PAD] before the target,
        as in the released models. The other values are those of task seq2seq."""

    config: Config
    arch = "t5gemma_mini"
    infills = True

    def __init__(self, config: Any, vocab: Vocab) -> None:
        super().__init__(config, vocab.with_sentinels(config.sentinels))
        self.sentinels = np.array(self.vocab.sentinels)

    def add_noise(
        self, text: Ids, share: float, mean: float, rng: np.random.Generator
    ) -> tuple[Ids, Ids]:
        """Hide spans of a text; returns the ids that are read, and those that are written.

        The spans have this `share` of the tokens, and a `mean` number of tokens each.
        """
        hidden, count = hidden_counts(np.array(len(text)), share, mean, len(self.sentinels))
        spans = alternating_spans(len(text), int(hidden), int(count), rng)
        return corrupt_spans(text, spans, self.sentinels)

    def lay_out_prompt(self, ids: Ids, written: Sequence[int] = ()) -> Example:
        """The encoder reads `ids`; the decoder has `written` this so far."""
        return self.start_decoder([ids], written)

    def number_blanks(self, source: list[Ids]) -> Ids:
        """A source with a sentinel for each [MASK]."""
        ids = self.join(source)
        blanks = np.flatnonzero(ids == self.vocab.mask)
        if len(blanks) > len(self.sentinels):
            raise UsageError(
                f"a text has {len(blanks)} [MASK]s, but "
                f"the model has {len(self.sentinels)} sentinels"
            )
        ids[blanks] = self.sentinels[: len(blanks)]
        return ids

    def prompt(self, source: list[Ids]) -> Example:
        return self.lay_out_prompt(self.number_blanks(source))

    def lay_out_continuation(self, before: Ids, text: Ids) -> Example:
        """The encoder reads the context and a sentinel, the decoder the text after a sentinel."""
        prompt = self.lay_out_prompt(np.append(before, self.sentinels[0]), [self.sentinels[0]])
        return unroll(prompt, self.protocol, text)

    def fills(self, source: list[Ids], written: Ids) -> tuple[Ids, list[Ids]]:
        blanks = np.flatnonzero(self.join(source) == self.vocab.mask)
        words = written[written != self.protocol.end]
        _, *runs = np.split(words, np.flatnonzero(np.isin(words, self.sentinels)))
        # each run begins with a sentinel; of one that is written twice, the first run counts
        fills = {int(run[0]): run[1:] for run in reversed(runs)}
        numbers = self.sentinels[: len(blanks)].tolist()
        return blanks, [fills.get(sentinel, words[:0]) for sentinel in numbers]


@register("task", "t5")
class T5(Sentinels):
    """Write the spans that sentinels stand for (T5)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Sentinels.Config):
        """The law of spans, and how many sentinels there are."""

        mask_ratio: Share = 0.15
        """Share of hidden tokens (section 3.3.3). A schedule is possible: validation and evaluation
        use its last value."""
        mean_span: Annotated[float, Bound(1, below=True)] = 3.0
        """Mean length of a span, in tokens (section 3.3.4)."""

    config: Config

    def slots(self, n: Ids) -> Ids:
        c = self.config
        hidden, spans = hidden_counts(n, max_share(c.mask_ratio), c.mean_span, len(self.sentinels))
        return np.maximum(n, hidden + spans) + self.frame

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        share = share_at(self.config.mask_ratio, text.when)
        read, written = self.add_noise(text.ids, share, self.config.mean_span, rng)
        return self.finetune([read], written, rng)
