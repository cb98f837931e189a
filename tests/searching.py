"""Searches step by step, and their outputs as tests compare them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from unitk.decoding.config import GenerateConfig
from unitk.decoding.constraints.base import Constraints
from unitk.decoding.search import Request, Search
from unitk.decoding.steps.reader import PromptReader
from unitk.slots import collate


def begin_search(case: Any, prompts: Sequence[Any], config: GenerateConfig) -> Any:
    """The reader of some prompts of a toy case, and a search over them that has not begun."""
    batch = collate([[prompt] for prompt in prompts]).to("cpu")
    reader = PromptReader(case.model, batch, case.protocol, config)
    plain = Constraints.plain(config, len(prompts))
    search = Search(Request(reader.homes, batch.num_blanks, case.protocol, config, plain))
    return reader, search


def outputs(found: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """The words of each hypothesis, and its score, which equals others up to rounding."""
    return [
        [(one.ids.tolist(), pytest.approx(one.score, rel=1.5e-5, abs=1.5e-5)) for one in some]
        for some in found
    ]


def contains(words: Sequence[int], phrase: tuple[int, ...]) -> bool:
    """Whether the words of an output contain a phrase."""
    return any(tuple(words[i : i + len(phrase)]) == phrase for i in range(len(words)))
