"""The log-probabilities of given texts by a model of any task.

Autoregressive tasks read a text in one pass (`Task.likelihood`). For masked models, each token is
hidden alone, in a copy of the text: this is the pseudo-log-likelihood of Salazar et al. 2020, arXiv
1910.14659. With whole words, the later pieces of the same word are hidden too (Kauf and Ivanova
2023, arXiv 2305.10588).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from unitk.decoding.fit import count_excess
from unitk.decoding.forced import score
from unitk.decoding.share import ROW, share
from unitk.errors import DataError, UsageError, require
from unitk.models.base import Decoder
from unitk.progress import Report, no_report
from unitk.slots import DOC, TOKEN, Example, Floats, Ids, Slots, lm
from unitk.tasks.base import Task

TOGETHER = 2048  # texts that are laid out and scored at once

Texts = Sequence[tuple[Ids, Ids]]  # what is before each text, and the text


def likelihoods(
    model: Decoder,
    task: Task,
    texts: Texts,
    *,
    whole_words: bool = False,
    truncate: bool = False,
    max_tokens: int = 16384,
    name: Callable[[int], str] = lambda number: f"input {number + 1}",
    report: Report = no_report,
) -> list[Floats]:
    """For each text, [2, tokens]: each token's log-probability, and 1 where it is most probable.

    The values are float32; equal texts have equal values. A text that is too long raises DataError
    with its `name`; with `truncate`, the beginning of its context is dropped instead.
    """
    check_task(task, whole_words)

    def lay_out(number: int) -> list[Example]:
        before, text = texts[number]
        while True:
            examples = layouts(task, before, text, whole_words)
            if (over := count_excess(examples[0], model.config)) <= 0:
                return examples
            if not truncate or not len(before):
                raise DataError(
                    f"{name(number)} is too long by {over:,} for this model's positions"
                )
            before = before[over:]

    same: dict[tuple[tuple[int, ...], ...], list[int]] = {}
    for number, text in enumerate(texts):
        if len(text[1]):
            same.setdefault(tuple(tuple(part.tolist()) for part in text), []).append(number)
    order = [same[text] for text in sorted(same)]  # texts that begin alike become neighbours
    gains: list[Floats] = [np.empty((2, 0), np.float32)] * len(texts)
    for at in range(0, len(order), TOGETHER):
        some = order[at : at + TOGETHER]
        laid = [lay_out(first) for first, *_ in some]
        examples = [example for of_text in laid for example in of_text]
        rows = iter(score_shared(model, examples, max_tokens, lambda done: report(0)))
        for numbers, of_text in zip(some, laid, strict=True):
            gain = np.concatenate([next(rows) for _ in of_text], axis=1)
            for number in numbers:
                gains[number] = gain
        report(sum(map(len, some)))
    return gains


def score_shared(
    model: Decoder,
    examples: Sequence[Example],
    max_tokens: int,
    report: Report = no_report,
    row: int = ROW,
) -> list[Floats]:
    """`forced.score` of examples; neighbours that begin alike share their beginnings (`share`)."""
    # a recurrent network reads no trees
    trees = share(examples, not model.config.sequential, row)
    gains = score(model, [tree.example for tree in trees], max_tokens, report)
    pairs = zip(gains, trees, strict=True)
    return [gain[:, index] for gain, tree in pairs for index in tree.index]


def check_task(task: Task, whole_words: bool) -> None:
    """Raise `UsageError` if the task cannot score texts or if `whole_words` has no effect."""
    name = task.name
    if task.protocol is None and not task.infills:
        raise UsageError(f"--checkpoint: task {name} gives no log-probabilities of texts")
    idle = whole_words and task.protocol is not None
    require(not idle, f"--whole-words has no effect: task {name} hides no tokens in turn")


def layouts(task: Task, before: Ids, text: Ids, whole_words: bool = False) -> list[Example]:
    """The examples whose labels, one after the other, are the tokens of a text."""
    if task.protocol is not None:
        return [task.likelihood(before, text)]
    mask = task.vocab.mask
    prompt = task.prompt([np.append(before, np.full(len(text), mask))])
    [slots] = prompt.towers.values()
    [ask] = prompt.asks
    places = np.flatnonzero(slots.token == mask)[-len(text) :]
    shown = slots.token.copy()
    shown[places] = text
    begins = task.vocab.starts[text] | (np.arange(len(text)) == 0)
    word = np.cumsum(begins) if whole_words else np.arange(len(text))
    later = np.arange(len(text)) >= np.arange(len(text))[:, None]
    hides = (word == word[:, None]) & later  # in copy i, token j
    per = max(1, ROW // len(slots))
    laid = []
    for some in np.split(np.arange(len(text)), range(per, len(text), per)):
        table = np.tile(slots.table, len(some))
        token = np.tile(shown, (len(some), 1))
        copy, hidden = np.nonzero(hides[some])
        token[copy, places[hidden]] = mask
        table[TOKEN] = token.ravel()
        table[DOC] = np.arange(len(some)).repeat(len(slots))
        rows = ask.first[some] + len(slots) * np.arange(len(some))
        asks = [lm(rows, text[some], name=ask.name, tower=ask.tower)]
        laid.append(Example({ask.tower: Slots(table)}, asks))
    return laid
