"""A trained model with its task: sources in, texts out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from unitk.data.texts import shorten
from unitk.errors import DataError, UsageError, require
from unitk.generate.config import GenerateConfig, slope
from unitk.generate.decode import check_places, generate, overrun
from unitk.generate.demands import NOTHING, Demand, Demands, Wish
from unitk.generate.ensemble import Ensemble
from unitk.generate.fill import fill
from unitk.generate.search import Hypothesis
from unitk.generate.wording import encode_phrase, lexicon
from unitk.models.stack import Model
from unitk.slots import Example, Ids
from unitk.tasks.base import Task

BLANKS = ("mask", "gmask", "smask")
"""Symbols that stand for a blank in a text."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Output:
    """One output as text: of a source with blanks, the source with the blanks filled."""

    text: str
    hypothesis: Hypothesis


class Generator:
    """Decodes with a model, or an ensemble, as its task prescribes."""

    def __init__(self, model: Model | Ensemble, task: Task) -> None:
        if task.protocol is None and not task.infills:
            raise UsageError(f"--checkpoint: task {type(task).__name__} does not generate")
        self.model, self.task, self.protocol = model, task, task.protocol
        self.vocab = task.vocab

    def generate(
        self,
        texts: Sequence[str | Sequence[str]],
        *,
        prefixes: Sequence[str] = (),
        constraints: Sequence[Sequence[str]] = (),
        truncate: bool = False,
        **options: object,
    ) -> list[list[Output]]:
        """The n best outputs for each source, a text or its parts; `options`: GenerateConfig's.

        `prefixes` are how the outputs for each source begin, `constraints` phrases they contain.
        """
        parts = [[text] if isinstance(text, str) else text for text in texts]
        sources, config = self.encode(parts), GenerateConfig(**options)  # type: ignore[arg-type]
        wishes = self.wishes(prefixes, constraints)
        return self.outputs(sources, config, wishes=wishes, truncate=truncate)

    def infill(self, texts: Sequence[str], **options: object) -> list[list[Output]]:
        """The n best ways to fill every [MASK], [sMASK] and [gMASK] of each text."""
        sources = [self.encode_blanks(text) for text in texts]
        return self.outputs(sources, GenerateConfig(**options))  # type: ignore[arg-type]

    def encode(self, sources: Sequence[Sequence[str]]) -> list[list[Ids]]:
        """The ids of each part of each source."""
        found = iter(self.task.vocab.encode_batch([part for parts in sources for part in parts]))
        return [[next(found).astype(np.int64) for _ in parts] for parts in sources]

    def encode_blanks(self, text: str) -> list[Ids]:
        """A text whose blanks are written as symbols; there must be one."""
        vocab = self.task.vocab
        if not self.task.infills:
            raise UsageError(f"--infill: task {type(self.task).__name__} does not fill blanks")
        ids = np.array(vocab.encode_marked(text), np.int64)
        blanks = {name: vocab.symbols[name] for name in BLANKS if name in vocab.symbols}
        if not np.isin(ids, list(blanks.values())).any():
            known = ", ".join(vocab.pieces(blanks.values()))
            raise UsageError(f"--infill: there is no blank in {text!r}; write one as {known}")
        return [ids]

    def wishes(
        self,
        prefixes: Sequence[str] = (),
        constraints: Sequence[Sequence[str]] = (),
        names: tuple[str, str] = ("prefix", "constraints"),
    ) -> list[Wish]:
        """What is asked of each source's outputs; `names` and a number stand in errors."""
        vocab = self.task.vocab
        begin, contain = (f"{name} {{}}".format for name in names)
        return [
            Wish(
                encode_phrase(prefix, vocab, begin(number)),
                # within an output, a word comes after a blank
                tuple(
                    encode_phrase(" " + one, vocab, contain(number))
                    for one in phrases
                    if one.strip()
                ),
            )
            for number, (prefix, phrases) in enumerate(
                zip_longest(prefixes, constraints, fillvalue=""), 1
            )
        ]

    def outputs(
        self,
        sources: Sequence[list[Ids]],
        config: GenerateConfig,
        *,
        wishes: Sequence[Wish] = (),
        truncate: bool = False,
        report: Callable[[int], None] = lambda done: None,
    ) -> list[list[Output]]:
        """The n best outputs for each source; an empty source has none.

        `wishes` are one for each source, or none at all. Too long a source raises DataError, or is
        shortened if `truncate`.
        """
        kept = list(sources)
        wishes = wishes or [NOTHING] * len(sources)
        require(len(wishes) == len(sources), "prefixes and constraints: one for each source")
        prompts: dict[int, tuple[Example, Demand]] = {}
        for number, (source, wish) in enumerate(zip(sources, wishes, strict=True)):
            if sum(map(len, source)):
                fitted, prompt, demand = self._fit(source, number, config, wish, truncate)
                kept[number], prompts[number] = fitted, (prompt, demand)
        shortened = sum(old is not new for old, new in zip(sources, kept, strict=True))
        if shortened:
            log.warning("--truncate shortened %d of %d sources", shortened, len(sources))
        found: list[list[Output]] = [[] for _ in sources]
        decoded = self._decode([*prompts.values()], config, report)
        for number, best in zip(prompts, decoded, strict=True):
            found[number] = [Output(self.task.text(kept[number], one.ids), one) for one in best]
        if none := [number + 1 for number in prompts if not found[number]]:
            log.warning(
                "no output that the rules allow: %d sources, first input %d", len(none), none[0]
            )
        return found

    def _decode(
        self,
        prompts: list[tuple[Example, Demand]],
        config: GenerateConfig,
        report: Callable[[int], None],
    ) -> list[list[Hypothesis]]:
        examples = [prompt for prompt, _ in prompts]
        vocab = self.task.vocab
        if self.protocol is not None:
            demands = Demands([demand for _, demand in prompts], lexicon(config, vocab))
            return generate(self.model, examples, self.protocol, config, report, demands=demands)
        idle = {
            "--nbest": config.nbest > 1,
            "--bad-words": config.bad_words,
            "--prefix-file": any(demand.prefix for _, demand in prompts),
            "--constraints": any(demand.phrases for _, demand in prompts),
        }
        for flag, given in idle.items():
            require(not given, f"{flag}: masks are filled in one pass, with one output")
        banned = np.array(list(vocab.symbols.values()))
        return fill(self.model, examples, banned, config, report)

    def _fit(
        self, source: list[Ids], number: int, config: GenerateConfig, wish: Wish, truncate: bool
    ) -> tuple[list[Ids], Example, Demand]:
        """The source, shortened if it must and may be, its prompt and what is asked of outputs."""
        name = f"input {number + 1}"
        while True:
            prompt = self.task.prompt(source)
            words = sum(map(len, source))
            demand = Demand.of(config, words, wish, exactly=self.task.length(source), name=name)
            if self.protocol is None:
                size, last = self.model.config.max_positions, prompt.towers["x"].pos.max()
                if 0 < size <= last:
                    raise DataError(f"{name} is too long: position {last} of {size}")
                return source, prompt, demand
            over, _ = overrun(prompt, self.protocol, demand.max_len, self.model.config)
            # the longest output may become shorter with the source
            cut = max(1, int(over / (1 + slope(config.max_len))))
            if not truncate or over <= 0 or cut >= words:
                break
            source = shorten(source, words - cut)
        check_places(prompt, self.protocol, demand.max_len, self.model.config, name)
        return source, prompt, demand
