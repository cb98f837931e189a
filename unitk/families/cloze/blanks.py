"""Score answers in the blank of a text `a ? M , b`, laid out for another objective's model.

If the answers are single tokens (u, v), the slot | that fills the blank is read once:

    glm_infill    C  a  ?  M  ,  b  S |s    mlm    C  a  ?  M|  ,  b  S

If they have several (u, v w), each answer is laid out, and its tokens are the labels at |:

    glm_infill    C  a  ?  M  ,  b  S  s| u| s| v| w|
    at            0  0  0  0  0  0  0  1  2  3  4  5     an answer dies with its last slot
    label                              u  E  v  w  E
    mlm           C  a  ?  M| ,  b  S     C  a  ?  M| M| ,  b  S     a doc for each answer

The score of an answer is the sum of its tokens' log-probabilities, in GLM with the end symbol's.
"""

from __future__ import annotations

import string
from dataclasses import replace

import numpy as np

from unitk.errors import require
from unitk.families.cloze.patterns import BLANK, Pattern
from unitk.slots import DIES, DOC, NOW, Ask, Example, Ids, Slots, lm, unroll
from unitk.tasks.base import Task
from unitk.tasks.understanding.base import SYMBOLS
from unitk.vocab.base import Vocab

SLACK = 2
"""Tokens by which a field or an answer may grow when it is encoded within a pattern."""


def answer_of(vocab: Vocab, text: str, before: str) -> Ids:
    """The ids of an answer that follows the text `before`; at least one."""
    glued = before and not before[-1].isspace()
    inside = vocab.encode_inside(text if glued else f" {text}")
    return np.array((inside if before.strip() else vocab.encode(text)) or [vocab.unk], np.int64)


def answers_of(pattern: Pattern, vocab: Vocab, single: bool) -> list[Ids]:
    """The ids of the answers of all labels.

    Raises `UsageError` if two answers are equal, or if `single` is set and one has several tokens.
    """
    before = pattern.text.partition(BLANK)[0]
    answers = pattern.answers
    spelled: list[Ids] = []
    texts = answers.values() if isinstance(answers, dict) else ()
    for text in texts:
        spelled.append(ids := answer_of(vocab, text, before))
        spelt = " ".join(vocab.pieces(ids))
        fits = not single or (len(ids) == 1 and ids[0] != vocab.unk)
        require(
            fits,
            f"{pattern.path}, line {text.line}: the answer {str(text)!r} is {len(ids)} tokens of "
            f"this vocabulary ({spelt}); one is needed, or --task.multi-token on",
        )
    require(
        len({tuple(ids) for ids in spelled}) == len(spelled),
        f"{pattern.place}: two of its answers are the same tokens",
    )
    return spelled


def room_of(pattern: Pattern, vocab: Vocab) -> tuple[int, int]:
    """The most tokens of a pattern apart from its fields, and how often it uses one field."""
    names = [name for _, name, *_ in string.Formatter().parse(pattern.text)]
    literal = sum(map(len, map(vocab.encode, pattern.render(()))))
    times = max(map(names.count, names)) + ("choice1" in names)
    return literal + SYMBOLS + SLACK * len(names), times


def fill_blank(layout: Task, ids: Ids, written: Ids) -> Example:
    """Lay out a text with one blank; `written` are the labels of its only ask."""
    if layout.protocol:
        return unroll(layout.prompt([ids]), layout.protocol, written)
    [at] = np.flatnonzero(ids == layout.blank)
    blanks = np.full(len(written), layout.blank)
    example = layout.prompt([np.concatenate([ids[:at], blanks, ids[at + 1 :]])])
    [ask] = example.asks
    return replace(example, asks=[replace(ask, label=written)])


def lay_out_answers(layout: Task, ids: Ids, answers: list[Ids], length_penalty: float) -> Example:
    """Lay out a text with all answers to its blank, for scoring.

    The ask "answers" has the tokens of all answers, each weighted by length to the power
    -`length_penalty`. The ask "cloze" has the first slot of each answer. If the model writes into
    blanks, all answers share one part A.
    """
    tables: list[Ids] = []
    labels: list[Ids] = []
    rows: list[Ids] = []
    end = [layout.protocol.end] if layout.protocol else []
    size = 0
    for number, answer in enumerate(answers):
        example = fill_blank(layout, ids, np.append(answer, end).astype(np.int64))
        [(tower, slots)] = example.towers.items()
        [ask] = example.asks
        table = slots.table.copy()
        part_a = 0
        if layout.protocol:  # one answer after the other, and none sees those before it
            part_a = len(slots) - len(ask.label)
            table[NOW:DIES, part_a:] += sum(map(len, labels))
            table[DIES, part_a:] = table[NOW].max()
        else:
            table[DOC] = number
        left_out = part_a if number else 0
        tables.append(table[:, left_out:])
        rows.append(ask.first + size - left_out)
        labels.append(ask.label)
        size += len(slots) - left_out
    sizes = np.array([len(label) for label in labels])
    weight = (sizes**-length_penalty).repeat(sizes).astype(np.float32)
    words = lm(np.concatenate(rows), np.concatenate(labels), name="answers", tower=tower)
    first = np.array([[slots_of_answer[0] for slots_of_answer in rows]])
    zero = np.zeros(1, np.int64)
    asks = [
        replace(words, weight=weight),
        Ask("cloze", "cloze", tower, first, zero, np.ones(1, "f")),
    ]
    return Example({tower: Slots(np.concatenate(tables, axis=1))}, asks)
