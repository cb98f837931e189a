"""Texts whose blanks a model fills: outputs become texts, which are ranked as wholes.

As a model writes into a blank, it cannot weigh how long the blank is, and it ends where it likes
best: in the middle of what the text goes on with, or not at all. As a language model, the same
weights read the whole text. So blanks are filled in several lengths, and the texts are ranked by
their log-probability. A masked language model has been used so to rank hypotheses (Salazar et al.
2020, arXiv 1910.14659, section 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unitk.decoding.config import GenerateConfig, length, slope
from unitk.decoding.fill import filled_in
from unitk.decoding.search import Output
from unitk.errors import require
from unitk.evaluation.texts import likelihoods
from unitk.slots import Ids

if TYPE_CHECKING:
    from unitk.decoding.generator import Generator
    from unitk.tasks.base import Task

LENGTHS = 1, 2, 3
"""Most tokens of a blank in the searches beside that of `max_len`."""


def fill(
    generator: Generator,
    texts: Sequence[str],
    sources: Sequence[list[Ids]],
    config: GenerateConfig,
    **how: Any,
) -> list[list[Output]]:
    """The n best ways to fill the blanks of texts, whose ids are `sources`.

    `how` are the other arguments of `Generator.outputs`. Texts are ranked as wholes if the options
    say so; the score of an output is its log-probability then.
    """
    reader, name = generator.reader, generator.task.name
    plain = config.sampling or config.beam == 1 or generator.task.driver != "steps"
    if config.rerank == "on":
        require(reader is not None, "--rerank needs a model that was trained with --task lm, too")
        require(
            not plain,
            f"--rerank on ranks the outputs of a beam; task {name}, --beam 1 and draws have none",
        )
    if reader is None or plain or config.rerank == "off":
        outputs = generator.outputs(sources, config, **how)
        return refill(generator.task, texts, sources, outputs)
    quiet = {**how, "report": lambda done: None}
    *shorter, last = searches(config)
    found = [generator.outputs(sources, one, **quiet) for one in shorter]
    found.append(generator.outputs(sources, last, **how))
    task = generator.task
    each = []
    for text, source, *ways in zip(texts, sources, *found, strict=True):
        every = [one for some in ways for one in some]
        # a piece may be a blank alone, which fills nothing
        shown = [one for one in every if is_seen(task, source, one.hypothesis.ids)] or every
        [filled] = refill(task, [text], [source], [shown])
        each.append(list({one.text: one for one in filled}.values()))
    return rank(generator, reader, each, config.nbest)


def searches(config: GenerateConfig) -> list[GenerateConfig]:
    """The searches for candidates: some with short blanks, and the one that was asked for."""
    wide = replace(config, nbest=config.beam)
    if slope(config.min_len) or slope(config.max_len) or config.max_words is not None:
        return [wide]
    least, most = max(1, length(config.min_len, 0)), length(config.max_len, 0)
    wide = replace(wide, min_len=least)  # nothing at all is likely, and fills no blank
    return [*(replace(wide, max_len=n) for n in LENGTHS if least <= n < most), wide]


def is_seen(task: Task, source: list[Ids], written: Ids) -> bool:
    """Whether something can be seen in each blank."""
    blanks, fills = task.fills(source, written)
    return all(task.vocab.decode(fill).strip() for fill in fills[: len(blanks)])


def rank(
    generator: Generator, reader: Task, each: Sequence[Sequence[Output]], nbest: int
) -> list[list[Output]]:
    """The outputs whose texts are likeliest, each with that log-probability as its score."""
    nothing = np.zeros(0, np.int64)
    texts = [one.text for some in each for one in some]
    pairs = [(nothing, ids) for (ids,) in generator.encode([[text] for text in texts])]
    gains = iter(likelihoods(generator.model, reader, pairs, truncate=True))
    ranked = []
    for some in each:
        scored = [
            replace(one, hypothesis=replace(one.hypothesis, score=float(next(gains)[0].sum())))
            for one in some
        ]
        ranked.append(sorted(scored, key=lambda one: -one.hypothesis.score)[:nbest])
    return ranked


def refill(
    task: Task,
    texts: Sequence[str],
    sources: Sequence[list[Ids]],
    found: Sequence[Sequence[Output]],
) -> list[list[Output]]:
    """Outputs for texts with blanks, which keep the other characters of their text."""
    return [
        [replace(one, text=filled_in(task, text, source, one.hypothesis.ids)) for one in outputs]
        for text, source, outputs in zip(texts, sources, found, strict=True)
    ]
