"""The kinds of data: how each is stored, opened, laid out and described.

A corpus names its kind in its manifest; everything else that depends on the kind is in `KINDS`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from unitk.data.corpus.corpus import SIDES, Corpus, Pairs
from unitk.data.corpus.labelled import Labelled, Linked, Spans
from unitk.slots import Ids

if TYPE_CHECKING:
    from unitk.data.batching import Examples

Task = Any  # an objective, `unitk.tasks.base.Task`: tasks import data, not the other way round


@dataclass(frozen=True)
class Source:
    """Texts or records that a task lays out."""

    examples: Examples
    lengths: Callable[[], Ids]
    """Tokens of each example of the epoch that `examples` was last asked about."""
    about: str  # what it holds, in words
    words: Callable[[], Ids] | None = None
    """Words of each example of that epoch, where the corpora say how many they have."""
    shortened: str = ""  # what is cut off, in words
    most: tuple[int, int] | None = None
    """The most tokens of a source and of a target, to which records are shortened."""
    cut: Any = None  # tasks whose sources have equal cuts number their examples alike
    counts: Callable[[int], Ids] = lambda epoch: np.empty(0, np.int64)
    """Epoch -> how many examples each corpus has."""
    num_tokens: Callable[[], int] = lambda: 0
    """Tokens of the texts of that epoch, without separators between documents."""


@dataclass(frozen=True)
class Kind:
    """A kind of data."""

    about: str  # what training on it is called
    noun: str  # what its examples are called
    opens: Callable[..., Any]  # folder -> the corpus
    sides: tuple[str, ...]  # the folders of its token files; "" is the corpus folder itself
    method: str  # of tasks, which lays out its examples


KINDS = {
    "text": Kind("pre-training on text", "texts", Corpus, ("",), "pretrain"),
    "pairs": Kind("fine-tuning on pairs", "pairs", Pairs, SIDES, "finetune"),
    "labelled": Kind(
        "fine-tuning on labelled texts", "labelled texts", Labelled, ("",), "classify"
    ),
    "spans": Kind("fine-tuning on answers in passages", "questions", Spans, ("",), "answer"),
    "linked": Kind("training on texts with entities", "texts with entities", Linked, ("",), "link"),
}


TOWERS = {
    frozenset({"x"}): ("one tower", ("glm_infill", "unilm", "lm")),
    frozenset({"enc", "dec"}): ("an encoder and a decoder", ("seq2seq", "bart", "mass")),
    frozenset({"fwd", "bwd"}): ("a tower for each direction", ("bilm",)),
}
"""Towers of an architecture: what they are called, and tasks that train them."""


def towers_fault(
    name: str, task: Task, needed: set[str], arch: str, there: set[str], started: str = ""
) -> str:
    """The message that a task needs other towers than those of an architecture, with cures.

    `started` is the option whose checkpoint brought the architecture, if one did.
    """
    (needs, _), (has, tasks) = (
        TOWERS.get(frozenset(own), (f"the towers {' and '.join(sorted(own))}", ()))
        for own in (needed, there)
    )
    without = f" without {started}" * bool(started)
    cure = f"take --arch {task.component('arch', task.config)}{without}"
    cure += f", or --task {' or '.join(tasks)}" * bool(tasks)
    return f"--task {name} needs {needs}, but --arch {arch} has {has}: {cure}"
