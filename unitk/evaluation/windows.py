"""Perplexity of long texts in windows that overlap, for any task.

The first window predicts `context` and `stride` tokens, each later one the next `stride` tokens
after the `context` tokens before them: all windows have one length, and every token is predicted
once, as in the code of Du et al. 2022, arXiv 2103.10360, section 3.3. GLM reads the context in both
directions, or with `unidirectional` in one; a masked model gives a pseudo-perplexity. Ends of texts
are not predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from unitk.data.corpus.corpus import Corpus
from unitk.data.corpus.folders import open_corpus
from unitk.evaluation.base import Judged, Progress, Scoring, figure_lines
from unitk.metrics.language import Units, perplexities
from unitk.options.fields import Count, Positive
from unitk.registry import register
from unitk.slots import Ids, exact_sum

if TYPE_CHECKING:
    from unitk.decoding.generator import Generator


def cut_windows(text: Ids, stride: int, context: int) -> list[tuple[Ids, Ids]]:
    """The context of each window of a text, and its tokens."""
    if not len(text):
        return []
    first = context + stride
    later = range(first, len(text), stride)
    others = [(text[at - context : at], text[at : at + stride]) for at in later]
    return [(text[:0], text[:first]), *others]


@register("evaluation", "stride")
@dataclass(frozen=True, kw_only=True)
class WindowedPerplexity(Scoring):
    """Perplexities of long texts, read in windows that overlap."""

    stride: Positive | None = None
    """With --data: compute the perplexity of its documents in windows that each predict this many
    tokens. With --bits, the default is what half of the model's positions have room for, and 512 at
    most."""
    context: Count | None = None
    """Tokens before a window that the model also reads; there are fewer at the start of a text.
    Default: 256. With --bits, as many as --stride."""
    on_corpus = True

    def cut(self, text: Ids) -> list[tuple[Ids, Ids]]:
        """The context of each window of a text, and its tokens."""
        assert self.stride is not None
        return cut_windows(text, self.stride, 256 if self.context is None else self.context)

    def read(self, paths: Sequence[Path]) -> list[list[Ids]]:
        [corpus] = map(open_corpus, paths)
        assert isinstance(corpus, Corpus)
        return [corpus.document(i) for i in range(len(corpus))]

    def judge(
        self, generator: Generator, documents: Sequence[list[Ids]], progress: Progress
    ) -> Judged:
        """Perplexities per word, per token and per byte over all texts, and the three counts."""
        texts = [np.concatenate(sentences) for sentences in documents]
        cut = [part for text in texts for part in self.cut(text)]

        def name(number: int) -> str:
            return f"window {number + 1}"

        likelihoods = self.likelihoods(generator, cut, name, progress, unit="windows")
        nats = -sum(exact_sum(gains) for gains, _ in likelihoods)
        # no end of a text is predicted, nor is its first token where nothing opens it
        sizes = iter(likelihood.shape[1] for likelihood in likelihoods)
        asked = []
        for sentences, text in zip(documents, texts, strict=True):
            unasked = len(text) - sum(next(sizes) for _ in self.cut(text))
            ends = np.cumsum([*map(len, sentences)])
            asked.append(np.split(text[unasked:], (ends[:-1] - unasked).clip(0)))
        units = Units.of(asked, generator.vocab.decode).with_ends(0)
        figures = {"texts": len(texts), "windows": len(cut), "nats": nats}
        figures |= perplexities(nats, units)
        return Judged(figures, figure_lines(figures))
