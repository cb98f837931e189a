"""THU-ERNIE.  Zhang et al. 2019, arXiv 1905.07129, sections 3.3 to 3.5, figure 3.

Beside the first token of a name is its entity. Tokens are hidden as in BERT. The denoising
entity auto-encoder (dEA) asks for the entity at that token, among those of the batch.

    text     a [b c] d [e] f [g]     b c is entity 1, e is 4, g is 2
    token    C  a  M  c  d  e  f  g  S
    pos      0  1  2  3  4  5  6  7  8
    at       0  0  0  0  0  0  0  0  0
    entity   .  .  1  .  .  .  .  3  .     read: that of e is hidden, that of g is another one
    mlm      .  .  b  .  .  .  .  .  .
    dea      .  .  1  .  .  4  .  2  .

The input "x.entity" has these numbers, and 0 where there is none. Fine-tuning reads texts with all
of their entities.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated

import numpy as np

from unitk import registry
from unitk.data.cuts import Text
from unitk.errors import require
from unitk.families.thu_ernie.entities import Link, Linker
from unitk.formats.vectors import read_vectors
from unitk.options.fields import Copied, Weights
from unitk.registry import register
from unitk.slots import Ask, Example, Ids
from unitk.tasks.base import Encoded, places_of
from unitk.tasks.mlm import MLM
from unitk.vocab.base import Vocab

HEAD = "candidates:entity"
ENTITIES, FORMS = "entities.txt", "forms.tsv"  # what a checkpoint copies


def layout(example: Example, entity: Ids, read: Ids) -> Example:
    """A text with entities beside its slots [T], from 1, of which these are `read`; all are asked
    for."""
    places = np.flatnonzero(entity)
    among, label = np.unique(entity[places], return_inverse=True)
    asks = [*example.asks]
    if len(places):
        weight = np.ones(len(places), np.float32)
        asks.append(Ask("dea", HEAD, "x", places[:, None], label, weight, among))
    return replace(example, asks=asks, inputs={**example.inputs, "x.entity": read})


@register("task", "thu_ernie")
class THUERNIE(MLM):
    """Predict hidden tokens, and the entities that names stand for (THU-ERNIE)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(MLM.Config):
        """BERT's options; entities, how they are found, and what is read of them."""

        nsp: bool = True
        """Next sentence prediction: texts are pairs of parts, half of them from two documents, and
        the model predicts which. Texts with links are of one part."""
        entities: Annotated[str, Copied("entities.txt")] = ""
        """File of the entities' vectors, such as TransE's: a name and its numbers a line. They are
        not trained. Default: no entities, which is BERT."""
        linker: str = "forms"
        """How entities are found in a text without links."""
        forms: Annotated[str, Copied("forms.tsv")] = ""
        """File of the linker. forms: a name as it stands in texts, a tab and its entity a line;
        without it, texts without links have no entities, in fine-tuning and prediction."""
        random_none_keep: Weights = (0.05, 0.15, 0.8)
        """Weights of what is read of a linked entity: another one, none, itself (section 3.4)."""

        def __post_init__(self) -> None:
            super().__post_init__()
            idle = "has no effect without --task.entities FILE"
            require(bool(self.entities) or not self.forms, f"--task.forms {idle}")
            require(bool(self.entities) or self.linker == "forms", f"--task.linker {idle}")

    config: Config
    arch = "thu_ernie_small"

    def __init__(self, config: Config, vocab: Vocab) -> None:
        super().__init__(config, vocab)
        self.numbers: dict[str, int] = {}  # of entities, from 1
        if config.entities:
            names, vectors = read_vectors(Path(config.entities))
            self.numbers = {name: number for number, name in enumerate(names, 1)}
            self.table_heads = (f"{HEAD}:{len(names) + 1}",)
            self.heads += self.table_heads
            rows = np.pad(vectors, ((1, 0), (0, 0)))  # 0 is no entity
            self.tables = {f"heads.{HEAD}.table.weight": rows} if vectors.size else {}
            self.files = {ENTITIES: "\n".join([f"{len(names)} 0", *names, ""])}
        if config.forms:
            self.files = {**self.files, FORMS: Path(config.forms).read_text(encoding="utf-8")}

    @cached_property
    def find(self) -> Linker:
        """The linker that --task.linker names."""
        return registry.get("linker", self.config.linker, "--task.linker")(
            self.config.forms, self.vocab
        )

    def entity(self, parts: list[Ids], links_of_parts: Sequence[list[Link]] | None = None) -> Ids:
        """The numbers [T], from 1, of the entities beside framed parts; 0 is none.

        Without `links_of_parts`, the links of each part are those that `find` finds in it.
        """
        links_of_parts = (
            [self.find(part) for part in parts] if links_of_parts is None else links_of_parts
        )
        slots = places_of(parts, 1)
        numbers = np.zeros(1 + sum(len(part) + 1 for part in parts), np.int64)
        for places, links in zip(slots, links_of_parts, strict=True):
            for start, _, name in links:
                numbers[places[start]] = self.numbers.get(name, 0)
        return numbers

    def add_noise(self, entity: Ids, rng: np.random.Generator) -> Ids:
        """Corrupt entities for training."""
        places = np.flatnonzero(entity)
        rates = np.array(self.config.random_none_keep)
        kind = rng.choice(3, len(places), p=rates / rates.sum())
        # any of the others, all alike
        step = rng.integers(1, max(len(self.numbers), 2), len(places))
        other = (entity[places] - 1 + step) % len(self.numbers) + 1
        read = entity.copy()
        read[places] = np.choose(kind, [other, 0, entity[places]])
        return read

    def pretrain(self, text: Text, rng: np.random.Generator) -> Example:
        example = super().pretrain(text, rng)
        if not self.numbers:
            return example
        entity = self.entity(text.parts)
        return layout(example, entity, self.add_noise(entity, rng))

    def link(self, parts: list[Ids], links: Ids, rng: np.random.Generator) -> Example:
        """A text of one part with its own links."""
        require(self.numbers, "texts with entities need their vectors: --task.entities FILE")
        example = super().pretrain(Text(parts, np.zeros(1, np.int64)), rng)
        spans = [(a, b, self.trained.labels[number]) for a, b, number in links.tolist()]
        # links are of the last part
        entity = self.entity(parts, [*[[]] * (len(parts) - 1), spans])
        return layout(example, entity, self.add_noise(entity, rng))

    def lay_out_parts(self, parts: list[Ids]) -> Encoded:
        encoded = super().lay_out_parts(parts)
        return replace(encoded, example=self.read(encoded.example, parts))

    def prompt(self, source: list[Ids]) -> Example:
        return self.read(super().prompt(source), source)

    def read(self, example: Example, parts: list[Ids]) -> Example:
        """A text with the entities that are found in it, where there is a linker."""
        c = self.config
        if not self.numbers or (c.linker == "forms" and not c.forms):
            return example
        return replace(example, inputs={**example.inputs, "x.entity": self.entity(parts)})
