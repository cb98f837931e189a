"""Options of the search; torch-free. Those of `RulesConfig` are obeyed in constraints/rules.py."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from unitk.errors import check_option, require
from unitk.options.config import With, resolve
from unitk.options.fields import Bound, Chance, Checked, Count, Part, Positive, Weight, flag
from unitk.options.settings import Origin, Settings, argument_text

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
    wide: int = 2  # continuations that are considered for each input, as a multiple of K
    norm: Literal["power", "wu"] = "power"
    """The divisor of log-probabilities. power: n ** lenpen; wu: ((5 + n) / 6) ** lenpen (Wu et
    al. 2016, arXiv 1609.08144, equation 14)."""
    counts_ends: bool = True  # whether end symbols are part of n
    free_end: bool = False
    """Whether the end that `--max-len` forces costs nothing, and is no part of n."""

    def divisor(self, length: Any, lenpen: float) -> Any:
        """The divisor of the log-probability that ranks outputs of these lengths, which are numbers
        or a tensor."""
        return ((5 + length) / 6 if self.norm == "wu" else length) ** lenpen


SEARCH_PRESETS = {
    "likely": SearchPreset(stop="likely"),
    "exact": SearchPreset(stop="exact"),
    "fairseq": SearchPreset(stop="first"),
    "glm": SearchPreset(stop="glm", counts_ends=False, free_end=True),
    "unilm": SearchPreset(stop="none", wide=1, norm="wu", free_end=True),
}
"""Values of `--search`; fairseq is 0.12, glm `generation_utils.py`, unilm UniLM's `modeling.py`."""

# 12, 1.2x or 1.2x+10; of more digits, a product would be no integer
LENGTH = re.compile(r"(?:(\d{1,6}(?:\.\d{1,18})?|\.\d{1,18})x(?:\+(\d{1,9}))?|(-?\d{1,9}))")


@dataclass(frozen=True, kw_only=True)
class SearchConfig(Checked):
    """Beam search."""

    beam: Annotated[int, Bound(1, 10_000)] = 5
    """Beam size: open hypotheses of each input. 1 is greedy decoding."""
    nbest: Annotated[int, Bound(1, 10_000)] = 1
    """Outputs for each input, best first."""
    lenpen: Annotated[float, Bound(-10, 10)] = 1.0
    """Length penalty: rank by log-probability / length ** lenpen. --search glm and unilm have other
    formulas. With --infill the default is 0."""
    search: Literal["likely", "exact", "fairseq", "glm", "unilm"] = "likely"
    """How a beam search ends and ranks. likely: end when the worst kept output beats every open
    hypothesis at its current length. exact: end when no open hypothesis can still enter the n best.
    fairseq, glm, unilm: like those programs (docs/generate.md). Greedy decoding ends with the first
    end symbol."""
    diverse_beam_groups: int = 1
    """Groups of the beam that avoid each other's tokens (Vijayakumar et al. 2016)."""
    diverse_beam_strength: Annotated[Weight, With("diverse_beam_groups")] = 0.5
    """Penalty of a token for each hypothesis of an earlier group that has it at the same place."""
    contrast: Weight = 0.0
    """Rank the outputs of a search by score + X (l - o): l is an output's log-probability, o its
    highest one with another word of the source in place of --avoid-part. 0: by the score."""
    rerank: Literal["auto", "on", "off"] = "auto"
    """Fill blanks in several lengths, and rank the filled texts. Those that repeat fewer words come
    first. Then counts their log-probability under the same model as a language model, and, half as
    much, that of the fills. auto: in a beam search, if the model was also trained with --task lm.
    """
    max_tokens: Positive = 16384
    """Maximum slots of a batch: the prompt and the longest output of every beam."""
    capture: Literal["auto", "on", "off"] = "auto"
    """Record decoding steps as CUDA graphs and replay them, also for later batches: faster, for the
    same outputs. auto: on a GPU, where all steps are alike and the model does not train."""


@dataclass(frozen=True, kw_only=True)
class RulesConfig(Checked):
    """Limits and constraints of outputs."""

    min_len: str | int = 0
    """Minimum tokens of an output or of each blank. The end symbol does not count. 0.1x+2 depends
    on the x tokens of the source."""
    max_len: str | int = 64
    """Maximum tokens of an output or of each blank. 1.2x+10 depends on the x tokens of the
    source."""
    max_words: Positive | None = None
    """Maximum tokens of all blanks of an output together. Further blanks stay empty (GLM)."""
    allow_symbols: str = ""
    """Special symbols to allow although the task bans them, separated by blanks."""
    end_symbols: str = ""
    """Further tokens that end an output, such as "<|im_end|>" of a chat model, separated by blanks.
    """
    begin_word: bool = False
    """Do not go on inside the last word of a text: the first token begins a word, or is a mark."""
    sentences: Count = 0
    """End an output after this many sentences. One that --max-len ends before is cut after its
    last whole sentence. 0: no."""
    extract: bool = False
    """Write only what the source has: some of its sentences, in their order, which may lose
    clauses between marks, and brackets. The last part of a source counts."""
    no_repeat_ngram_size: Count = 0
    """Block repeated n-grams of this size. Each blank counts by itself. 0: off."""
    no_repeat_ngram_ignore: str = ""
    """N-grams with one of these words may repeat, such as ". , [SEP]"."""
    unkpen: Annotated[float, Bound(above=True)] = 0.0
    """Penalty that is subtracted from the log-probability of the unknown token."""
    bad_words: Path | None = None
    """File of words or phrases that are never written, one a line."""
    avoid_part: Count = 0
    """Part of the source, counted from 1, that outputs do not contain, such as the answer to a
    question that is asked. 0: none."""


