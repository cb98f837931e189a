"""Ranks outputs by how much better they fit one part of their source than other words there.

A beam of questions about a passage has some that many answers would fit. Such a question is nearly
as likely where another word of the passage stands for the answer. This is the idea of maximum
mutual information (Li et al. 2016, arXiv 1510.03055) with other sources in place of none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraint
from unitk.decoding.drivers import Prompt
from unitk.decoding.forced import TargetScorer
from unitk.decoding.likelihood import score_shared
from unitk.decoding.search import Hypothesis
from unitk.slots import Ids, unroll
from unitk.vocab.base import Vocab

WORD = re.compile(r"\w[\w'’-]*")
OTHERS = 5
"""The most words that stand in place of the part, one after the other."""
ROW = 1024
"""Slots of a row, in which all outputs follow one source."""


def contrast(
    scorer: TargetScorer, prompt: Prompt, best: Sequence[Hypothesis], config: GenerateConfig
) -> list[Hypothesis]:
    """Sort the outputs of a prompt, best first; their scores do not change.

    An output ranks by s + c (l - o): s is its score, c is `--contrast`, l its log-probability, and
    o its highest one with another word of the source in place of the part `--avoid-part`.
    """
    at = config.avoid_part - 1
    source = prompt.source
    others = other_words(source, at, scorer.task.source_vocab) if at < len(source) else []
    if not others:
        return list(best)
    sources = [source, *([*source[:at], word, *source[at + 1 :]] for word in others)]
    alike = sorted(range(len(best)), key=lambda i: tuple(best[i].ids))  # neighbours begin alike
    plain = replace(config, contrast=0.0, avoid_part=0, max_source_len=None)
    longest = Constraint(tuple(max((hypothesis.ids for hypothesis in best), key=len).tolist()))
    prompts = [scorer.prompt(prompt.number, variant, longest, plain, True) for variant in sources]
    laid = [
        unroll(variant.example, scorer.protocol, best[i].ids) for variant in prompts for i in alike
    ]
    gains = score_shared(scorer.model, laid, config.max_tokens, row=ROW)
    sums = np.reshape([gain[0].sum() for gain in gains], (-1, len(best)))
    scores = np.array([best[i].score for i in alike])
    ranks = scores + config.contrast * (sums[0] - sums[1:].max(axis=0))
    return [best[alike[i]] for i in np.lexsort((alike, -ranks))]


def other_words(source: Sequence[Ids], at: int, vocab: Vocab) -> list[Ids]:
    """The longest words of the source that the part `at` lacks, as ids."""
    texts = [vocab.decode(part) for part in source]
    own = {word.casefold() for word in WORD.findall(texts[at])}
    words_of_others = dict.fromkeys(WORD.findall(" ".join(texts[:at] + texts[at + 1 :])))
    lacking = [word for word in words_of_others if word.casefold() not in own]
    longest = sorted(lacking, key=len, reverse=True)[:OTHERS]
    return [np.array(vocab.encode(word), np.int64) for word in longest]
