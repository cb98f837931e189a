"""A trained model with its task: sources in, texts out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from unitk.data.texts import shorten
from unitk.errors import DataError, UsageError
from unitk.generate.config import GenerateConfig
from unitk.generate.decode import check_places, generate, overrun
from unitk.generate.fill import fill
from unitk.generate.search import Hypothesis
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
    """Decodes with a model as its task prescribes."""

    def __init__(self, model: Model, task: Task) -> None:
        if task.protocol is None and not task.infills:
            raise UsageError(f"--checkpoint: task {type(task).__name__} does not generate")
        self.model, self.task, self.protocol = model, task, task.protocol

    def generate(
        self, texts: Sequence[str | Sequence[str]], *, truncate: bool = False, **options: object
    ) -> list[list[Output]]:
        """The n best outputs for each source, a text or its parts; `options`: GenerateConfig's."""
        parts = [[text] if isinstance(text, str) else text for text in texts]
        return self.outputs(self.encode(parts), GenerateConfig(**options), truncate=truncate)  # type: ignore[arg-type]

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

    def outputs(
        self,
        sources: Sequence[list[Ids]],
        config: GenerateConfig,
        *,
        truncate: bool = False,
        report: Callable[[int], None] = lambda done: None,
    ) -> list[list[Output]]:
        """The n best outputs for each source; an empty source has none.

        Too long a source raises DataError, or is shortened if `truncate`.
        """
        kept = list(sources)
        alike: dict[int | None, list[tuple[int, Example]]] = {}  # by the words to write
        for number, source in enumerate(sources):
            if sum(map(len, source)):
                length = self.task.length(source)
                one = _exactly(length, config)
                kept[number], prompt = self._fit(source, number, one, truncate)
                alike.setdefault(length, []).append((number, prompt))
        shortened = sum(old is not new for old, new in zip(sources, kept, strict=True))
        if shortened:
            log.warning("--truncate shortened %d of %d sources", shortened, len(sources))
        found: list[list[Output]] = [[] for _ in sources]
        for length, some in alike.items():
            prompts = [prompt for _, prompt in some]
            decoded = self._decode(prompts, _exactly(length, config), report)
            for (number, _), best in zip(some, decoded, strict=True):
                found[number] = [Output(self.task.text(kept[number], one.ids), one) for one in best]
        return found

    def _decode(
        self, prompts: list[Example], config: GenerateConfig, report: Callable[[int], None]
    ) -> list[list[Hypothesis]]:
        if self.protocol is not None:
            return generate(self.model, prompts, self.protocol, config, report)
        if config.nbest > 1:
            raise UsageError("--nbest: masks are filled in one pass, there is one output")
        banned = np.array(list(self.task.vocab.symbols.values()))
        return fill(self.model, prompts, banned, config, report)

    def _fit(
        self, source: list[Ids], number: int, config: GenerateConfig, truncate: bool
    ) -> tuple[list[Ids], Example]:
        """The source, shortened if it must and may be, and its prompt."""
        prompt = self.task.prompt(source)
        if self.protocol is None:
            size, last = self.model.config.max_positions, prompt.towers["x"].pos.max()
            if 0 < size <= last:
                raise DataError(f"input {number + 1} is too long: position {last} of {size}")
            return source, prompt
        over, _ = overrun(prompt, self.protocol, config.max_len, self.model.config)
        room = sum(map(len, source)) - over
        if truncate and over > 0 and room > 0:
            source = shorten(source, room)
            prompt = self.task.prompt(source)
        name = f"input {number + 1}"
        check_places(prompt, self.protocol, config.max_len, self.model.config, name)
        return source, prompt


def _exactly(length: int | None, config: GenerateConfig) -> GenerateConfig:
    return config if length is None else replace(config, min_len=length, max_len=length)
