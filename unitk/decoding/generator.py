"""A trained model with its task: sources in, texts out; or texts in, scores out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import cast

import numpy as np

from unitk.data.texts import shorten
from unitk.decoding.config import EmbedConfig, GenerateConfig, length, made, slope
from unitk.decoding.constraints.base import (
    Constraint,
    Constraints,
    encode_phrase,
    word_rules,
)
from unitk.decoding.decode import check_places, generate, overrun
from unitk.decoding.embed import embed
from unitk.decoding.ensemble import Ensemble
from unitk.decoding.fill import fill
from unitk.decoding.forced import as_hypothesis, attention, score, watch
from unitk.decoding.search import Hypothesis
from unitk.errors import DataError, UsageError, require
from unitk.models.stack import Model
from unitk.slots import Example, Floats, Ids, Protocol, unroll
from unitk.tasks.base import Task

BLANKS = ("mask", "gmask", "smask")
"""Symbols that stand for a blank in a text."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Output:
    """One output as text: of a source with blanks, the source with the blanks filled."""

    text: str
    hypothesis: Hypothesis
    attention: Floats | None = None
    """[words, source words] of a decoder layer, where it was asked for; see `forced.attention`."""


NO_WORDS = Output("", Hypothesis(np.zeros(0, np.int64), 0.0, 0.0, np.zeros(0, np.float32)))


