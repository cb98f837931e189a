"""Choosing the kind of search, and reporting its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from unitk.decoding.constraints.constrained import Constrained
from unitk.decoding.constraints.diverse import Diverse
from unitk.decoding.sample import Sampling
from unitk.decoding.search import Request, Search
from unitk.slots import Ids

OnStep = Callable[[int, Ids], None]
"""Called after each step with the number of a prompt and the words of its best open hypothesis."""


def start(request: Request) -> Search:
    """The kind of search that the options and the constraints need."""
    if request.config.sampling:
        return Sampling(request)
    if request.config.diverse_beam_groups > 1:
        return Diverse(request)
    phrases = any(one.phrases for one in request.constraints.each)
    return Constrained(request) if phrases else Search(request)


def report_step(on_step: OnStep, numbers: Sequence[int], search: Search, rows: Tensor) -> None:
    """Report the words of each row with an open hypothesis; `numbers` are those of the prompts."""
    # of groups, which have a row of the state each, those of the first one
    first = search.state.written.unflatten(0, (len(rows), -1))[:, 0, 0, : search.steps]
    written = first.cpu().numpy()
    for row, ids, unfinished in zip(rows.tolist(), written, search.open().tolist(), strict=True):
        if unfinished:
            on_step(numbers[row], ids)