@dataclass(frozen=True, kw_only=True)
class SamplingConfig(Checked):
    """Sampling instead of a search."""

    sampling: bool = False
    """Draw --nbest outputs token by token instead of searching. Scores are the model's own."""
    temperature: Annotated[float, Bound(1e-6, below=True)] = 1.0
    """Divides the logits: below 1 sharpens, above 1 flattens. A search ranks with it. The scores of
    draws are the model's own."""
    sampling_topk: Count = 0
    """Sample from the k most probable tokens. 0: from all."""
    sampling_topp: Part = 1.0
    """Sample from the most probable tokens that together have this probability."""
    sampling_minp: Chance = 0.0
    """Sample from the tokens with at least this share of the highest probability, after top-k and
    top-p. 0: off."""
    best_of: Annotated[int, Bound(1, 10_000)] = 1
    """Draw this many outputs, if they are more than --nbest, and keep those with the best scores.
    """
    repeat_cost: Weight = 0.0
    """Rank draws by score - X r: r is the share of an output's words of four letters or more that
    the source has, or the output itself has before. 0: by the score."""
    seed: Count = 1
    """Seed of the draws. Every input has its own draws. A search without draws needs none, and
    finds the same with any."""


@dataclass(frozen=True, kw_only=True)
class DiffusionConfig(Checked):
    """Diffusion: several passes fill [MASK]s; --max-len of them follow a source."""

    steps: Positive | None = None
    """Passes over the tokens of a block, each of which fixes some. Default: one for each token."""
    order: Literal["confident", "random", "ancestral"] = "confident"
    """Tokens that a pass fixes. confident: those with the highest probability (LLaDA). random: any,
    as many. ancestral: each one by chance, as its time decides (MDLM)."""
    block_length: Positive | None = None
    """Length of the blocks that are written from left to right. Default: one block, or the blocks
    of the model's training (BD3-LM)."""


