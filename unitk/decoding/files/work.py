"""The inputs of `unitk generate`, some in a row at a time, with all that is asked of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from unitk.data.storing.corpus import Pairs
from unitk.decoding.files.inputs import Input
from unitk.slots import Ids

if TYPE_CHECKING:
    from unitk.decoding.constraints.base import Constraint
    from unitk.decoding.generator import Generator


Blanks = Literal["none", "some", "all"]
"""Whether texts write down blanks to fill; some: those that do."""


@dataclass(frozen=True)
class Buffer:
    """Inputs that are decoded together and written before the next ones."""

    first: int
    """Number of the first one among all inputs."""
    texts: list[Input]
    sources: list[list[Ids]]
    targets: list[Ids | None]
    constraints: list[Constraint]

    def only(self, i: int) -> Buffer:
        """One of the inputs."""
        own = slice(i, i + 1)
        targets, constraints = self.targets[own], self.constraints[own]
        return Buffer(self.first + i, self.texts[own], self.sources[own], targets, constraints)


@dataclass(frozen=True)
class Work:
    """The inputs: all of them, a corpus of pairs, or whatever comes."""

    generator: Generator
    inputs: Sequence[Input] | Pairs | Iterator[list[Input]]
    size: int
    """Inputs of a buffer."""
    constraints: Sequence[Constraint] = ()
    """One for each input, or none at all."""
    blanks: Blanks = "none"

    @property
    def total(self) -> int | None:
        """How many inputs there are, if that is known."""
        return None if isinstance(self.inputs, Iterator) else len(self.inputs)

    def buffers(self, first: int = 0) -> Iterator[Buffer]:
        """The inputs from this one on."""
        if isinstance(self.inputs, Iterator):
            for texts in self.inputs:
                yield self._of_texts(first, texts)
                first += len(texts)
            return
        for at in range(first, len(self.inputs), self.size):
            stop = min(at + self.size, len(self.inputs))
            if isinstance(self.inputs, Pairs):
                yield self._of_pairs(at, [self.inputs.pair(i) for i in range(at, stop)])
            else:
                yield self._of_texts(at, list(self.inputs[at:stop]))

    def _of_texts(self, first: int, texts: list[Input]) -> Buffer:
        sources = self.generator.encode([text.source for text in texts])
        if self.blanks != "none":
            sources = [self._marked(text, ids) for text, ids in zip(texts, sources, strict=True)]
        ids = self.generator.encode([[text.target or ""] for text in texts])
        targets = [
            None if text.target is None else target
            for text, (target,) in zip(texts, ids, strict=True)
        ]
        return Buffer(first, texts, sources, targets, self._constraints(first, len(texts)))

    def _marked(self, text: Input, plain: list[Ids]) -> list[Ids]:
        if self.blanks == "all":
            return self.generator.encode_blanks(text.source[0])
        marked = [self.generator.encode_marked(part) for part in text.source]
        return marked if any(map(self.generator.has_blank, marked)) else plain

    def _of_pairs(self, first: int, pairs: list[tuple[list[Ids], Ids]]) -> Buffer:
        decode = self.generator.vocab.decode
        texts = [Input([decode(part) for part in parts], decode(target)) for parts, target in pairs]
        sources = [parts for parts, _ in pairs]
        targets: list[Ids | None] = [target for _, target in pairs]
        return Buffer(first, texts, sources, targets, self._constraints(first, len(texts)))

    def _constraints(self, first: int, count: int) -> list[Constraint]:
        return list(self.constraints[first : first + count])
