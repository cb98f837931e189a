"""Answers in a passage, and choices among several texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from unitk.options.fields import Positive
from unitk.registry import register
from unitk.slots import Example, Floats, Ids
from unitk.tasks.base import Encoded, Task
from unitk.tasks.understanding.base import SYMBOLS, Headed, Labelling, side_by_side, with_labels


@register("task", "span")
class Span(Headed):
    """Find the answer to a question in the passage that follows it, or say that there is none."""

    @dataclass(frozen=True, kw_only=True)
    class Config(Headed.Config):
        """The objective that lays out the inputs, the auxiliary loss, and the length of answers."""

        max_answer: Positive = 30
        """Maximum tokens of a predicted answer (BERT's code: 30)."""

    config: Config
    head, form = "span", "span"
    windowed = counts_parts = True

    def rows(self, encoded: Encoded) -> Ids:
        return np.arange(len(encoded.example.towers[encoded.tower]))[None]

    def answer(self, parts: list[Ids], span: Ids, rng: np.random.Generator) -> Example:
        encoded = self.lay_out_parts(parts)
        passage = encoded.parts[-1]
        borders = passage[span - [0, 1]] if span[0] >= 0 else np.repeat(encoded.whole, 2)
        asked = self.with_ask(encoded.example, encoded.tower, self.rows(encoded))
        return with_labels(asked, borders[None])

    def decide(self, parts: list[Ids], output: Floats, null_threshold: float) -> dict[str, Any]:
        """The most probable answer: tokens [start, stop) of the last part; [-1, -1] for no answer.

        There is no answer if that is likelier, in log-probability, by more than `null_threshold`
        (Devlin et al. 2019, section 5.3).
        """
        encoded = self.lay_out_parts(parts)
        first, last = output[0] - np.logaddexp.reduce(output[0], axis=-1, keepdims=True)  # [2, a]
        passage = encoded.parts[-1]
        none = float(first[encoded.whole] + last[encoded.whole])
        more = np.arange(len(passage)) - np.arange(len(passage))[:, None]  # tokens but the first
        fits = (more >= 0) & (more < self.config.max_answer)
        score = np.where(fits, first[passage][:, None] + last[passage], -np.inf)
        best = float(score.max(initial=-np.inf))
        if not len(passage) or none - best > null_threshold:
            return {"span": [-1, -1], "probability": float(np.exp(none))}
        start, stop = divmod(int(score.argmax()), len(passage))
        return {"span": [start, stop + 1], "probability": float(np.exp(best))}

    def in_words(self, parts: Sequence[str], prediction: dict[str, Any]) -> dict[str, Any]:
        """The answer, which is the characters [start, end) of the last part."""
        if not prediction:
            return prediction
        first, last = prediction["span"]
        start, end = -1, -1
        if first >= 0:
            passage = parts[-1].lstrip()
            cut = len(parts[-1]) - len(passage)
            places = self.vocab.offsets(passage.rstrip())[first:last]
            if own := [span for span in places if span[0] < span[1]]:  # no blanks
                start, end = cut + own[0][0], cut + own[-1][1]
        answer = parts[-1][start:end]
        return {
            "answer": answer,
            "probability": prediction["probability"],
            "start": start,
            "end": end,
        }

    def alike(self, other: Task) -> bool:
        """Probabilities of slots are averaged, which must be those of the same words."""
        return isinstance(other, Span) and self.borders == other.borders

    @property
    def borders(self) -> tuple[Any, ...]:
        """The slots of two parts of a word each, and the number of all that may be borders."""
        encoded = self.lay_out_parts([self.words[:1]] * 2)
        return encoded.whole, [*map(list, encoded.parts)], len(self.rows(encoded)[0])


@register("task", "choice")
class Choice(Labelling):
    """Choose which of several texts goes best with the first one."""

    head, form, shortens = "choice", "choice", True

    def pair_slots(self, source: Ids, target: Ids, parts: Ids) -> Ids:
        return (parts - 1) * (source + SYMBOLS)

    def lay_out(self, parts: list[Ids]) -> Example:
        """A text with its choices: one document for each choice, which the text precedes."""
        laid = [self.fit(parts[0], choice) for choice in parts[1:] or parts]
        example, rows = side_by_side(laid)
        return self.with_ask(example, laid[0].tower, rows)

    def prediction(self, parts: list[Ids], output: Floats) -> dict[str, Any]:
        count = len(parts) - 1  # a batch is as wide as the text with the most choices
        return self.rank_names(output[0, :count], range(count))

    def fit(self, text: Ids, choice: Ids) -> Encoded:
        """Text and choice laid out; the text, then the choice, is truncated to the positions."""
        encoded = self.lay_out_parts([text, choice])
        last = max(int(slots.pos.max()) + 1 for slots in encoded.example.towers.values())
        if (position_limit := self.trained.position_limit) and last > position_limit:
            room = len(text) + len(choice) - (last - position_limit)
            kept = max(room - len(choice), 1)
            encoded = self.lay_out_parts([text[:kept], choice[: max(room - kept, 1)]])
        return encoded