@dataclass(frozen=True, kw_only=True)
class GenerateConfig(DiffusionConfig, SamplingConfig, RulesConfig, SearchConfig):
    """Generation of outputs."""

    INFILL_LENPEN: ClassVar[float] = 0.0
    """The length penalty of blanks: none, since the length of a fill is part of the answer."""
    max_source_len: Positive | None = None
    """Truncate the last part of longer sources; keep a window around the answer if the pairs of the
    training had one. Default: the limits used in training; none lifts them."""
    key_phrases: tuple[str, ...] = ()
    """Phrases such as "we propose": of a source, only the first sentence that has one of them is
    read, or its first sentence if none has. An opening before the phrase and a comma is left out.
    Default: sources are read whole."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for rules in (self._length_rules(), self._search_rules()):
            for name, holds, what in rules:
                check_option(self, name, holds, what)

    def _length_rules(self) -> Iterator[tuple[str, bool, str]]:
        """Options of lengths, whether each is as it must be, and what it must be."""
        for name in ("min_len", "max_len"):
            known = LENGTH.fullmatch(str(getattr(self, name))) is not None
            yield name, known, "a number of at most 9 digits, or a formula such as 1.2x+10"
        least, most = length(self.min_len, 0), length(self.max_len, 0)
        # with a formula, the two are compared for each source
        grows = slope(self.min_len) > 0, slope(self.max_len) > 0
        yield "max_len", grows[1] or most >= 1, "at least 1"
        yield "min_len", least >= 0, "at least 0"
        yield "min_len", self.max_words is None or not (grows[0] or least), "0 with --max-words"
        yield "min_len", any(grows) or least <= most, f"at most --max-len {self.max_len}"

    def _search_rules(self) -> Iterator[tuple[str, bool, str]]:
        """The same for the options of searches and draws."""
        draws, groups = self.sampling, self.diverse_beam_groups
        ignores = self.no_repeat_ngram_size > 0 or not self.no_repeat_ngram_ignore
        yield "no_repeat_ngram_ignore", ignores, "left out without --no-repeat-ngram-size"
        parts = groups >= 1 and self.beam % groups == 0
        yield "diverse_beam_groups", parts, f"a divisor of --beam {self.beam}"
        yield "diverse_beam_groups", not draws or groups == 1, "1 with --sampling"
        wide = self.beam > groups or self.search != "exact"
        yield "search", wide, "another one with --beam 1 or groups of 1"
        yield "search", not draws or self.search == "likely", "left out with --sampling"
        plain = not draws and groups == 1
        yield "extract", plain or not self.extract, "left out with --sampling or groups of a beam"
        yield "nbest", draws or self.nbest <= self.beam, f"at most --beam {self.beam}"
        yield "sentences", not (self.contrast and self.sentences), "0 with --contrast"
        searches = self.avoid_part > 0 and self.beam > 1 and not draws
        least = "0 without a search by --beam 2 or more, and --avoid-part"
        yield "contrast", searches or self.contrast == 0, least
        for name in ("sampling_topk", "sampling_topp", "sampling_minp", "best_of", "repeat_cost"):
            plain = getattr(GenerateConfig, name)
            yield name, draws or getattr(self, name) == plain, f"{plain:g} without --sampling"

    @property
    def width(self) -> int:
        """How many hypotheses of an input are open at the same time."""
        return max(self.nbest, self.best_of) if self.sampling else self.beam

    @property
    def searching(self) -> GenerateConfig:
        """The options of the search itself, which leaves all outputs if some of them are chosen."""
        chosen = self.sampling or self.sentences or self.contrast
        return replace(self, nbest=self.width) if chosen else self

    @staticmethod
    def scored(search: str) -> list[str]:
        """The names of the options that count where outputs are given."""
        names = ["lenpen", "search", "unkpen", "end_symbols"]
        names += ["max_tokens", "max_source_len", "key_phrases"]
        if search in ("glm", "unilm"):  # which end there for free
            names.append("max_len")
        return names

    def idle(self, why: str, *names: str) -> None:
        """Raise a `UsageError` unless each of these options has its default."""
        for name in names:
            require(getattr(self, name) == getattr(GenerateConfig, name), f"{flag(name)} {why}")


@dataclass(frozen=True, kw_only=True)
class EmbedConfig(Checked):
    """States that represent a text."""

    layer: int = -1
    """Layer whose states are read. 0 is the input of the first layer, -1 the last one's output."""
    pool: Literal["auto", "mean", "first", "last", "none", "latent"] = "auto"
    """auto: as `--task contrastive` has trained it, else mean. mean: over all tokens; first: the
    first slot, BERT's [CLS]; last: the last slot; none: every slot, as json-lines; latent: the most
    likely latent of an autoencoder."""
    side: Literal["source", "target"] = "source"
    """Tower that reads the texts, of a model with two (`--task contrastive --task.towers two`)."""
    specials: bool = False
    """Include special symbols in the mean."""
    truncate: bool = False
    """Truncate the last part of a text that is too long for the model, instead of refusing it."""
    max_tokens: Positive = 16384
    """Maximum slots of a batch."""

    def __post_init__(self) -> None:
        super().__post_init__()
        idle = self.specials and self.pool not in ("auto", "mean")
        require(not idle, f"--specials has no effect with --pool {self.pool}")
        idle = self.layer != -1 and self.pool == "latent"
        require(not idle, "--layer has no effect with --pool latent")


@dataclass(frozen=True)
class PredictConfig(Checked):
    """How `unitk predict` reads texts."""

    null_threshold: float = 0.0
    """Answers: predict no answer only if, in every window, its log-probability exceeds that of the
    best answer by this much (BERT's null_score_diff_threshold). inf: always answer."""
    truncate: bool = False
    """Truncate the last part of a text that is too long for the model, instead of refusing it."""
    probabilities: bool = False
    """Also write the probabilities of all labels or choices, or of each tag."""
    max_tokens: Positive = 16384
    """Maximum slots of a batch."""


LOCAL = "bad_words", "capture", "max_tokens"
"""Options that name a file or depend on the machine: requests and checkpoints have none of them."""
BLANKS_ONLY = ("rerank",)
"""Options that concern blanks alone."""


def make_config(kind: type[Config], options: Mapping[str, object]) -> Config:
    """Build the configuration from options by name, whose values the command line could give.

    Raises UsageError for an unknown name, with the nearest one, and for a value that cannot be.
    """
    texts = {name: argument_text(value, name) for name, value in options.items()}
    return resolve(kind, Settings.of_texts(texts, Origin.FLAG)).main


def length(text: str | int, words: int) -> int:
    """The number of words that `--min-len` or `--max-len` means for a source of this many words."""
    return int(slope(text) * words) + _parse(text)[1]


def slope(text: str | int) -> float:
    """The words by which the longest output grows with each word of its source."""
    return _parse(text)[0]


@functools.cache
def _parse(text: str | int) -> tuple[float, int]:
    """Slope and constant of a length: a number, or a text such as 12, 1.2x or 1.2x+10."""
    match = LENGTH.fullmatch(str(text))
    assert match
    slope, offset, number = match.groups()
    return float(slope or 0), int(number or offset or 0)
