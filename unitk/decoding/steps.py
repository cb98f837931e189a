"""How a search begins, and how somebody follows its steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch import Tensor

from unitk.decoding.constraints.constrained import Constrained
from unitk.decoding.constraints.diverse import Diverse
from unitk.decoding.sample import Sampling
from unitk.decoding.search import Request, Search
from unitk.slots import Ids

Heard = Callable[[int, Ids], None]
"""Told after each step: the number of a prompt, and what its first open hypothesis has written."""


def start(request: Request) -> Search:
    """The kind of search that the options and the constraints need."""
    if request.config.sampling:
        return Sampling(request)
    if request.config.diverse_beam_groups > 1:
        return Diverse(request)
    phrases = any(one.phrases for one in request.constraints.each)
    return Constrained(request) if phrases else Search(request)


def tell(heard: Heard, numbers: Sequence[int], search: Search, rows: Tensor) -> None:
    """Tell of the rows that have an open hypothesis; `numbers` are those of their prompts."""
    written = search.state.written[:, 0, : search.steps].cpu().numpy()
    for row, ids, unfinished in zip(rows.tolist(), written, search.open().tolist(), strict=True):
        if unfinished:
            heard(numbers[row], ids)
