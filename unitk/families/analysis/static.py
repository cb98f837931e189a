"""Static vectors of words, out of the states they have in texts.  Ethayarajh 2019, arXiv
1909.00512, section 4.3.

A word has states X [n, D] in n places; of a word of several tokens, each is the mean of theirs. Its
vector is the first right singular vector of X, the direction that explains most of X. A word is a
run of letters and digits, or a character of a script without blanks.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import regex

from unitk.decoding.config import EmbedConfig
from unitk.decoding.understand.embed import embed, fit_text, slots_to_embed
from unitk.errors import DataError, require
from unitk.models.model import Model
from unitk.progress import Report, no_report
from unitk.slots import Floats, Ids
from unitk.tasks.base import Task
from unitk.vocab.scripts import UNSPACED

WORD = regex.compile(rf"{UNSPACED}|[\w--{UNSPACED}]+", regex.V1)
TOGETHER = 1024
"""Texts whose states are in memory at a time."""
Reduce = Literal["component", "mean"]


@dataclass(frozen=True)
class Occurrences:
    """Which words get vectors, how many places of each are read, and how states are reduced."""

    least: int = 5
    most: int = 100
    lowercase: bool = False
    seed: int = 1
    reduce: Reduce = "component"


def find_vectors(
    model: Model,
    task: Task,
    texts: Sequence[Sequence[str]],
    config: EmbedConfig,
    places: Occurrences,
    report: Report = no_report,
) -> dict[str, Floats]:
    """The vector [D] of each word that occurs often enough, the most frequent word first.

    Texts come as their parts. `report` is told how many of them the model has read. Raises
    DataError where no word occurs often enough.
    """
    sources = [[ids.astype(np.int64) for ids in task.vocab.encode_batch([*text])] for text in texts]
    number = dict[str, int]()
    rows = array("q")  # of each place: word, text, slots [start, stop)
    for i, (text, source) in enumerate(zip(texts, sources, strict=True)):
        if sum(map(len, source)):
            example = fit_text(task, source, model, i, config.truncate)
            for word, *slots in words_in_slots(text, slots_to_embed(example.towers).token, task):
                name = word.lower() if places.lowercase else word
                rows.extend((number.setdefault(name, len(number)), i, *slots))
    drawn_P4, counts = draw_places(np.array(rows, np.int64).reshape(-1, 4), places)
    if not len(drawn_P4):
        raise DataError(f"--input has no word that occurs {places.least} times: give more texts")
    states_PD = read_states(model, task, sources, drawn_P4, config, report)
    # places of a word are side by side
    begins = np.flatnonzero(np.diff(drawn_P4[:, 0], prepend=-1))
    groups = np.split(states_PD, begins[1:])
    occurrences = dict(zip(drawn_P4[begins, 0].tolist(), groups, strict=True))
    names = list(number)
    often = sorted(occurrences, key=lambda word: -int(counts[word]))
    return {names[word]: reduce_states(occurrences[word], places.reduce) for word in often}


def words_in_slots(text: Sequence[str], token_T: Ids, task: Task) -> Iterator[tuple[str, int, int]]:
    """The words of a text, which comes as its parts, each with its slots [start, stop).

    Words that were cut off because the text is too long are left out.
    """
    vocab = task.source_vocab
    offset = 0
    symbols = [index for name, index in vocab.symbols.items() if name != "unk"]
    # slots of tokens: a task may put symbols between them
    slots = np.flatnonzero(~np.isin(token_T, symbols))
    encoded = vocab.encode_batch([*text])
    in_order = np.array_equal(token_T[slots], np.concatenate(encoded)[: len(slots)])
    require(in_order, f"--task {task.name} does not read the tokens of a text in their order")
    for part, ids in zip(text, encoded, strict=True):
        words = list(WORD.finditer(part))
        spans = vocab.token_spans(part, [word.span() for word in words])
        for word, (start, stop) in zip(words, spans, strict=True):
            if offset + stop <= len(slots):  # else --truncate has cut it off
                yield word[0], int(slots[offset + start]), int(slots[offset + stop - 1]) + 1
        offset += len(ids)


def draw_places(places_P4: Ids, how: Occurrences) -> tuple[Ids, Ids]:
    """The places that are read, those of a word side by side, and the number that each word has."""
    order = np.random.default_rng(how.seed).permutation(len(places_P4))
    shuffled = places_P4[order]
    shuffled = shuffled[np.argsort(shuffled[:, 0], kind="stable")]
    _, first, counts = np.unique(shuffled[:, 0], return_index=True, return_counts=True)
    # which of its word's places each is, in the order of the draw
    rank = np.arange(len(shuffled)) - np.repeat(first, counts)
    read = (rank < how.most) & (np.repeat(counts, counts) >= how.least)
    return shuffled[read], counts


def read_states(
    model: Model,
    task: Task,
    sources: Sequence[list[Ids]],
    places_P4: Ids,
    config: EmbedConfig,
    report: Report,
) -> Floats:
    """The mean state of the slots of each place [P, D]; few texts' states are in memory at once."""
    config = replace(config, pool="none")
    means: Floats | None = None
    needed, at = np.unique(places_P4[:, 1], return_inverse=True)
    order = np.argsort(at, kind="stable")
    begins = np.searchsorted(at[order], np.arange(len(needed) + 1))
    # only texts with a place that was drawn are read
    for first in range(0, len(needed), TOGETHER):
        texts = needed[first : first + TOGETHER]
        states = embed(model, task, [sources[i] for i in texts], config, report=report)
        for k, x_TD in enumerate(states, first):
            if means is None:
                means = np.empty((len(places_P4), x_TD.shape[1]), np.float32)
            for row in order[begins[k] : begins[k + 1]]:
                start, stop = places_P4[row, 2:]
                means[row] = x_TD[start:stop].mean(axis=0)
    assert means is not None
    return means


def reduce_states(states_ND: Floats, how: Reduce) -> Floats:
    """The vector of a word: the first component, of length 1, or the mean of its states.

    Nothing is subtracted from the states (definition 3 of the paper). The component points to the
    side of their mean, as the sign of a singular vector is arbitrary.
    """
    mean_D = states_ND.mean(axis=0)
    if how == "mean":
        return mean_D
    # the smaller of the two products has the same singular values
    x_ND = states_ND.astype(np.float64)
    wide = len(x_ND) < x_ND.shape[1]
    first = np.linalg.eigh(x_ND @ x_ND.T if wide else x_ND.T @ x_ND)[1][:, -1]
    vector_D = x_ND.T @ first if wide else first
    vector_D /= max(float(np.linalg.norm(vector_D)), 1e-30)
    return (vector_D if vector_D @ mean_D >= 0 else -vector_D).astype(np.float32)
