"""Fills the blanks of texts, and ranks the filled texts as wholes.

A model that writes into a blank cannot foresee how well the blank's end fits what follows it. As a
language model, the same weights can score the whole text. Blanks are therefore filled in several
lengths, and the texts are ranked by their log-probability and, with less weight, that of their
blanks. Salazar et al. 2020, arXiv 1910.14659, section 2, rank hypotheses by a masked language model
in this way. Models of all sizes tend to repeat a word that is beside the blank ("light, water
and water"), so texts with fewer repeated words come first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain

from unitk.decoding.config import GenerateConfig, length, slope
from unitk.decoding.constraints.base import Constraint
from unitk.decoding.fill import fill_in
from unitk.decoding.texts.outputs import Output
from unitk.decoding.texts.sentences import count_repeats
from unitk.errors import require
from unitk.slots import Floats, Ids
from unitk.tasks.base import Task

LENGTHS = 1, 2, 3
"""Most tokens of a blank in the further searches besides that with `max_len`."""
SHORT_BEAM = 12
"""The least beam of these searches, which are short."""
AS_FILLED = 0.5
"""Weight of the log-probability of the blanks' words relative to that of the text."""
BROKEN = "\ufffd"
"""What bytes decode to that are no character."""


def fill(
    task: Task,
    texts: Sequence[str],
    sources: Sequence[list[Ids]],
    config: GenerateConfig,
    search: Callable[[GenerateConfig, bool], list[list[Output]]],
    judge: Callable[[Sequence[str]], list[Floats]] | None,
) -> list[list[Output]]:
    """The n best ways to fill the blanks of texts, whose ids are `sources`.

    `search` finds outputs with other options, and is told which search is the last; `judge` gives
    texts the log-probabilities of their tokens as a language model; None if it is none. Texts are
    ranked as wholes if the options say so; the score of an output is its text's log-probability.
    """
    ranked = is_ranked(task, config, judge is not None)
    if judge is None or not ranked:
        return refill(task, texts, sources, search(config, True))
    *shorter, last = searches(config)
    results = [*(search(short, False) for short in shorter), search(last, True)]
    candidates = []
    for text, source, *of_searches in zip(texts, sources, *results, strict=True):
        outputs = [*chain(*of_searches)]
        # a piece may be a blank alone, which fills nothing
        visible = [output for output in outputs if is_seen(task, source, output.hypothesis.ids)]
        [filled] = refill(task, [text], [source], [visible or outputs])
        # several searches may find the same text
        candidates.append(list({output.text: output for output in filled}.values()))
    gains = iter(judge([output.text for output in chain(*candidates)]))
    return [
        rank_filled(outputs, [next(gains) for _ in outputs])[: config.nbest]
        for outputs in candidates
    ]


def fit_blanks(config: GenerateConfig, constraints: Sequence[Constraint]) -> GenerateConfig:
    """The options as blanks with these constraints obey them; UsageError for those that cannot."""
    config.idle(
        "has no effect on blanks", "contrast", "begin_word", "sentences", "extract", "key_phrases"
    )
    if not any(constraint.prefix or constraint.phrases for constraint in constraints):
        return config
    require(
        config.rerank != "on",
        "--rerank on has no effect: short blanks have no room for a prefix or phrases",
    )
    return replace(config, rerank="off")


def is_ranked(task: Task, config: GenerateConfig, reads: bool) -> bool:
    """Whether filled texts are ranked as wholes; `reads`: the model is a language model, too."""
    plain = config.sampling or config.beam == 1 or task.driver != "steps"
    if config.rerank == "on":
        require(reads, "--rerank needs a model that was also trained with --task lm")
        require(
            not plain,
            "--rerank on has no effect: "
            f"task {task.name}, --beam 1 and --sampling have no beam to rank",
        )
    return reads and not plain and config.rerank != "off"


def searches(config: GenerateConfig) -> list[GenerateConfig]:
    """The searches for candidates: some with short blanks, and the one that was asked for."""
    wide = replace(config, nbest=config.beam)
    if slope(config.min_len) or slope(config.max_len) or config.max_words is not None:
        return [wide]
    least = max(1, length(config.min_len, 0))
    longest = length(config.max_len, 0)
    wide = replace(wide, min_len=least)  # nothing at all is likely, and fills no blank
    beam = max(config.beam, SHORT_BEAM)
    short = replace(wide, beam=beam, nbest=beam)
    return [*(replace(short, max_len=n) for n in LENGTHS if least <= n < longest), wide]


def is_seen(task: Task, source: list[Ids], written: Ids) -> bool:
    """Whether whole characters can be seen in each blank."""
    blanks, fills = task.fills(source, written)
    texts = [task.vocab.decode(fill).strip() for fill in fills[: len(blanks)]]
    return all(text and BROKEN not in text for text in texts)


def rank_filled(outputs: Sequence[Output], gains: Sequence[Floats]) -> list[Output]:
    """Sort filled texts by repeated words, then by `gains`: log-probabilities of their tokens."""
    keys = list[tuple[int, float]]()
    scored = []
    for output, gain in zip(outputs, gains, strict=True):
        score = float(gain.sum())
        filled = float(output.hypothesis.token_log_probs.sum())
        keys.append((count_repeats(output.text), -score - AS_FILLED * filled))
        scored.append(replace(output, hypothesis=replace(output.hypothesis, score=score)))
    return [scored[i] for i in sorted(range(len(scored)), key=keys.__getitem__)]


def refill(
    task: Task,
    texts: Sequence[str],
    sources: Sequence[list[Ids]],
    outputs: Sequence[Sequence[Output]],
) -> list[list[Output]]:
    """Put outputs into the blanks of their texts, of which all other characters stay."""
    return [
        [replace(best, text=fill_in(task, text, source, best.hypothesis.ids)) for best in of_text]
        for text, source, of_text in zip(texts, sources, outputs, strict=True)
    ]
