"""Texts that are given as token ids."""

from __future__ import annotations

from typing import Any

import numpy as np

from unitk.errors import require
from unitk.serving.route import Route
from unitk.slots import Ids


def read_ids(route: Route, name: str) -> list[Ids] | None:
    """The ids of each text of a field which has ids of the model's vocabulary instead of texts.

    None if it has texts. Raises UsageError for ids that there are not.
    """
    value: Any = route.body.get(name)
    if not isinstance(value, list) or not value or isinstance(value[0], str):
        return None
    lists = value if isinstance(value[0], list) else [value]
    size = len(route.generator.task.source_vocab)
    for number, ids in enumerate(lists, 1):
        valid = isinstance(ids, list) and all(type(id_) is int for id_ in ids)
        require(valid, f"{name}: text {number} must be a string or a list of token ids")
        wrong = next((id_ for id_ in ids if not 0 <= id_ < size), None)
        require(
            wrong is None,
            f"{name}: text {number} has the token {wrong}; the vocabulary has 0 to {size - 1}",
        )
    route.check_count(name, len(lists))
    return [np.array(ids, np.int64) for ids in lists]
