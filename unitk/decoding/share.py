"""Texts that begin alike, laid out as a tree, so that their common beginning is computed once.

Two texts `a b c` and `a b d e` of a causal model; a slot is a key while what follows it is read:

    token    C  a  b  c  d  e
    pos      0  1  2  3  3  4
    born     0  1  2  3  4  5        = now: each slot has a time of its own
    dies     5  5  5  3  5  5        the last time of all that follows the slot
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from unitk.slots import BORN, DIES, NEVER, NOW, Example, Ids, Slots, lm

ROW = 128  # most slots of a tree of several examples


@dataclass(frozen=True)
class Tree:
    """Neighbouring texts as one example; the i-th text asks for the asks `index[i]`."""

    example: Example
    index: list[Ids]


def share(examples: Sequence[Example], together: bool = True, row: int = ROW) -> list[Tree]:
    """Merge neighbouring examples that begin alike, so that each common slot is computed once.

    Every example has one ask, whose answers differ only by rounding from those of the example
    alone. A tree of several has at most `row` slots, or a quarter more than its first example. With
    `together` off each example stays alone.
    """
    if not together:
        return [_tree([laid], [], []) for laid in examples]
    trees = list[Tree]()
    begin = 0
    prompts = [_prompt(example) for example in examples]
    for end in range(1, len(examples) + 1):
        if end == len(examples) or not all(map(np.array_equal, prompts[begin], prompts[end])):
            trees += _trees(examples[begin:end], prompts[begin][-1].shape[1], row)
            begin = end
    return trees


def _prompt(example: Example) -> list[Ids]:
    """All slots except the final ones that come one by one, each after all earlier slots."""
    *others, (_, slots) = example.towers.items()
    before = np.maximum.accumulate(slots.now)[:-1]
    single = (slots.now[1:] > before) & (slots.born[1:] == slots.now[1:])
    head = len(slots) - int(np.append(single[::-1], False).argmin())
    return [*(tower.table for _, tower in others), slots.table[:, :head]]


def _trees(examples: Sequence[Example], head: int, row: int) -> list[Tree]:
    """Examples with the same first `head` slots, as few trees of about `row` slots."""
    tails = [example.towers[example.decoded].table[:, head:] for example in examples]
    # slots of each tail that the one before it has, too; the first of a tree shares none
    shared = [0, *(_common(*pair) for pair in zip(tails[:-1], tails[1:], strict=True))]
    trees = []
    begin = 0
    size = head
    limit = 0
    for number, (tail, common) in enumerate(zip(tails, shared, strict=True)):
        fresh = tail.shape[1] - common
        if number > begin and size + fresh > limit:
            trees.append(_tree(examples[begin:number], tails[begin:number], shared[begin:number]))
            begin = number
            size = head
            fresh = tail.shape[1]
            shared[number] = 0
        if number == begin:
            limit = max(row, (head + fresh) * 5 // 4)
        size += fresh
    return [*trees, _tree(examples[begin:], tails[begin:], shared[begin:])]


def _common(first: Ids, other: Ids) -> int:
    """How many slots two tails have in common at their beginnings."""
    size = min(first.shape[1], other.shape[1])
    same = (first[:, :size] == other[:, :size]).all(axis=0)
    return size if same.all() else int(same.argmin())


def _tree(examples: Sequence[Example], tails: Sequence[Ids], shared: Sequence[int]) -> Tree:
    first = examples[0]
    tower = examples[0].decoded
    if len(examples) == 1:
        return Tree(first, [np.arange(len(first.asks[0].label))])
    slots = first.towers[tower]
    head = len(slots) - tails[0].shape[1]
    # of each tail what the one before it lacks
    rests = [tail[:, n:] for tail, n in zip(tails, shared, strict=True)]
    table = np.concatenate([slots.table[:, :head], *rests], axis=1)
    time = slots.now[:head].max() + np.arange(1 - head, table.shape[1] - head + 1)
    dies = time.copy()
    # depth first: what follows a slot has the times up to that of the newest slot
    path = np.arange(head)
    size = head
    keys = list[Ids]()
    # a row and its label as one number
    many = 1 + max(int(example.asks[0].label.max(initial=0)) for example in examples)
    for example, tail, common in zip(examples, tails, shared, strict=True):
        fresh = np.arange(size, size + tail.shape[1] - common)
        path = np.concatenate([path[: head + common], fresh])
        size += len(fresh)
        dies[path[head:]] = time[size - 1]
        [ask] = example.asks
        keys.append(path[ask.first] * many + ask.label)
    lasting = table[DIES] == NEVER
    table[NOW, head:] = table[BORN, head:] = time[head:]
    table[DIES, head:] = np.where(lasting, dies, time)[head:]
    # each pair is asked once
    asked, index = np.unique(np.concatenate(keys), return_inverse=True)
    ask = lm(asked // many, asked % many, name=first.asks[0].name, tower=tower)
    joined = replace(first, towers={**first.towers, tower: Slots(table)}, asks=[ask])
    return Tree(joined, np.split(index, np.cumsum([len(of_key) for of_key in keys])[:-1]))
