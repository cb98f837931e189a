"""What is asked of outputs beside likelihood, as ids; torch-free."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from unitk.decoding.config import GenerateConfig, length
from unitk.errors import DataError


@dataclass(frozen=True)
class Wish:
    """What somebody asks of the outputs of one input."""

    prefix: tuple[int, ...] = ()
    """How they begin; of several blanks, the first one."""
    phrases: tuple[tuple[int, ...], ...] = ()
    """Runs of words that they contain, in any order."""


NOTHING = Wish()


@dataclass(frozen=True, kw_only=True)
class Demand(Wish):
    """What is asked of the outputs of one input, with the lengths that its source allows."""

    min_len: int
    max_len: int

    @staticmethod
    def of(
        config: GenerateConfig,
        words: int,
        wish: Wish = NOTHING,
        *,
        exactly: int | None = None,
        name: str = "",
    ) -> Demand:
        """The demand of a source of so many words; `exactly`: outputs are as long as this.

        Raises DataError, naming the input, where it cannot be met.
        """
        low = length(config.min_len, words) if exactly is None else exactly
        high = max(1, length(config.max_len, words)) if exactly is None else exactly
        if low > high:
            raise DataError(
                f"{name}: --min-len {config.min_len} is {low} here, and --max-len {high}"
            )
        if len(wish.prefix) > high:
            raise DataError(f"{name} begins with {len(wish.prefix)} words, and --max-len is {high}")
        longest = max(map(len, wish.phrases), default=0)
        if longest > high:
            raise DataError(f"{name} needs a phrase of {longest} words, and --max-len is {high}")
        return Demand(min_len=low, max_len=high, **vars(wish))


@dataclass(frozen=True)
class Lexicon:
    """Of certain words in all outputs."""

    unk: int | None = None
    """The word that `--unkpen` is about."""
    free: tuple[int, ...] = ()
    """Words that make a repeated n-gram harmless."""
    bad: tuple[tuple[int, ...], ...] = ()
    """Runs of words that are never written."""
    allowed: tuple[int, ...] = ()
    """Symbols that may be written though the task bans them."""


@dataclass(frozen=True)
class Demands:
    """Of the outputs of all inputs."""

    each: Sequence[Demand]
    lexicon: Lexicon = field(default_factory=Lexicon)

    @staticmethod
    def plain(config: GenerateConfig, count: int) -> Demands:
        """What the config alone asks of so many inputs."""
        return Demands([Demand.of(config, 0)] * count)

    def take(self, numbers: Sequence[int]) -> Demands:
        """Those of some inputs."""
        return Demands([self.each[i] for i in numbers], self.lexicon)

    @property
    def max_len(self) -> int:
        """The longest output that is allowed, in words of a blank."""
        return max(demand.max_len for demand in self.each)
