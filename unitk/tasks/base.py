"""What every objective offers to data, training and decoding (DESIGN 2.3)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unitk.data.cuts import Text
from unitk.errors import UsageError
from unitk.slots import Example, Ids, Protocol
from unitk.vocab import Vocab


class Task:
    """An objective: how texts and pairs are laid out as slots, and how its models decode.

    Subclasses are registered and have a `Config`; layouts are pure functions of their arguments.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """No options."""

    symbols: ClassVar[tuple[str, ...]] = ("pad", "cls", "sep")
    """Special symbols the vocabulary must have."""
    arch: ClassVar[str]
    criterion: ClassVar[str] = "cross_entropy"
    """Default components, by registered name."""
    frame: ClassVar[int] = 2
    """Symbols a layout adds to a text, counted in `--block-size`."""

    def __init__(self, config: Any, vocab: Vocab) -> None:
        self.config, self.vocab = config, vocab
        vocab.require(self.symbols, f"task {type(self).__name__}")

    @property
    def protocol(self) -> Protocol | None:
        """How models of this task decode; None if they cannot."""
        return None

    def slots(self, n: Ids) -> Ids:
        """The most slots that `pretrain` makes of texts of `n` tokens."""
        return n + self.frame

    def pair_slots(self, source: Ids, target: Ids) -> Ids:
        """The most slots that `finetune` makes of pairs of these lengths."""
        raise self._lacks("fine-tune on pairs")

    def max_source(self, max_positions: int, max_target: int) -> int:
        """The most source tokens that fit a position table, given the longest target."""
        raise self._lacks("fine-tune on pairs")

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        """Lay out a text with its own labels."""
        raise self._lacks("pre-train on texts")

    def finetune(self, source: list[Ids], target: Ids, rng: np.random.Generator) -> Example:
        """Lay out a source (its parts) with the target as labels."""
        raise self._lacks("fine-tune on pairs")

    def prompt(self, source: list[Ids]) -> Example:
        """Everything up to and including the slot that decoding reads first; no asks."""
        raise self._lacks("generate")

    def text(self, source: list[Ids], written: Ids) -> str:
        """What was written, as text."""
        end = self.protocol.end if self.protocol else -1
        return self.vocab.decode(written[written != end])

    def joined(self, source: list[Ids]) -> Ids:
        """The parts of a source with a separator between them."""
        return np.concatenate([np.append(part, self.vocab.sep) for part in source])[:-1]

    def filled(self, ids: Ids, blanks: Ids, fills: list[Ids]) -> str:
        """`ids` as text, fill i in the place of `blanks[i]`; a blank without a fill stays."""
        pieces = np.split(ids, np.stack([blanks, blanks + 1], axis=1).ravel())
        for i, fill in enumerate(fills[: len(blanks)]):
            pieces[2 * i + 1] = fill
        return self.vocab.decode(np.concatenate(pieces))

    def _lacks(self, what: str) -> UsageError:
        return UsageError(f"--task: {type(self).__name__} cannot {what}")
