"""Options of the search; torch-free."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from unitk.errors import UsageError, at_least, require
from unitk.registry import nearest

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Config = TypeVar("Config", bound="DataclassInstance")


@dataclass(frozen=True, kw_only=True)
class SearchPreset:
    """How a beam search widens, ranks and ends; K is the beam, n the length of an output."""

    stop: Literal["likely", "exact", "first", "glm", "none"]
    """likely, exact: see `--search`; first: with K finished outputs, later ones replace none; glm:
    the K-th best one is no worse than the best continuation at the length before it; none: where
    nothing is open."""
    wide: int = 2  # continuations of an input that are looked at, as a multiple of K
    norm: Literal["power", "wu"] = "power"
    """What log-probabilities are divided by. power: n ** lenpen; wu: ((5 + n) / 6) ** lenpen (Wu et
    al. 2016, arXiv 1609.08144, equation 14)."""
    counts_ends: bool = True  # whether end symbols are part of n
    free_end: bool = False
    """Whether the end that `--max-len` forces costs nothing, and is no part of n."""


SEARCH_PRESETS = {
    "likely": SearchPreset(stop="likely"),
    "exact": SearchPreset(stop="exact"),
    "fairseq": SearchPreset(stop="first"),
    "glm": SearchPreset(stop="glm", counts_ends=False, free_end=True),
    "unilm": SearchPreset(stop="none", wide=1, norm="wu", free_end=True),
}
"""What `--search` names: fairseq 0.12's, GLM's (`generation_utils.py`), UniLM's (`modeling.py`)."""

LENGTH = re.compile(r"(?:(\d*\.?\d+)x(?:\+(\d+))?|(-?\d+))")  # 12, 1.2x or 1.2x+10


@dataclass(frozen=True, kw_only=True)
class SearchConfig:
    """Search: how many outputs are kept, and when it ends."""

    beam: int = 5
    """Hypotheses kept open for each input; 1 is greedy decoding."""
    nbest: int = 1
    """Outputs for each input, best first."""
    lenpen: float = 1.0
    """Hypotheses are ranked by log-probability / length ** lenpen, end symbols counted; glm and
    unilm divide otherwise."""
    search: Literal["likely", "exact", "fairseq", "glm", "unilm"] = "likely"
    """When the search of an input ends. likely: the worst kept output is better than any open
    hypothesis at its present length; exact: no open hypothesis can enter the n best any more;
    fairseq, glm, unilm: as those programs search, which rank otherwise too, see docs/generate.md.
    Greedy decoding ends with the first end symbol."""
    diverse_beam_groups: int = 1
    """Groups of the beam that avoid each other's words (Vijayakumar et al. 2016)."""
    diverse_beam_strength: float = 0.5
    """What a word costs for each hypothesis of an earlier group that has it at the same place."""
    max_tokens: int = 16384
    """Most slots of a batch: prompt, and the longest output of every beam."""
    capture: bool = False
    """On a GPU: record a step as a CUDA graph and replay it, 32 steps a recording. Its logic is
    tested on a CPU; it was not yet run on a GPU."""


