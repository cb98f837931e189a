"""A trained model with its task: sources in, texts out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from unitk.data.texts import shorten
from unitk.errors import UsageError
from unitk.generate.config import GenerateConfig
from unitk.generate.decode import check_places, generate, overrun
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
        if task.protocol is None:
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
        if self.protocol.begin is None:
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
        kept, prompts = list(sources), []
        full = [number for number, source in enumerate(sources) if sum(map(len, source))]
        for number in full:
            kept[number], prompt = self._fit(sources[number], number, config, truncate)
            prompts.append(prompt)
        shortened = sum(old is not new for old, new in zip(sources, kept, strict=True))
        if shortened:
            log.warning("--truncate shortened %d of %d sources", shortened, len(sources))
        found: list[list[Output]] = [[] for _ in sources]
        hypotheses = generate(self.model, prompts, self.protocol, config, report)
        for number, some in zip(full, hypotheses, strict=True):
            found[number] = [Output(self.task.text(kept[number], one.ids), one) for one in some]
        return found

    def _fit(
        self, source: list[Ids], number: int, config: GenerateConfig, truncate: bool
    ) -> tuple[list[Ids], Example]:
        """The source, shortened if it must and may be, and its prompt."""
        prompt = self.task.prompt(source)
        over, _ = overrun(prompt, self.protocol, config.max_len, self.model.config)
        room = sum(map(len, source)) - over
        if truncate and over > 0 and room > 0:
            source = shorten(source, room)
            prompt = self.task.prompt(source)
        name = f"input {number + 1}"
        check_places(prompt, self.protocol, config.max_len, self.model.config, name)
        return source, prompt
