"""Perplexity of long texts in windows that overlap, for any task.

The first window predicts `context` and `stride` tokens, each later one the next `stride` tokens
after the `context` tokens before them: all windows have one length, and every token is predicted
once, as in the code of Du et al. 2022, arXiv 2103.10360, section 3.3. GLM reads the context in both
directions, or with `unidirectional` in one; a masked model gives a pseudo-perplexity. Ends of texts
are not predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from unitk.score.language import Units, perplexities
from unitk.slots import Ids

if TYPE_CHECKING:
    from unitk.decoding.generator import Generator


def windows(text: Ids, stride: int, context: int) -> list[tuple[Ids, Ids]]:
    """The context of each window of a text, and its tokens."""
    first = context + stride
    return [(text[:0], text[:first])] * (len(text) > 0) + [
        (text[at - context : at], text[at : at + stride]) for at in range(first, len(text), stride)
    ]


def rolled(
    generator: Generator,
    texts: Sequence[Ids],
    stride: int,
    context: int,
    whole_words: bool,
    max_tokens: int,
    report: Callable[[int], None],
) -> dict[str, Any]:
    """Perplexities per word, per token and per byte over all texts, and the three counts."""
    from unitk.evaluation.texts import likelihoods  # imports torch

    cut = [part for text in texts for part in windows(text, stride, context)]
    found = likelihoods(
        generator.model,
        generator.task,
        cut,
        whole_words=whole_words,
        max_tokens=max_tokens,
        name=lambda number: f"window {number + 1}",
        report=report,
    )
    nats = -sum(float(gains.sum(dtype=np.float64)) for gains, _ in found)
    whole = Units.of((generator.vocab.decode(text), len(text)) for text in texts)
    # no end of a text is predicted, nor is its first token where nothing opens it
    tokens = sum(one.shape[1] for one in found)
    units = Units(whole.texts, tokens, whole.words - whole.texts, whole.size - whole.texts)
    return {"texts": len(texts), "windows": len(cut), "nats": nats, **perplexities(nats, units)}