@dataclass(frozen=True, kw_only=True)
class RulesConfig:
    """Rules: what may be written."""

    min_len: str | int = 0
    """Least words of an output, or of each blank, the end symbol not counted; 0.1x+2 depends on
    the words x of the source."""
    max_len: str | int = 64
    """Most words of an output, or of each blank; then it is closed. 1.2x+10 depends on the words x
    of the source."""
    max_words: int | None = None
    """Most words of an output, all its blanks together, as in GLM; further blanks stay empty."""
    allow_symbols: str = ""
    """Special symbols, with blanks between them, that may be written though the task bans them."""
    no_repeat_ngram_size: int = 0
    """No run of so many words occurs twice in an output, or in a blank. 0: no such rule."""
    no_repeat_ngram_ignore: str = ""
    """Words with blanks between them, such as ". , [SEP]"; a run that has one of them may occur
    again."""
    unkpen: float = 0.0
    """Taken from the log-probability of the unknown word wherever it may be written."""
    bad_words: Path | None = None
    """A file of words or phrases that are never written, one a line."""


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """Sampling, instead of a search."""

    sampling: bool = False
    """Draw --nbest outputs word by word instead of searching; scores stay the model's own."""
    temperature: float = 1.0
    """Logits are divided by it: below 1 sharper, above 1 flatter. Scores are those of a search
    with it, but of draws the model's own."""
    sampling_topk: int = 0
    """Draw among the so many likeliest words. 0: among all."""
    sampling_topp: float = 1.0
    """Draw among the likeliest words that together have this probability."""
    sampling_minp: float = 0.0
    """Draw among the words at least so many times as likely as the likeliest one, after top-k and
    top-p. 0: no such rule."""
    seed: int = 1
    """Of the draws; every input has its own."""


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(SamplingConfig, RulesConfig, SearchConfig):
    """How outputs are made."""

    max_source_len: int | None = None
    """Shorten the last part of a source of more tokens; default of `unitk generate`: the limit that
    training had, of which `none` is rid."""

    def __post_init__(self) -> None:
        at_least(self, max_source_len=1, beam=1, nbest=1, max_tokens=1, max_words=1, seed=0)
        at_least(self, no_repeat_ngram_size=0, diverse_beam_strength=0, sampling_topk=0)
        for name in ("min_len", "max_len"):
            known = LENGTH.fullmatch(str(getattr(self, name))) is not None
            self._require(name, known, "a number of words or a line such as 1.2x+10")
        some = slope(self.max_len) > 0 or length(self.max_len, 0) >= 1
        self._require("max_len", some, "at least 1")
        self._require("min_len", length(self.min_len, 0) >= 0, "at least 0")
        ignores = self.no_repeat_ngram_size > 0 or not self.no_repeat_ngram_ignore
        size = "left out without --no-repeat-ngram-size"
        self._require("no_repeat_ngram_ignore", ignores, size)
        self._require("lenpen", -10 <= self.lenpen <= 10, "between -10 and 10")
        groups = self.diverse_beam_groups
        parts = groups >= 1 and self.beam % groups == 0
        self._require("diverse_beam_groups", parts, f"a divisor of --beam {self.beam}")
        self._require("diverse_beam_groups", not self.sampling or groups == 1, "1 with --sampling")
        wide = self.beam > groups or self.search != "exact"
        self._require("search", wide, "another one with --beam 1 or groups of 1")
        fits = not self.sampling or self.search == "likely"
        self._require("search", fits, "left out with --sampling")
        fits = self.sampling or self.nbest <= self.beam
        self._require("nbest", fits, f"at most --beam {self.beam}")
        draws = {"sampling_topk": 0, "sampling_topp": 1, "sampling_minp": 0}
        for name, plain in draws.items():
            idle = not self.sampling and getattr(self, name) != plain
            self._require(name, not idle, f"{plain} without --sampling")
        self._require("temperature", self.temperature > 0, "above 0")
        fits = self.max_words is None or not (slope(self.min_len) or length(self.min_len, 0))
        self._require("min_len", fits, "0 with --max-words")
        self._require("sampling_topp", 0 < self.sampling_topp <= 1, "in (0, 1]")
        self._require("sampling_minp", 0 <= self.sampling_minp <= 1, "in [0, 1]")
        # other lines are compared for each source
        lines = slope(self.min_len) + slope(self.max_len) > 0
        fits = lines or length(self.min_len, 0) <= length(self.max_len, 0)
        self._require("min_len", fits, f"at most --max-len {self.max_len}")

    @property
    def width(self) -> int:
        """Hypotheses of an input that are open at a time."""
        return self.nbest if self.sampling else self.beam

    def _require(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            flag = "--" + name.replace("_", "-")
            raise UsageError(f"{flag} must be {what}, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class EmbedConfig:
    """Which states stand for a text."""

    layer: int = -1
    """States of which layer: 0 enters the first one, -1 is what leaves the last one."""
    pool: Literal["mean", "first", "last", "none", "latent"] = "mean"
    """mean: of all words; first: at the first slot, BERT's [CLS]; last: at the last slot; none: of
    every slot, as json-lines; latent: the most likely latent of an autoencoder."""
    specials: bool = False
    """Special symbols count in the mean."""
    truncate: bool = False
    """Shorten the last part of a text that is too long for the model, instead of refusing it."""
    max_tokens: int = 16384
    """Most slots of a batch."""

    def __post_init__(self) -> None:
        at_least(self, max_tokens=1)
        idle = self.specials and self.pool != "mean"
        require(not idle, f"--specials has no effect with --pool {self.pool}")
        idle = self.layer != -1 and self.pool == "latent"
        require(not idle, "--layer has no effect with --pool latent")


@dataclass(frozen=True)
class PredictConfig:
    """How texts are read."""

    null_threshold: float = 0.0
    """Answers: there is none where its log-probability is larger by so much than that of the best
    answer, in every window (BERT's null_score_diff_threshold); inf: there is always an answer."""
    truncate: bool = False
    """Shorten the last part of a text that is too long for the model, instead of refusing it."""
    max_tokens: int = 16384
    """Most slots of a batch."""

    def __post_init__(self) -> None:
        require(self.max_tokens >= 1, f"--max-tokens must be at least 1, got {self.max_tokens}")


def made(kind: type[Config], options: Mapping[str, object]) -> Config:
    """The configuration with these options; an unknown one is a UsageError with the nearest."""
    known = [field.name for field in fields(kind)]
    for name in options:
        if name not in known:
            hint = nearest(name, known) or f" (known: {', '.join(known)})"
            raise UsageError(f"there is no option {name!r}{hint}")
    return kind(**options)


def length(text: str | int, words: int) -> int:
    """The words that `--min-len` or `--max-len` come to for a source of so many words."""
    return int(slope(text) * words) + _parse(text)[1]


def slope(text: str | int) -> float:
    """Words of the output for each word of the source."""
    return _parse(text)[0]


@functools.cache
def _parse(text: str | int) -> tuple[float, int]:
    """Slope and constant of a number, or of a text such as 12, 1.2x or 1.2x+10."""
    found = LENGTH.fullmatch(str(text))
    assert found
    slope, offset, number = found.groups()
    return float(slope or 0), int(number or offset or 0)
