"""Several classes a text.  Zhang et al. 2019, arXiv 1905.07129, sections 3.5 and 4.3 (THU-ERNIE).

    text     She saw [ENT] the mayor [ENT] there .
    token    C  ..  S                   the layout of pre-training; a head reads C
    label    1  0  1                    of the classes leader, place, person

A text has the classes whose probability is above one half: any number of them, also none. A mention
is marked by words of the text, which the user writes there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unitk.registry import register
from unitk.slots import Example, Floats, Ids
from unitk.tasks.understanding.base import Labelling, with_labels


@register("task", "multi_label")
class MultiLabel(Labelling):
    """Predict any number of classes of a text, or of a pair of texts."""

    head = form = "classes"
    counts_parts = True

    def classify(self, parts: list[Ids], labels: Any, rng: np.random.Generator) -> Example:
        """Texts laid out with their classes, which are numbers [n]."""
        marks = np.zeros((1, len(self.labels)), np.float32)
        marks[0, labels] = 1
        return with_labels(self.lay_out(parts), marks)

    def measure(self, model: Any, batch: Any) -> tuple[Mapping[str, Any], Mapping[str, float]]:
        """Micro F1 of classes: twice the right ones, over those that are predicted or wanted."""
        ask = batch.asks[self.head]
        real_K1 = (ask.weight > 0)[:, None]
        found_KC = (model.output(batch, ask) > 0) & real_K1
        wanted_KC = (ask.label > 0) & real_K1
        right = 2.0 * (found_KC & wanted_KC).sum()
        return {"labels/f1": right}, {"labels": float(found_KC.sum() + wanted_KC.sum())}

    def prediction(self, parts: list[Ids], output: Floats) -> dict[str, Any]:
        odds = (1 / (1 + np.exp(-output[0].astype(np.float64)))).tolist()
        probabilities = dict(zip(self.labels, odds, strict=True))
        positive = [name for name, logit in zip(self.labels, output[0], strict=True) if logit > 0]
        return {"labels": positive, "probabilities": probabilities}