class Generator:
    """Decodes with a model, or an ensemble, as its task prescribes."""

    def __init__(self, model: Model | Ensemble, task: Task) -> None:
        if task.protocol is None and not task.infills:
            raise UsageError(f"--checkpoint: task {type(task).__name__} does not generate")
        self.model = cast(Model, model)  # an ensemble decodes as a model does
        self.task, self.protocol = task, usable(task, model.trained)
        self.vocab = task.vocab

    def generate(
        self,
        texts: str | Sequence[str | Sequence[str]],
        *,
        prefixes: Sequence[str] = (),
        constraints: Sequence[Sequence[str]] = (),
        truncate: bool = False,
        **options: object,
    ) -> list[list[Output]]:
        """The n best outputs for each source, a text or its parts; `options`: GenerateConfig's.

        `prefixes` are how the outputs for each source begin, `constraints` phrases they contain.
        A string is one source; the output for an empty source is empty.
        """
        config, sources = made(GenerateConfig, options), self.encode(parted(texts))
        each = self.constraints(prefixes, constraints)
        found = self.outputs(sources, config, constraints=each, truncate=truncate)
        return [
            outputs if sum(map(len, source)) else [NO_WORDS]
            for source, outputs in zip(sources, found, strict=True)
        ]

    def infill(self, texts: str | Sequence[str], **options: object) -> list[list[Output]]:
        """The n best ways to fill every [MASK], [sMASK] and [gMASK] of each text."""
        config = made(GenerateConfig, options)
        texts = [texts] if isinstance(texts, str) else texts
        return self.outputs([self.encode_blanks(text) for text in texts], config)

    def embed(
        self, texts: str | Sequence[str | Sequence[str]], **options: object
    ) -> Floats | list[Floats]:
        """A vector for each text, [N, D]; `options`: EmbedConfig's.

        With pool="none" a list of the states of each text, [T, D].
        """
        config = made(EmbedConfig, options)
        found = embed(self.model, self.task, self.encode(parted(texts)), config)
        return found if config.pool == "none" else np.array(found)

    def score(
        self,
        texts: str | Sequence[str | Sequence[str]],
        targets: str | Sequence[str],
        **options: object,
    ) -> list[Output]:
        """Given outputs, one for each source, with what a search would report of them."""
        config = made(GenerateConfig, options)
        ids = [target for (target,) in self.encode(parted(targets))]
        found = self.scores(self.encode(parted(texts)), ids, config)
        empty = [number for number, outputs in enumerate(found, 1) if not outputs]
        if empty:
            raise DataError(f"input {empty[0]} is empty")
        return [output for (output,) in found]

    def encode(self, sources: Sequence[Sequence[str]]) -> list[list[Ids]]:
        """The ids of each part of each source."""
        found = iter(self.task.vocab.encode_batch([part for parts in sources for part in parts]))
        return [[next(found).astype(np.int64) for _ in parts] for parts in sources]

    def encode_blanks(self, text: str) -> list[Ids]:
        """A text whose blanks are written as symbols; there must be one."""
        vocab = self.task.vocab
        if not self.task.infills:
            raise UsageError(f"--infill: task {type(self.task).__name__} does not fill blanks")
        ids = self.encode_marked(text)
        if not self.has_blank(ids):
            known = ", ".join(vocab.pieces(self._blanks()))
            raise UsageError(f"--infill: there is no blank in {text!r}; write one as {known}")
        return [ids]

    def encode_marked(self, text: str) -> Ids:
        """The ids of a text in which symbols such as [MASK] are what they are called."""
        return np.array(self.vocab.encode_marked(text), np.int64)

    def has_blank(self, ids: Ids) -> bool:
        """Whether there is a blank that the task fills."""
        return self.task.infills and bool(np.isin(ids, self._blanks()).any())

    def _blanks(self) -> list[int]:
        return [self.vocab.symbols[name] for name in BLANKS if name in self.vocab.symbols]

    def constraints(
        self,
        prefixes: Sequence[str] = (),
        phrases: Sequence[Sequence[str]] = (),
        names: tuple[str, str] = ("prefix", "constraints"),
    ) -> list[Constraint]:
        """What each source's outputs must contain; `names` and a number stand in errors."""
        vocab = self.task.vocab
        begin, contain = (f"{name} {{}}".format for name in names)
        return [
            Constraint(
                encode_phrase(prefix, vocab, begin(number)),
                # within an output, a word comes after a blank
                tuple(
                    encode_phrase(" " + one, vocab, contain(number)) for one in some if one.strip()
                ),
            )
            for number, (prefix, some) in enumerate(zip_longest(prefixes, phrases, fillvalue=""), 1)
        ]

    def outputs(
        self,
        sources: Sequence[list[Ids]],
        config: GenerateConfig,
        *,
        constraints: Sequence[Constraint] = (),
        truncate: bool = False,
        first: int = 0,
        layer: int | None = None,
        report: Callable[[int], None] = lambda done: None,
    ) -> list[list[Output]]:
        """The n best outputs for each source; an empty source has none.

        `constraints` are one for each source, or none at all. Too long a source raises DataError,
        or is shortened if `truncate`. `first` is the number of the first source among all inputs.
        With a `layer` of the decoder (`forced.attention`), outputs have its attention.
        """
        self._check_layer(layer)
        if isinstance(self.model, Ensemble) and not config.sampling:
            require(config.temperature == 1, "--temperature in a search is for one model")
        kept, prompts = self.prompts(
            sources, config, constraints=constraints, truncate=truncate, first=first
        )
        self._warn(sources, kept, config)
        found: list[list[Output]] = [[] for _ in sources]
        decoded = self._decode(prompts, config, first, report)
        for number, best in zip(prompts, decoded, strict=True):
            found[number] = [Output(self.task.text(kept[number], one.ids), one) for one in best]
        if none := [first + number + 1 for number in prompts if not found[number]]:
            log.warning(
                "no output that the rules allow: %d sources, first input %d", len(none), none[0]
            )
        if layer is None:
            return found
        examples = {number: prompt for number, (prompt, _) in prompts.items()}
        return self._attended(examples, found, layer, config)

    def prompts(
        self,
        sources: Sequence[list[Ids]],
        config: GenerateConfig,
        *,
        constraints: Sequence[Constraint] = (),
        truncate: bool = False,
        first: int = 0,
    ) -> tuple[list[list[Ids]], dict[int, tuple[Example, Constraint]]]:
        """The sources, shortened if they must and may be; by number what is decoded of them.

        Raises DataError, as `outputs` does, for what cannot be decoded.
        """
        kept = list(sources)
        constraints = constraints or [Constraint()] * len(sources)
        require(len(constraints) == len(sources), "prefixes and constraints: one for each source")
        prompts: dict[int, tuple[Example, Constraint]] = {}
        for number, (source, wanted) in enumerate(zip(sources, constraints, strict=True)):
            if sum(map(len, source)):
                name = f"input {first + number + 1}"
                short = shorten(source, config.max_source_len)
                kept[number], prompt, sized = self._fit(short, name, config, wanted, truncate)
                prompts[number] = prompt, sized
        return kept, prompts

    def scores(
        self,
        sources: Sequence[list[Ids]],
        targets: Sequence[Ids],
        config: GenerateConfig,
        *,
        truncate: bool = False,
        first: int = 0,
        layer: int | None = None,
        report: Callable[[int], None] = lambda done: None,
    ) -> list[list[Output]]:
        """The target of each source as its only output, with what a search would report of it.

        A target may hold the words of several blanks, an end symbol after each; the last end may
        be left out. The rest is as in `outputs`.
        """
        protocol = self._ordered("--score")
        self._check_layer(layer)
        require(len(targets) == len(sources), "there must be a target for each source")
        kept, prompts, written = list(sources), {}, {}
        for number, (source, target) in enumerate(zip(sources, targets, strict=True)):
            if sum(map(len, source)):
                name = f"input {first + number + 1}"
                closed = protocol.endless or len(target) and target[-1] == protocol.end
                ids = written[number] = target if closed else np.append(target, protocol.end)
                short = shorten(source, config.max_source_len)
                kept[number], prompts[number] = self._fit_target(short, ids, name, truncate)
        self._warn(sources, kept, config)
        examples = [unroll(prompts[number], protocol, ids) for number, ids in written.items()]
        every = score(self.model, examples, config.max_tokens, report)
        found: list[list[Output]] = [[] for _ in sources]
        for (number, ids), gains in zip(written.items(), every, strict=True):
            if config.unkpen:
                gains = gains - np.float32(config.unkpen) * (ids == self.vocab.unk)
            limit = length(config.max_len, sum(map(len, kept[number])))
            one = as_hypothesis(ids, gains, protocol, config, limit)
            found[number] = [Output(self.task.text(kept[number], ids), one)]
        return found if layer is None else self._attended(prompts, found, layer, config)

    def _attended(
        self,
        prompts: dict[int, Example],
        found: list[list[Output]],
        layer: int,
        config: GenerateConfig,
    ) -> list[list[Output]]:
        """The outputs, with how much their words look at those of the source."""
        protocol, vocab = self._ordered("--print-alignment"), self.task.source_vocab
        examples = [
            unroll(prompt, protocol, one.hypothesis.ids)
            for number, prompt in prompts.items()
            for one in found[number]
        ]
        tables = attention(self.model, examples, protocol, vocab, layer, config.max_tokens)
        each = iter(tables)
        return [[replace(one, attention=next(each)) for one in outputs] for outputs in found]

    def _check_layer(self, layer: int | None) -> None:
        """Refuse before the search what has no attention to the source."""
        if layer is not None:
            with watch(self.model, layer):
                pass

    def _warn(
        self, sources: Sequence[list[Ids]], kept: Sequence[list[Ids]], config: GenerateConfig
    ) -> None:
        """Say how many sources were shortened."""
        shortened = sum(old is not new for old, new in zip(sources, kept, strict=True))
        if shortened:
            most = config.max_source_len
            limit = f" to {most} tokens or fewer (--max-source-len)" if most else ""
            log.warning("shortened %d of %d sources%s", shortened, len(sources), limit)

    def _ordered(self, flag: str) -> Protocol:
        """The protocol, of a task that writes word by word."""
        if self.protocol is None:
            raise UsageError(f"{flag}: task {type(self.task).__name__} fills masks in one pass")
        return self.protocol

    def _decode(
        self,
        prompts: dict[int, tuple[Example, Constraint]],
        config: GenerateConfig,
        first: int,
        report: Callable[[int], None],
    ) -> list[list[Hypothesis]]:
        examples = [prompt for prompt, _ in prompts.values()]
        vocab = self.task.vocab
        if self.protocol is not None:
            each = [one for _, one in prompts.values()]
            inputs = [first + number for number in prompts]
            return generate(
                self.model,
                examples,
                self.protocol,
                config,
                report,
                constraints=Constraints(each, word_rules(config, vocab)),
                inputs=inputs,
            )
        idle = {
            "--nbest": config.nbest > 1,
            "--bad-words": config.bad_words,
            "--prefix-file": any(one.prefix for _, one in prompts.values()),
            "--constraints": any(one.phrases for _, one in prompts.values()),
        }
        for flag, given in idle.items():
            require(not given, f"{flag}: masks are filled in one pass, with one output")
        banned = np.array(list(vocab.symbols.values()))
        return fill(self.model, examples, banned, config, report)

    def _fit(
        self,
        source: list[Ids],
        name: str,
        config: GenerateConfig,
        wanted: Constraint,
        truncate: bool,
    ) -> tuple[list[Ids], Example, Constraint]:
        """The source, shortened if it must and may be, its prompt and its outputs' constraint."""
        while True:
            prompt = self.task.prompt(source)
            words = sum(map(len, source))
            sized = wanted.sized(config, words, exactly=self.task.length(source), name=name)
            if self.protocol is None:
                size, last = self.model.config.max_positions, prompt.towers["x"].pos.max()
                if 0 < size <= last:
                    raise DataError(f"{name} is too long: position {last} of {size}")
                return source, prompt, sized
            over, _ = overrun(prompt, self.protocol, sized.max_len, self.model.config)
            # the longest output may become shorter with the source
            cut = max(1, int(over / (1 + slope(config.max_len))))
            if not truncate or over <= 0 or cut >= words:
                break
            source = shorten(source, words - cut)
        fits = max(words - cut, 0)
        check_places(prompt, self.protocol, sized.max_len, self.model.config, name, fits)
        return source, prompt, sized

    def _fit_target(
        self, source: list[Ids], ids: Ids, name: str, truncate: bool
    ) -> tuple[list[Ids], Example]:
        """The source, shortened if it must and may be, and its prompt, which `ids` will follow."""
        protocol, config = self._ordered("--score"), self.model.config
        ends = np.flatnonzero(np.append(ids, protocol.end) == protocol.end)
        ends = ends if protocol.endless else ends[:-1]
        words = int(np.diff(ends, prepend=-1).max()) - 1
        prompt = self.task.prompt(source)
        over, over2 = overrun(prompt, protocol, words, config)
        if truncate and 0 < over < sum(map(len, source)):
            source = shorten(source, sum(map(len, source)) - over)
            prompt = self.task.prompt(source)
            over, over2 = overrun(prompt, protocol, words, config)
        if max(over, over2) > 0:
            raise DataError(
                f"{name} with its target of {words} words is too long by {max(over, over2)} for "
                "this model's positions; --truncate shortens the last part of the source"
            )
        if len(ends) != 1 + len(prompt.blanks):
            raise DataError(f"{name}: {len(ends)} targets for {1 + len(prompt.blanks)} blanks")
        return source, prompt


def usable(task: Task, trained: int) -> Protocol | None:
    """How a task decodes with a model whose output layer has so many trained rows.

    Raises UsageError where what it must write or read was added by an import.
    """
    protocol = task.protocol
    if protocol is None:
        return None
    added = range(trained, len(task.vocab))
    needed = [protocol.end, protocol.begin, protocol.probe][task.continues :]
    if lacking := [id_ for id_ in needed if id_ is not None and id_ in added]:
        names = ", ".join(task.vocab.pieces(lacking))
        raise UsageError(
            f"--checkpoint: task {type(task).__name__} needs {names} to generate, which the"
            " imported model lacks: train it with --init-from first"
        )
    return replace(protocol, endless=True) if protocol.end in added else protocol


def parted(texts: str | Sequence[str | Sequence[str]]) -> list[Sequence[str]]:
    """The parts of each text; a string is one text of one part."""
    texts = [texts] if isinstance(texts, str) else texts
    return [[text] if isinstance(text, str) else text for text in texts]
