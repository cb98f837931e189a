"""Classes, numbers and tags: what is said of texts and of their words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from unitk.errors import require
from unitk.registry import register
from unitk.slots import Example, Floats, Ids
from unitk.tasks.understanding.base import Headed, Labelling, labelled


@register("task", "classify")
class Classify(Labelling):
    """The class of a text, or of a pair of texts."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Headed.Config):
        """Whose inputs are read, the auxiliary loss, and what classes count."""

        class_weights: tuple[float, ...] = ()
        """What a text of each class counts in the loss, in the order of the corpus' labels."""

    config: Config
    head, form = "class", "class"

    def classify(self, parts: list[Ids], labels: Any, rng: np.random.Generator) -> Example:
        weights = np.array(self.config.class_weights or np.ones(len(self.labels)))
        known = ", ".join(self.labels)
        few = f"--task.class-weights needs {len(self.labels)} weights above 0, of {known}"
        require(len(weights) == len(self.labels) and min(weights) > 0, few)
        return labelled(self.asking(parts), labels, weights[labels])


@register("task", "regress")
class Regress(Labelling):
    """A number of a text, or of a pair of texts, such as their similarity."""

    head, form = "regress", "number"

    def said(self, parts: list[Ids], output: Floats) -> dict[str, Any]:
        return {"value": float(output[0])}


@register("task", "tag")
class Tag(Labelling):
    """A tag for each word, read at its first token."""

    head, form = "tag", "tags"

    def asking(self, parts: list[Ids]) -> Example:
        """Words, each a part; they are one text."""
        encoded = self.encoded([np.concatenate(parts)])
        firsts = np.cumsum([0, *map(len, parts[:-1])])
        return self.asked(encoded.example, encoded.tower, encoded.parts[0][firsts, None])

    def said(self, parts: list[Ids], output: Floats) -> dict[str, Any]:
        return {"tags": [self.labels[best] for best in output.argmax(-1)]}
