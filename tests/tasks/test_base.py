"""A task does not change: copies know more, and nothing else writes to it."""

from functools import cached_property

import numpy as np
import pytest

from unitk.registry import get, names
from unitk.tasks.base import Task, Trained


class Labelled(Task):
    """Computes something of what it knows."""

    @cached_property
    def count(self):
        return len(self.trained.labels)


def test_a_task_is_written_to_by_its_own_methods_only(toy_vocab):
    for name in names("task"):
        kind = get("task", name)
        if name != "cloze":  # it needs patterns
            with pytest.raises(AssertionError, match="trained of a task is set from outside"):
                kind(kind.Config(), toy_vocab).trained = Trained()


def test_what_a_copy_knows_is_unknown_to_the_task(toy_vocab):
    task = Labelled(None, toy_vocab)
    assert task.count == 0 and "words" not in vars(task)
    words, copy = task.words, task.with_trained(labels=("no", "yes"), position_limit=8)
    assert (copy.count, task.count) == (2, 0)
    assert task.trained == Trained() and copy.trained == Trained(
        labels=("no", "yes"), position_limit=8
    )
    assert copy.with_trained(pairs=False).trained == Trained(
        ("no", "yes"), pairs=False, position_limit=8
    )
    assert copy.vocab is task.vocab and np.array_equal(copy.words, words)
    assert copy.with_trained(position_limit=8) is copy
    with pytest.raises(TypeError, match="lables"):
        task.with_trained(lables=())
