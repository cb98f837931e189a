"""The search whose outputs copy clauses of their sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from unitk.decoding.constraints.base import Constraint
from unitk.decoding.drivers import Prompt
from unitk.decoding.search import Request, Search
from unitk.errors import UsageError, require
from unitk.families.extraction.clauses import find_jumps
from unitk.registry import register
from unitk.slots import Bools, Ids, Protocol
from unitk.tasks.base import Task
from unitk.vocab.base import Vocab


@register("constraint", "extract")
def extract(prompt: Prompt, task: Task, protocol: Protocol | None) -> Constraint:
    """The constraint of a prompt that lets its outputs copy the last part of the source.

    Raises `UsageError` if there is none, if the task cannot write it or end, and for forced
    beginnings and phrases.
    """
    if protocol is None or protocol.endless:
        raise UsageError(f"--extract: task {task.name} writes no end of an output")
    require(task.source_vocab is task.vocab, "--extract: sources have another vocabulary")
    require(prompt.source, "--extract needs a source")
    given = prompt.constraint.phrases or prompt.constraint.prefix
    require(not given, "--extract is for outputs without forced beginnings and phrases")
    clauses = Clauses.of(prompt.source[-1], task.vocab, protocol.end)
    return replace(prompt.constraint, own=clauses)


@dataclass(frozen=True)
class Clauses:
    """The n tokens of a source that outputs may copy, and the end symbol."""

    ids: Ids
    """[n + 1]"""
    follows: Bools
    """[n + 1, n + 1] whether token q may come where token p would, if nothing were left out."""

    def search(self, request: Request) -> Search:
        """A search whose inputs all have clauses."""
        return Extractive(request)

    @staticmethod
    def of(source: Ids, vocab: Vocab, end: int) -> Clauses:
        """The clauses of a source; what comes after its last whole sentence is left out."""
        follows = find_jumps([vocab.model.text(index) for index in source.tolist()])
        return Clauses(np.append(source[: len(follows) - 1], end), follows)

    def count_lengths(self, size: int) -> np.ndarray:
        """[n + 1, size + 1] how many lengths below k outputs can have from each token on."""
        possible = np.zeros((len(self.ids), size), bool)
        possible[-1, 0] = True
        packed = np.packbits(possible, axis=1)  # 8 lengths a byte, as each token reads many rows
        for token in reversed(range(len(self.ids) - 1)):
            either = np.bitwise_or.reduce(packed[self.follows[token + 1]])
            possible[token, 1:] = np.unpackbits(either, count=size)[:-1]
            packed[token] = np.packbits(possible[token])
        return np.pad(possible.cumsum(1, dtype=np.int32), ((0, 0), (1, 0)))


class Extractive(Search):
    """Beam search whose outputs copy clauses of their sources, and write nothing else.

    A token of a source can be copied in several places, so a hypothesis has a set of tokens that
    may be next.
    """

    carried = "faulty", "ids", "follows", "lengths", "next"

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        sources: list[Clauses] = [one.own for one in request.constraints.by_input]
        size = max(len(source.ids) for source in sources)

        def stack(tables: Iterable[np.ndarray]) -> Tensor:
            room = [np.pad(table, [(0, max(size - n, 0)) for n in table.shape]) for table in tables]
            return torch.from_numpy(np.stack(room)).to(request.homes.device)

        self.ids = stack(source.ids for source in sources)
        """[B, n] tokens of the sources."""
        self.follows = stack(source.follows.astype(np.float32) for source in sources)
        """[B, n, n] 1 if a token may come where another would."""
        self.lengths = stack(source.count_lengths(size) for source in sources).mT
        """[B, n + 1, n] how many lengths below some number an output can have from a token on."""
        self.next = torch.zeros(len(self.ids), self.config.width, size, device=self.ids.device)
        """[B, K, n] 1 for tokens that are next if nothing more is left out."""
        self.next[..., 0] = 1

    def _possible(self) -> Tensor:
        """[B, K, n] whether a hypothesis may write a token of its source next."""
        state = self.state

        def below(words_BK: Tensor) -> Tensor:
            index = words_BK.clamp(0, self.follows.shape[1])[..., None]
            return self.lengths.gather(1, index.expand_as(self.next))

        fitting = below(state.limit + 1 - state.count) - below(state.least - state.count)
        return (self.next @ self.follows > 0) & (fitting > 0)

    def _forbid(self, gain_RV: Tensor, beams: int) -> None:
        super()._forbid(gain_RV, beams)
        possible = self._possible()[:, :beams].to(gain_RV.dtype)
        index = self.ids[:, None].expand_as(possible)
        allowed_RV = torch.zeros_like(gain_RV)
        allowed_RV.scatter_add_(1, index.flatten(0, 1), possible.flatten(0, 1))
        gain_RV.masked_fill_(allowed_RV == 0, -torch.inf)

    def extend(self, logits_RV: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Choose the next words as a plain search does, and find them in the sources."""
        possible = self._possible()
        back, token, position = super().extend(logits_RV)
        possible = possible.gather(1, back[..., None].expand_as(possible))
        copied = possible & (self.ids[:, None] == token[..., None])
        self.next = torch.nn.functional.pad(copied[..., :-1], (1, 0)).to(self.next.dtype)
        return back, token, position
