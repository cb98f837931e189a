"""Options of the search; torch-free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from unitk.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Way:
    """How a beam search widens, ranks and ends; K is the beam, n the length of an output."""

    stop: Literal["likely", "exact", "first", "glm", "none"]
    """likely, exact: see `--search`; first: with K finished outputs, later ones replace none; glm:
    the K-th best one is no worse than the best continuation at the length before it; none: where
    nothing is open."""
    wide: int = 2
    """Continuations of an input that are looked at, as a multiple of K."""
    norm: Literal["power", "wu"] = "power"
    """What log-probabilities are divided by. power: n ** lenpen; wu: ((5 + n) / 6) ** lenpen (Wu et
    al. 2016, arXiv 1609.08144, equation 14)."""
    counts_ends: bool = True
    """Whether end symbols are part of n."""
    free_end: bool = False
    """Whether the end that `--max-len` forces costs nothing, and is no part of n."""


WAYS = {
    "likely": Way(stop="likely"),
    "exact": Way(stop="exact"),
    "fairseq": Way(stop="first"),
    "glm": Way(stop="glm", counts_ends=False, free_end=True),
    "unilm": Way(stop="none", wide=1, norm="wu", free_end=True),
}
"""What `--search` names: fairseq 0.12's, GLM's (`generation_utils.py`), UniLM's (`modeling.py`)."""


@dataclass(frozen=True, kw_only=True)
class GenerateConfig:
    """How outputs are searched for."""

    beam: int = 5
    """Hypotheses kept open for each input; 1 is greedy decoding."""
    lenpen: float = 1.0
    """Hypotheses are ranked by log-probability / length ** lenpen, end symbols counted; glm and
    unilm divide otherwise."""
    min_len: int = 0
    """Least words of an output, or of each blank, the end symbol not counted."""
    max_len: int = 64
    """Most words of an output, or of each blank; then it is closed."""
    no_repeat_ngram_size: int = 0
    """No run of so many words occurs twice in an output, or in a blank. 0: no such rule."""
    nbest: int = 1
    """Outputs for each input, best first."""
    search: Literal["likely", "exact", "fairseq", "glm", "unilm"] = "likely"
    """When the search of an input ends. likely: the worst kept output is better than any open
    hypothesis at its present length; exact: no open hypothesis can enter the n best any more;
    fairseq, glm, unilm: as those programs search, which rank otherwise too, see docs/generate.md.
    Greedy decoding ends with the first end symbol."""
    sampling: bool = False
    """Draw --nbest outputs word by word instead of searching; scores stay the model's own."""
    temperature: float = 1.0
    """Logits are divided by it before a word is drawn: below 1 sharper, above 1 flatter."""
    sampling_topk: int = 0
    """Draw among the so many likeliest words. 0: among all."""
    sampling_topp: float = 1.0
    """Draw among the likeliest words that together have this probability."""
    seed: int = 1
    """Of the draws; every input has its own."""
    max_tokens: int = 16384
    """Most slots of a batch: prompt, and the longest output of every beam."""

    def __post_init__(self) -> None:
        for name in ("beam", "nbest", "max_len", "max_tokens"):
            self._require(name, getattr(self, name) >= 1, "at least 1")
        for name in ("min_len", "no_repeat_ngram_size"):
            self._require(name, getattr(self, name) >= 0, "at least 0")
        self._require("lenpen", -10 <= self.lenpen <= 10, "between -10 and 10")
        exact = self.search == "exact"
        self._require("search", self.beam > 1 or not exact, "another one with --beam 1")
        plain = not self.sampling or self.search == "likely"
        self._require("search", plain, "left out with --sampling")
        fits = self.sampling or self.nbest <= self.beam
        self._require("nbest", fits, f"at most --beam {self.beam}")
        for name, plain in (("temperature", 1), ("sampling_topk", 0), ("sampling_topp", 1)):
            idle = not self.sampling and getattr(self, name) != plain
            self._require(name, not idle, f"{plain} without --sampling")
        for name in ("sampling_topk", "seed"):
            self._require(name, getattr(self, name) >= 0, "at least 0")
        self._require("temperature", self.temperature > 0, "above 0")
        self._require("sampling_topp", 0 < self.sampling_topp <= 1, "in (0, 1]")
        self._require("min_len", self.min_len <= self.max_len, f"at most --max-len {self.max_len}")

    @property
    def width(self) -> int:
        """Hypotheses of an input that are open at a time."""
        return self.nbest if self.sampling else self.beam

    def _require(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} must be {what}, got {getattr(self, name)}")
